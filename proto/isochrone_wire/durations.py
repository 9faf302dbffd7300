"""Durations and the last instant in microseconds, and durations in written form (`500ms`, `30s`, `5m`, `1h`, `1d`)."""

import re

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US

MAX_INSTANT_AT = 253_402_300_799_000_000
"""The end of the year 9999: the last that RFC 3339 can write, well inside what PostgreSQL's timestamptz holds."""

_UNITS_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
# Upper limit of each unit in microseconds, the unit in microseconds, its symbol.
_SPOKEN = ((2 * MINUTE_US, SECOND_US, "s"), (2 * HOUR_US, MINUTE_US, "min"), (2 * DAY_US, HOUR_US, "h"))
_WRITTEN = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(us|ms|s|m|h|d)", re.ASCII)


def day_of(at: int) -> int:
    """Return the start of the day (UTC) that contains an instant; both in microseconds since the Unix epoch."""
    return at - at % DAY_US


def parse_us(text: object) -> int:
    """Parse a written duration into microseconds. Raises `ValueError` with a message for the user."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        raise ValueError(f"{text} has no unit: write {text}s or {text}ms")  # noqa: TRY004  # pydantic reports a ValueError as a problem
    written = _WRITTEN.fullmatch(text) if isinstance(text, str) else None
    if written is None:
        raise ValueError(f"{text!r} is not a duration: write for example 500ms, 30s, 5m or 1h")
    from decimal import Decimal  # noqa: PLC0415  # most commands need only the units

    return int(Decimal(written[1]) * _UNITS_US[written[2]])


def write(duration_us: int) -> str:
    """Return the shortest exact form: 90_000_000 is `90s`, 60_000_000 is `1m`."""
    for unit, size_us in reversed(_UNITS_US.items()):
        if duration_us >= size_us and duration_us % size_us == 0:
            return f"{duration_us // size_us}{unit}"
    return f"{duration_us}us"


def rough(duration_us: int) -> str:
    """Format a duration in one unit: `42 s`, `9 min`, `3 h`, `5 d`. Negative ones (clocks differ) become `0 s`."""
    for limit_us, unit_us, unit in _SPOKEN:
        if duration_us < limit_us:
            return f"{max(duration_us, 0) // unit_us} {unit}"
    return f"{duration_us // DAY_US} d"
