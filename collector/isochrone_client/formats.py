"""Formatting of quantities for people. An unknown quantity is `UNKNOWN`, never 0.

Digits: two decimals below 1, one below 10, none above; both bounds of an interval have the decimals of the larger one.
"""

import math

from isochrone_wire.answers import Window
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US

UNKNOWN = "–"  # noqa: RUF001  # an en dash: a hyphen would read as a minus
_DECIMALS_BELOW = ((2, 1.0), (1, 10.0))
_TOO_LONG = 1e8
_CENT = 0.01
_HOUR_US = 60 * MINUTE_US
# The age below which a unit is used, and the unit.
_AGE_UNITS = ((MINUTE_US, SECOND_US, "s"), (_HOUR_US, MINUTE_US, "min"), (2 * DAY_US, _HOUR_US, "h"))
_SPAN_UNITS = ((DAY_US, "d"), (_HOUR_US, "h"), (MINUTE_US, "min"), (SECOND_US, "s"))
_MS_PER_US = 1e-3


def number(value: float | None, *, signed: bool = False, decimals: int | None = None) -> str:
    """A number with suitable decimals; `signed` adds a plus to positive numbers."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if abs(value) >= _TOO_LONG:
        return f"{value:+.3g}" if signed else f"{value:.3g}"
    places = fitting_decimals(value) if decimals is None else decimals
    rounded = round(value, places) + 0.0  # adding 0.0 turns -0.0 into 0.0
    return f"{rounded:+.{places}f}" if signed and rounded else f"{rounded:.{places}f}"


def fitting_decimals(value: float) -> int:
    """The number of decimals for a number of this size."""
    if value:
        for places, limit in _DECIMALS_BELOW:
            if round(abs(value), places) < limit:
                return places
    return 0


def interval(low: float | None, high: float | None, *, signed: bool = False) -> str:
    """`low … high` with the same decimals on both sides; `UNKNOWN` if both are unknown."""
    known = [abs(bound) for bound in (low, high) if bound is not None and math.isfinite(bound)]
    if not known:
        return UNKNOWN
    decimals = fitting_decimals(max(known))
    return f"{number(low, signed=signed, decimals=decimals)} … {number(high, signed=signed, decimals=decimals)}"


def interval_around(value: float | None, margin: float | None) -> str:
    """`+1.20 ± 0.35` with the decimals of the margin; `UNKNOWN` if the value is unknown."""
    if value is None or margin is None:
        return number(value, signed=True)
    decimals = fitting_decimals(margin)
    return f"{number(value, signed=True, decimals=decimals)} ± {number(margin, decimals=decimals)}"


def milliseconds(us: float | None) -> float | None:
    """Microseconds as milliseconds; `None` stays `None`."""
    return None if us is None else us * _MS_PER_US


def percent(value: float | None) -> str:
    """A signed percentage with one decimal, none from 100 %; the heading has the unit."""
    if value is None:
        return UNKNOWN
    return number(value, signed=True, decimals=0 if abs(value) >= 99.95 else 1)  # noqa: PLR2004  # rounds to 100.0


def share(part: int, whole: int) -> str:
    """`part` of `whole` in per cent, rounded down, so that 100.0 means all of it; `UNKNOWN` if `whole` is 0."""
    return f"{math.floor(1000 * part / whole) / 10:.1f}" if whole > 0 else UNKNOWN


def dollars(usd: float | None) -> str:
    """US dollars with cents, or two significant digits below a cent; the heading has the unit."""
    if usd is None or not math.isfinite(usd) or abs(usd) >= _TOO_LONG:
        return number(usd)
    return f"{usd:.2g}" if 0 < abs(usd) < _CENT else f"{usd:.2f}"


def age(at: int | None, *, now_at: int) -> str:
    """The age of an instant: `12 s`, `4 min`, `3 h`, `5 d`. A future instant (clocks differ) is `0 s` old."""
    if at is None:
        return UNKNOWN
    us = max(0, now_at - at)
    for limit_us, unit_us, unit in _AGE_UNITS:
        if us < limit_us:
            return f"{us // unit_us} {unit}"
    return f"{us // DAY_US} d"


def span(us: int) -> str:
    """A configured duration in the largest unit that divides it: `90 s`, `5 min`, `1 h`."""
    for unit_us, unit in _SPAN_UNITS:
        if us and us % unit_us == 0:
            return f"{us // unit_us} {unit}"
    return f"{number(milliseconds(us))} ms"


def minute(at: int) -> str:
    """An instant to the minute, `2026-11-01 00:00`, in UTC."""
    return rfc3339(at)[:16].replace("T", " ")


def moment(at: int, *, now_at: int) -> str:
    """A recent instant: `08:20:05` on the day of `now_at`, `11-01 08:20` on another day, in UTC."""
    text, today = rfc3339(at), rfc3339(now_at)
    return text[11:19] if text[:10] == today[:10] else text[5:16].replace("T", " ")


def between(window: Window) -> str:
    """A window as `2026-11-01 00:00 and 2026-11-02 00:00 UTC`, to follow the word `between`."""
    return f"{minute(window.from_at)} and {minute(window.until_at)} UTC"
