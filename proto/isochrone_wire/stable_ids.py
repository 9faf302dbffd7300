"""Ids that every machine computes alike, so that nobody has to hand them out."""

import hashlib
import json

_ID_BITS = 63


def stable_id(kind: str, *parts: str | float | None) -> int:
    """A whole number from 1 to 2^63 - 1 (it fits PostgreSQL's bigint) from what makes a thing itself.

    The first 63 bits of SHA-256 over the parts as JSON, so that ("ab", "c") and ("a", "bc") differ.
    """
    text = json.dumps([kind, *parts], ensure_ascii=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> (64 - _ID_BITS)) or 1
