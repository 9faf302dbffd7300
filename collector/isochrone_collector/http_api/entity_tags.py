"""Entity tags (RFC 9110). Pure."""

import re

from starlette.datastructures import Headers

_TAG = r'(?:W/)?"([\x21\x23-\x7e\x80-\xff]*)"'
_TAGS = re.compile(rf"{_TAG}(?:[ \t]*,[ \t]*{_TAG})*")
_ONE_TAG = re.compile(_TAG)


def quoted(etag: str) -> str:
    """Format a strong entity tag for a header: equal bytes."""
    return f'"{etag}"'


def weak(etag: str) -> str:
    """Format a weak entity tag for a header: the same answer, perhaps as of another instant."""
    return f'W/"{etag}"'


def is_current(if_none_match: str | None, etag: str) -> bool:
    """Return whether the header contains the tag, strong or weak, or is `*`. A malformed header matches nothing."""
    header = (if_none_match or "").strip()
    if header == "*":
        return True
    return _TAGS.fullmatch(header) is not None and etag in _ONE_TAG.findall(header)


def none_match(headers: Headers) -> str | None:
    """Return the value of If-None-Match; `None` without one."""
    return ", ".join(headers.getlist("if-none-match")) or None
