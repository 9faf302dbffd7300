"""What a consumer has already, and how long it may keep what it gets (RFC 9110, 9111, 5861). Pure."""

import re

from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RegionTables

MAX_AGE_US = 5 * SECOND_US
"""The longest a cache may answer without asking: a switch must not hide behind it, however fresh the evidence is."""

_TAG = r'(?:W/)?"([\x21\x23-\x7e\x80-\xff]*)"'
_TAGS = re.compile(rf"{_TAG}(?:[ \t]*,[ \t]*{_TAG})*")
_ONE_TAG = re.compile(_TAG)


def quoted(etag: str) -> str:
    """A strong entity tag as a header has it."""
    return f'"{etag}"'


def is_current(if_none_match: str | None, etag: str) -> bool:
    """Whether the header names the tag, strong or weak, alone or in a list, or is `*`. Nonsense names nothing."""
    said = (if_none_match or "").strip()
    if said == "*":
        return True
    return _TAGS.fullmatch(said) is not None and etag in _ONE_TAG.findall(said)


def cache_control(region: RegionTables, *, now_at: int) -> str:
    """How long an answer may be used unasked, while asking again, and while nobody answers, in whole seconds; by the
    table that ages first.
    """
    fresh_us = min(table.fresh_until_at for table in region.tables) - now_at
    stale_us = min(table.stale_until_at for table in region.tables) - now_at
    age_us = max(0, min(fresh_us, MAX_AGE_US))
    return (
        f"max-age={age_us // SECOND_US}, stale-while-revalidate={_seconds(fresh_us - age_us)}, "
        f"stale-if-error={_seconds(stale_us - age_us)}"
    )


def _seconds(us: int) -> int:
    return max(0, us) // SECOND_US
