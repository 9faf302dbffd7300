"""Charts beside the numbers: the interval of each differential, and the contribution of its phases.

Positions are in per cent of the width, so that a chart scales with the screen. Charts repeat the numbers beside them,
so they are hidden from screen readers.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from isochrone_client.formats import display_unit, display_unit_size, number
from isochrone_client.pages.explanation import ADDENDS
from isochrone_client.report.html_elements import Markup, element
from isochrone_wire.answers import Decision, Differential

_HEIGHT = 22
_MIDDLE = _HEIGHT // 2
_BAR = 12
_TICKS = 5
_CLASSES = {
    Decision.FASTER: "dot good",
    Decision.SLOWER: "dot bad",
    Decision.MIXED: "dot dim",
    Decision.UNDECIDED: "dot dim",
}
_WHOLE = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A linear scale from `low` to `high` across a chart; the axis shows values divided by `unit`."""

    low: float
    high: float
    unit: float

    def position(self, value: float) -> float:
        """The position of a value, in per cent; a value off the scale is placed at its end."""
        return round(_WHOLE * min(max((value - self.low) / (self.high - self.low), 0.0), 1.0), 3)

    @property
    def ticks(self) -> list[float]:
        """A few round values of the scale."""
        step = _round_step((self.high - self.low) / self.unit / _TICKS) * self.unit
        first = math.ceil(self.low / step)
        return [step * index for index in range(first, math.floor(self.high / step) + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartColumn:
    """A column of charts on one scale: the axis in its heading, and one chart per row."""

    heading: str
    axis: Markup
    cell: Callable[[Differential], Markup]


def intervals(rows: Sequence[Differential]) -> ChartColumn | None:
    """A dot and a whisker per differential over the band of the margin; `None` without intervals."""
    known = [row for row in rows if _is_known(row)]
    if not known:
        return None
    extents = [bound for row in known for bound in (row.shift_low, row.shift_high, row.margin, -(row.margin or 0.0))]
    scale = _scale([bound for bound in extents if bound is not None], unit=display_unit_size(known[0].unit))
    unit = display_unit(known[0].unit)
    return ChartColumn(
        heading=f"difference and interval, {unit}", axis=_axis(scale), cell=lambda row: _whisker(row, scale)
    )


def bars(rows: Sequence[Differential]) -> ChartColumn | None:
    """The contribution of each phase: increases right of zero, decreases left; `None` without phases."""
    extents = [bound for row in rows for bound in _extent(row)]
    if not any(extents):
        return None
    scale = _scale(extents, unit=1000.0)
    return ChartColumn(
        heading="contribution of the phases, ms", axis=_axis(scale), cell=lambda row: _stacked_bars(row, scale)
    )


def legend() -> Markup:
    """The colours of the phases, in stacking order."""
    return element("ul", *(element("li", _key(name), name) for name in ADDENDS), class_="legend")


def _key(name: str) -> Markup:
    square = element("rect", width="100%", height="100%", class_=name)
    return element("svg", square, class_="key", aria_hidden="true")


def _is_known(row: Differential) -> bool:
    bounds = (row.shift, row.shift_low, row.shift_high)
    return all(bound is not None and math.isfinite(bound) for bound in bounds)


def _scale(values: Iterable[float], *, unit: float) -> Scale:
    known = [value for value in values if math.isfinite(value)]
    low, high = min(0.0, *known), max(0.0, *known)
    room = (high - low) * 0.04 or unit
    return Scale(low=low - room, high=high + room, unit=unit)


def _round_step(width: float) -> float:
    """The next of 1, 2, 5, 10, 20, … from `width` up."""
    power = 10.0 ** math.floor(math.log10(width))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= width * (1 - 1e-9))


def _svg(*parts: Markup, height: int = _HEIGHT) -> Markup:
    return element("svg", *parts, height=height, aria_hidden="true", focusable="false")


def _line(x: float, *, class_: str, top: int = 0, bottom: int = _HEIGHT) -> Markup:
    return element("line", x1=f"{x}%", x2=f"{x}%", y1=top, y2=bottom, class_=class_)


def _axis(scale: Scale) -> Markup:
    marks = (
        element(
            "text",
            number(tick / scale.unit, signed=True),
            x=f"{scale.position(tick)}%",
            y=12,
            text_anchor="middle",
            class_="mark",
        )
        for tick in scale.ticks
    )
    return _svg(*marks, height=16)


def _gridlines(scale: Scale) -> list[Markup]:
    return [_line(scale.position(tick), class_="tick") for tick in scale.ticks]


def _whisker(row: Differential, scale: Scale) -> Markup:
    zero = _line(scale.position(0.0), class_="zero")
    if row.shift is None or row.shift_low is None or row.shift_high is None or not _is_known(row):
        return _svg(*_gridlines(scale), zero)
    low, high = scale.position(row.shift_low), scale.position(row.shift_high)
    dot = element(
        "circle", cx=f"{scale.position(row.shift)}%", cy=_MIDDLE, r=5, class_=_CLASSES.get(row.decision, "dot")
    )
    whisker = element("line", x1=f"{low}%", x2=f"{high}%", y1=_MIDDLE, y2=_MIDDLE, class_="whisker")
    ends = (_line(end, class_="whisker", top=_MIDDLE - 4, bottom=_MIDDLE + 4) for end in (low, high))
    return _svg(*_margin(row, scale), *_gridlines(scale), zero, whisker, *ends, dot)


def _margin(row: Differential, scale: Scale) -> list[Markup]:
    if row.margin is None:
        return []
    left, right = scale.position(-row.margin), scale.position(row.margin)
    return [_rect(left, right, top=0, height=_HEIGHT, class_="margin")]


def _rect(left: float, right: float, *, top: int, height: int, class_: str) -> Markup:
    return element("rect", x=f"{left}%", width=f"{round(right - left, 3)}%", y=top, height=height, class_=class_)


def _extent(row: Differential) -> tuple[float, float]:
    shifts = [part.shift for part in row.parts if part.name in ADDENDS]
    return sum(shift for shift in shifts if shift < 0), sum(shift for shift in shifts if shift > 0)


def _stacked_bars(row: Differential, scale: Scale) -> Markup:
    parts, left, right = [], 0.0, 0.0
    for part in sorted((part for part in row.parts if part.name in ADDENDS), key=lambda part: ADDENDS.index(part.name)):
        begin, end = (right, right + part.shift) if part.shift >= 0 else (left + part.shift, left)
        left, right = min(left, begin), max(right, end)
        top = (_HEIGHT - _BAR) // 2
        parts.append(
            _rect(scale.position(begin), scale.position(end), top=top, height=_BAR, class_=f"part {part.name}")
        )
    return _svg(*_gridlines(scale), *parts, _line(scale.position(0.0), class_="zero"))
