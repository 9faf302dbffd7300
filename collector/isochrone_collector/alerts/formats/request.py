"""HTTP request that delivers a notification."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

_ELLIPSIS = "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A POST of JSON. Address, headers and body may contain secrets: none is in the repr."""

    url: str = field(repr=False)
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def encoded(document: object) -> bytes:
    """Return a document as compact JSON."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def cut(text: str, most: int) -> str:
    """Return a text with at most so many characters; a cut one ends with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + _ELLIPSIS
