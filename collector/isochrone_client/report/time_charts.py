"""Charts over time: one per target, with a line per region, and the incidents marked.

Positions are in per cent of the width, as in `charts`; lines are drawn in a box of their own that stretches with the
screen, with strokes that do not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from isochrone_client.formats import (
    Amount,
    amount,
    display_unit,
    display_unit_size,
    displayed,
    number,
    sparkline,
)
from isochrone_client.render.page import Column, Page
from isochrone_client.report.charts import Scale
from isochrone_client.report.html_elements import Markup, breakable, element, joined
from isochrone_client.report.incidents import Incident, of_place
from isochrone_wire.answers import Metric, Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US
from isochrone_wire.queries.series import Series, SeriesList, SeriesPoint

SCHEMA = "isochrone.report-series/1"
MAX_REGIONS = 8
"""Lines of one chart; more cannot be told apart."""

MAX_CHARTS = 24

_TOP, _PLOT, _BOTTOM = 16, 120, 18
_BOX = 1000
_TICKS = 4
_STEPS = (
    *(size * SECOND_US for size in (10, 15, 30)),
    *(size * MINUTE_US for size in (1, 2, 5, 10, 15, 30)),
    *(size * HOUR_US for size in (1, 2, 3, 6, 12)),
    *(size * DAY_US for size in (1, 2, 5, 7, 14, 30, 60, 120)),
)
# A line is interrupted where so many of its usual distances between points are missing.
_GAP = 3
# A few extreme buckets must not press all others against the axis.
_HEADROOM, _EXTREME = 1.1, 3.0
# Labels nearer to an edge than this, in per cent, would be cut off.
_EDGE = 5.0
_TREND_POINTS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeCharts:
    """The series to draw, in buckets of `bucket_us`, over the span of the data; regions in the order of their colours;
    and all incidents of the report, which are marked by their number.
    """

    metric: Metric
    span: Window
    regions: tuple[str, ...]
    lines: tuple[Series, ...]
    bucket_us: int
    incidents: tuple[Incident, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets, those with incidents first."""
        names = dict.fromkeys(line.target for line in self.lines)
        affected = dict.fromkeys(incident.target for incident in self.incidents if incident.target in names)
        return tuple(dict.fromkeys([*affected, *names]))

    @property
    def unit(self) -> str:
        """The unit of the axis."""
        return display_unit(self.metric.unit)

    def shown(self, target: str) -> tuple[Series, ...]:
        """The lines of a target, in the order of the regions."""
        own = {line.region: line for line in self.lines if line.target == target}
        return tuple(own[region] for region in self.regions[:MAX_REGIONS] if region in own)


def time_charts(
    answer: SeriesList, *, regions: Sequence[str], span: Window, incidents: tuple[Incident, ...]
) -> TimeCharts:
    """The charts of an answer; `regions` are the known regions, the baseline first."""
    known = {line.region for line in answer.series}
    order = [*(region for region in regions if region in known), *sorted(known - set(regions))]
    return TimeCharts(
        metric=answer.metric,
        span=Window(from_at=span.from_at, until_at=max(span.until_at, span.from_at + answer.bucket_us)),
        regions=tuple(order),
        lines=answer.series,
        bucket_us=answer.bucket_us,
        incidents=incidents,
    )


def page(charts: TimeCharts) -> Page[Series]:
    """The lines as text: lowest, highest and newest median, and the trend in characters."""

    def medians(row: Series) -> list[float]:
        return [point.p50 for point in row.points if point.p50 is not None]

    return Page(
        schema=SCHEMA,
        title=f"median {charts.metric}, {charts.unit}",
        fields=(),
        columns=(
            Column(heading="target", text=lambda row: row.target, wide=True),
            Column(heading="region", text=lambda row: row.region, wide=True),
            Column(heading="lowest", scale="level", text=lambda row: _number(charts, min(medians(row), default=None))),
            Column(heading="highest", scale="level", text=lambda row: _number(charts, max(medians(row), default=None))),
            Column(
                heading="newest",
                scale="level",
                text=lambda row: _number(charts, row.points[-1].p50 if row.points else None),
            ),
            Column(heading="trend", text=lambda row: _trend(charts, row), wide=True),
        ),
        rows=tuple(line for target in charts.targets for line in charts.shown(target)),
    )


