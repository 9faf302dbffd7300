"""Bounds of the values of a sample: what its columns can hold and a probe can measure. Pure tables."""

from collections.abc import Mapping
from dataclasses import fields

from isochrone_wire.model import DAY_US, Sample

# Of the name, the region and the agent version of a vantage.
MAX_VANTAGE_CHARS = 100
# A clock this far off leaves the round unknown; a smaller error makes it late.
MAX_DISTANCE_US = 400 * DAY_US
MAX_COUNT = 2**31 - 1
MAX_INT64 = 2**63 - 1
# The end of the year 9999, well inside what PostgreSQL's timestamptz holds.
MAX_INSTANT_AT = 253_402_300_799_000_000
# The beginning of the year 2025: a machine whose clock is earlier has not set it since it booted.
MIN_INSTANT_AT = 1_735_689_600_000_000

_MEASURED_FIELDS = {field.name for field in fields(Sample)}
_DURATIONS = {name for name in _MEASURED_FIELDS if name.endswith("_us")}
_COUNTS = (_MEASURED_FIELDS & {"chunks", "output_chars", "stalls", "retransmits", "quality"}) | {
    name for name in _MEASURED_FIELDS if name.endswith("_tokens")
}
BOUNDS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(sorted(_DURATIONS), (0, DAY_US)),
    **dict.fromkeys(sorted(_COUNTS), (0, MAX_COUNT)),
    "late_us": (-DAY_US, DAY_US),
    "clock_offset_us": (-MAX_DISTANCE_US, MAX_DISTANCE_US),
    "http_status": (100, 999),
    # A token takes a day or so at most, like every duration.
    "tokens_per_second": (1e-5, 10**6),
    "cost_usd": (0, 10**6),
}
"""Lowest and highest value of each quantity of a sample."""

LENGTHS: Mapping[str, int] = {"remote_address": 100, "edge": 200, "request_id": 200, "error": 500}
"""Maximum number of characters of each text of a sample."""

LIMIT_BOUNDS: Mapping[str, tuple[float, float]] = {
    "limit_requests": (0, MAX_INT64),
    "remaining_requests": (0, MAX_INT64),
    "reset_requests_us": (0, MAX_DISTANCE_US),
    "limit_tokens": (0, MAX_INT64),
    "remaining_tokens": (0, MAX_INT64),
    "reset_tokens_us": (0, MAX_DISTANCE_US),
    "retry_after_us": (0, MAX_DISTANCE_US),
}
"""Lowest and highest value of each quantity of a `RateLimit`."""


def is_name(text: str) -> bool:
    """Return whether a text is a valid name of a vantage, a region, a provider or a reason."""
    return 0 < len(text) <= MAX_VANTAGE_CHARS and text.isprintable()
