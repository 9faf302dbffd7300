"""Formatting of quantities for people. An unknown quantity is `UNKNOWN`, never 0.

Digits: two decimals below 1, one below 10, none above; both bounds of an interval have the decimals of the larger one.
In a table, all numbers of a column have the decimals of its largest one (`Amount`).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from isochrone_wire.answers import Window
from isochrone_wire.durations import DAY_US, HOUR_US, MINUTE_US, SECOND_US
from isochrone_wire.json_format import minute, rfc3339

UNKNOWN = "–"  # noqa: RUF001  # an en dash: a hyphen would read as a minus
_TOO_LONG = 1e8
_CENT = 0.01
_BARS = "▁▂▃▄▅▆▇█"
_MOST_DECIMALS = 6
_WHOLE_PERCENT = 99.95
# The age below which a unit is used, and the unit.
_AGE_UNITS = ((MINUTE_US, SECOND_US, "s"), (HOUR_US, MINUTE_US, "min"), (2 * DAY_US, HOUR_US, "h"))
_SPAN_UNITS = ((DAY_US, "d"), (HOUR_US, "h"), (MINUTE_US, "min"), (SECOND_US, "s"))
_US_PER_MS = 1000.0


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
    fitting = (places for places, limit in ((2, 1.0), (1, 10.0)) if round(abs(value), places) < limit)
    return next(fitting, 0) if value else 0


def milliseconds(us: float | None) -> float | None:
    """Microseconds as milliseconds; `None` stays `None`."""
    return None if us is None else us / _US_PER_MS


def display_unit(unit: str) -> str:
    """The unit in which people read a quantity of the wire's `unit`: `ms` for `us`, otherwise the same."""
    return "ms" if unit == "us" else unit


def display_unit_size(unit: str) -> float:
    """The number of `unit` in one display unit: 1000 for `us`, otherwise 1."""
    return _US_PER_MS if unit == "us" else 1.0


def displayed(value: float | None, unit: str) -> float | None:
    """A quantity of the wire's `unit` in its display unit; `None` stays `None`."""
    return None if value is None else value / display_unit_size(unit)


def share(part: int, whole: int) -> str:
    """`part` of `whole` in per cent, rounded down, so that 100.0 means all of it; `UNKNOWN` if `whole` is 0."""
    return f"{math.floor(1000 * part / whole) / 10:.1f}" if whole > 0 else UNKNOWN


def _dollar_decimals(values: Sequence[float]) -> int:
    """Cents, or as many as show two digits of the smallest amount below a cent."""
    smallest = min((abs(value) for value in values if value), default=_CENT)
    if smallest >= _CENT:
        return 2
    return min(len(f"{smallest:.2g}".partition(".")[2]), _MOST_DECIMALS) if smallest > 10**-4 else _MOST_DECIMALS


@dataclass(frozen=True, slots=True)
class Amount:
    """The numbers of one cell of a table; the column gives them their decimals.

    `pattern` has a place for each number. The first `signed` of them have a plus if they are positive. `rule` gives the
    decimals for all numbers of a column.
    """

    values: tuple[float | None, ...]
    pattern: str = "{}"
    signed: int = 0
    rule: Callable[[Sequence[float]], int] = lambda values: fitting_decimals(max(map(abs, values), default=0.0))

    @property
    def known(self) -> tuple[float, ...]:
        """The finite numbers."""
        return tuple(value for value in self.values if value is not None and math.isfinite(value))

    def text(self, decimals: int) -> str:
        """The text of the cell; `UNKNOWN` without a number."""
        if not self.known:
            return UNKNOWN
        return self.pattern.format(
            *(number(value, signed=place < self.signed, decimals=decimals) for place, value in enumerate(self.values))
        )


def common_decimals(amounts: Iterable[Amount]) -> int:
    """The decimals for all numbers of these cells."""
    cells = list(amounts)
    return cells[0].rule([value for cell in cells for value in cell.known]) if cells else 0


def alone(cell: Amount) -> str:
    """The text of numbers that are in no column."""
    return cell.text(common_decimals([cell]))


def amount(value: float | None, *, signed: bool = False) -> Amount:
    """A number."""
    return Amount((value,), signed=int(signed))


def amount_ms(us: float | None, *, signed: bool = False) -> Amount:
    """Microseconds in milliseconds."""
    return amount(milliseconds(us), signed=signed)


def amount_interval(low: float | None, high: float | None, *, signed: bool = False) -> Amount:
    """`low … high`."""
    return Amount((low, high), "{} … {}", signed=2 * signed)


def amount_percent(value: float | None) -> Amount:
    """A signed percentage with one decimal, none if the column reaches 100 %; the heading has the unit."""
    return Amount((value,), signed=1, rule=lambda values: int(all(abs(one) < _WHOLE_PERCENT for one in values)))


def amount_dollars(usd: float | None) -> Amount:
    """US dollars with cents, or with enough decimals for the smallest amount; the heading has the unit."""
    return Amount((usd,), rule=_dollar_decimals)


def interval(low: float | None, high: float | None, *, signed: bool = False) -> str:
    """`low … high` with the same decimals on both sides; `UNKNOWN` if both are unknown."""
    return alone(amount_interval(low, high, signed=signed))


def bars(values: Sequence[float | None], *, highest: float) -> str:
    """A bar per value from zero to `highest`, and a space for `None`."""
    top = len(_BARS) - 1
    return "".join(" " if value is None or not highest else _BARS[round(top * value / highest)] for value in values)


def sparkline(values: Sequence[float | None], *, highest: float) -> str:
    """The bars without spaces around them; `UNKNOWN` without a value."""
    return bars(values, highest=highest).strip() or UNKNOWN


def age(at: int | None, *, now_at: int) -> str:
    """The age of an instant: `12 s`, `4 min`, `3 h`, `5 d`. A future instant (clocks differ) is `0 s` old."""
    if at is None:
        return UNKNOWN
    us = max(0, now_at - at)
    return next((f"{us // size} {unit}" for limit, size, unit in _AGE_UNITS if us < limit), f"{us // DAY_US} d")


def span(us: int) -> str:
    """A configured duration in the largest unit that divides it: `90 s`, `5 min`, `1 h`."""
    whole = (f"{us // unit_us} {unit}" for unit_us, unit in _SPAN_UNITS if us and us % unit_us == 0)
    return next(whole, f"{number(milliseconds(us))} ms")


def moment(at: int, *, now_at: int) -> str:
    """A recent instant: `08:20:05` on the day of `now_at`, `11-01 08:20` on another day, in UTC."""
    text, today = rfc3339(at), rfc3339(now_at)
    return text[11:19] if text[:10] == today[:10] else text[5:16].replace("T", " ")


def between(window: Window) -> str:
    """A window as `2026-11-01 00:00 and 2026-11-02 00:00 UTC`, to follow the word `between`."""
    return f"{minute(window.from_at)} and {minute(window.until_at)} UTC"