def _number(charts: TimeCharts, value: float | None) -> Amount:
    return amount(displayed(value, charts.metric.unit))


def _trend(charts: TimeCharts, line: Series) -> str:
    """The medians from zero to the highest of the target, in at most `_TREND_POINTS` characters; a space is a gap."""
    of_target = (point for one in charts.shown(line.target) for point in one.points)
    highest = max((point.p50 for point in of_target if point.p50 is not None), default=0.0)
    length = charts.span.until_at - charts.span.from_at
    size = max(min(length // charts.bucket_us, _TREND_POINTS), 1)
    places: dict[int, list[float]] = {}
    for point in line.points:
        if point.p50 is not None:
            place = min(max((point.at - charts.span.from_at) * size // length, 0), size - 1)
            places.setdefault(place, []).append(point.p50)
    return sparkline([median(places[place]) if place in places else None for place in range(size)], highest=highest)


def drawing(charts: TimeCharts) -> Markup:
    """A legend, and a chart per target."""
    figures = (_figure(charts, target) for target in charts.targets[:MAX_CHARTS])
    return joined(_legend(charts), element("div", *figures, class_="figures"), _omitted(charts))


def _legend(charts: TimeCharts) -> Markup:
    regions = (element("li", _sample(place), region) for place, region in enumerate(charts.regions[:MAX_REGIONS]))
    mark = element("svg", _mark(50.0, height=12), class_="key", height=12, aria_hidden="true")
    return element("ul", *regions, element("li", mark, "incident, by its number"), class_="legend")


def _sample(place: int) -> Markup:
    line = element("line", x1="0", x2="100%", y1=6, y2=6, class_=f"line r{place}")
    return element("svg", line, class_="key wide", height=12, aria_hidden="true")


def _omitted(charts: TimeCharts) -> Markup:
    lost = [
        f"{MAX_CHARTS} of {len(charts.targets)} targets; others with --target"
        if len(charts.targets) > MAX_CHARTS
        else "",
        f"{MAX_REGIONS} of {len(charts.regions)} regions; others with --region"
        if len(charts.regions) > MAX_REGIONS
        else "",
    ]
    notes = [element("li", f"shown: {text}") for text in lost if text]
    return element("ul", *notes, class_="notes") if notes else Markup()


def _figure(charts: TimeCharts, target: str) -> Markup:
    marks = list(of_place(charts.incidents, target=target, regions=charts.regions[:MAX_REGIONS]))
    captions = (
        element("small", f"{place} {_where(one)} {one.sentence}", class_="bad" if one.is_worse else "good")
        for place, one in marks
    )
    caption = element("figcaption", element("strong", breakable(target)), *captions)
    return element("figure", caption, _plot(charts, charts.shown(target), marks))


def _where(incident: Incident) -> str:
    return incident.region if incident.target else incident.place


def _plot(charts: TimeCharts, lines: Sequence[Series], marks: Sequence[tuple[int, Incident]]) -> Markup:
    across = Scale(low=charts.span.from_at, high=charts.span.until_at, unit=1.0)
    up = _value_scale(charts, lines)
    box = element(
        "svg",
        *(path for line in lines for path in _paths(charts, line, across, up)),
        y=_TOP,
        width="100%",
        height=_PLOT,
        viewBox=f"0 0 {_BOX} {_BOX}",
        preserveAspectRatio="none",
    )
    return element(
        "svg",
        *(part for _, one in marks for part in _incident(one, across)),
        *_numbers(marks, across),
        *_value_axis(up),
        box,
        *_time_axis(across),
        class_="plot",
        height=_TOP + _PLOT + _BOTTOM,
        aria_hidden="true",
        focusable="false",
    )


def _value_scale(charts: TimeCharts, lines: Sequence[Series]) -> Scale:
    """From zero to the highest median, unless a few are extreme."""
    values = sorted(point.p50 for line in lines for point in line.points if point.p50 is not None)
    unit = display_unit_size(charts.metric.unit)
    if not values:
        return Scale(low=0.0, high=unit, unit=unit)
    usual = values[min(len(values) * 9 // 10, len(values) - 1)]
    return Scale(low=0.0, high=_HEADROOM * min(values[-1], _EXTREME * usual) or unit, unit=unit)


def _paths(charts: TimeCharts, line: Series, across: Scale, up: Scale) -> Iterator[Markup]:
    """The line of a region; points on their own are dots."""
    place = charts.regions.index(line.region)
    pieces = ["M" + "L".join(_at(charts, point, across, up) for point in run) for run in _runs(charts, line.points)]
    if pieces:
        # A line of length zero with round ends is a dot.
        drawn = "".join(piece if "L" in piece else f"{piece}h0" for piece in pieces)
        yield element("path", d=drawn, class_=f"line r{place}")


def _at(charts: TimeCharts, point: SeriesPoint, across: Scale, up: Scale) -> str:
    """The place of a point in the box, in the middle of its bucket."""
    x = across.position(point.at + charts.bucket_us / 2) * _BOX / 100
    above = (point.p50 or 0.0) / up.high
    return f"{x:.1f} {_BOX * (1 - min(above, 2.0)):.1f}"


def _runs(charts: TimeCharts, points: Sequence[SeriesPoint]) -> Iterator[list[SeriesPoint]]:
    """The points with a median, without gaps between them."""
    distances = [later.at - earlier.at for earlier, later in pairwise(points)]
    longest = _GAP * max(median(distances) if distances else 0, charts.bucket_us)
    run: list[SeriesPoint] = []
    for point in points:
        if run and (point.p50 is None or point.at - run[-1].at > longest):
            yield run
            run = []
        if point.p50 is not None:
            run.append(point)
    if run:
        yield run


def _value_axis(up: Scale) -> Iterator[Markup]:
    for tick in up.ticks:
        y = _TOP + _PLOT * (1 - tick / up.high)
        yield element("line", x1="0", x2="100%", y1=f"{y:.1f}", y2=f"{y:.1f}", class_="tick")
        yield element("text", number(tick / up.unit), x="-5", y=f"{y + 4:.1f}", text_anchor="end", class_="mark")


def _time_axis(across: Scale) -> Iterator[Markup]:
    from_at, until_at = int(across.low), int(across.high)
    step = next((one for one in _STEPS if until_at - from_at <= _TICKS * one), _STEPS[-1])
    for at in range(-(-from_at // step) * step, until_at + 1, step):
        x = across.position(at)
        yield element("line", x1=f"{x}%", x2=f"{x}%", y1=_TOP + _PLOT, y2=_TOP + _PLOT + 4, class_="tick")
        if _EDGE <= x <= 100 - _EDGE:
            label = _time(at, step)
            yield element("text", label, x=f"{x}%", y=_TOP + _PLOT + 15, text_anchor="middle", class_="mark")


def _time(at: int, step: int) -> str:
    text = rfc3339(at)
    if step >= DAY_US:
        return text[5:10]
    return text[11:19] if step < MINUTE_US else text[11:16]


def _incident(incident: Incident, across: Scale) -> Iterator[Markup]:
    """A mark at the beginning of an incident, and the time that it lasted in colour."""
    left = across.position(incident.from_at)
    right = 100.0 if incident.until_at is None else across.position(incident.until_at)
    if right > left:
        width = round(right - left, 3)
        class_ = "lasted" if incident.is_worse else "lasted better"
        yield element("rect", x=f"{left}%", width=f"{width}%", y=_TOP, height=_PLOT, class_=class_)
    yield _mark(left, height=_TOP + _PLOT, better=not incident.is_worse)


def _numbers(marks: Sequence[tuple[int, Incident]], across: Scale) -> Iterator[Markup]:
    """The numbers above the marks; those of marks side by side are one text."""
    places = sorted((across.position(incident.from_at), place) for place, incident in marks)
    while places:
        left = places[0][0]
        near = [place for x, place in places if x - left < _EDGE]
        places = places[len(near) :]
        anchor = "end" if left > 100 - _EDGE else "start" if left < _EDGE else "middle"
        text = ", ".join(map(str, sorted(near)))
        yield element("text", text, x=f"{left}%", y=11, text_anchor=anchor, class_="mark number")


def _mark(x: float, *, height: int, better: bool = False) -> Markup:
    top = 0 if height < _TOP else _TOP - 2
    class_ = "began better" if better else "began"
    return element("line", x1=f"{x}%", x2=f"{x}%", y1=top, y2=height, class_=class_)
