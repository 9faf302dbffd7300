"""Ids computed from content, identical on every machine, so that they need no registry; and the text form of ids."""

import hashlib
import json

_ID_BITS = 63


def stable_id(kind: str, *parts: str | float | None) -> int:
    """Return an integer from 1 to 2^63 - 1 (a bigint): the first 63 bits of the SHA-256 of the parts as JSON."""
    text = json.dumps([kind, *parts], ensure_ascii=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> (64 - _ID_BITS)) or 1


def public_id(prefix: str, number: int) -> str:
    """Return an id as text with a prefix for its kind: JSON readers would round such a large number."""
    return f"{prefix}{number:016x}"


def parse_public_id(prefix: str, text: str) -> int:
    """Return the number of an id in the form of `public_id`. Raises `ValueError`."""
    if not text.startswith(prefix):
        raise ValueError(f"{text!r} does not begin with {prefix!r}")
    return int(text.removeprefix(prefix), 16)
