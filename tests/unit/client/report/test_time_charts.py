"""Charts over time: lines to scale, gaps, marks of incidents, and the same values as text."""

import re
from dataclasses import replace

import pytest

from fixtures.fake_collector import WINDOW
from isochrone_client.report.html_elements import Markup
from isochrone_client.report.incidents import Incident
from isochrone_client.report.time_charts import MAX_CHARTS, MAX_REGIONS, TimeCharts, drawing, page, time_charts
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, MINUTE_US
from isochrone_wire.queries.series import Series, SeriesPoint
from testdata.insights import SERIES

REGIONS = ("us-east-2", "ap-southeast-1")


def charts(*lines: Series, incidents: tuple[Incident, ...] = (), span: Window = WINDOW) -> TimeCharts:
    """The charts of these lines."""
    answer = replace(SERIES, series=lines or SERIES.series)
    return time_charts(answer, regions=REGIONS, span=span, incidents=incidents)


def paths(markup: Markup) -> list[list[list[tuple[float, float]]]]:
    """The points of each line, in pieces."""
    return [
        [
            [(float(x), float(y)) for x, y in re.findall(r"([-\d.]+) ([-\d.]+)", piece)]
            for piece in path.split("M")
            if piece
        ]
        for path in re.findall(r'<path d="([^"]+)"', markup)
    ]


def line(*values: float | None, region: str = "us-east-2") -> Series:
    """A line with a point per bucket."""
    points = (
        SeriesPoint(at=WINDOW.from_at + place * SERIES.bucket_us, n=1, p50=value) for place, value in enumerate(values)
    )
    return Series(target="p/m", region=region, points=tuple(points))


def test_a_line_is_drawn_to_scale() -> None:
    """Heights are proportional to the values from zero, and points are in the middle of their buckets."""
    ((points,),) = paths(drawing(charts(line(100_000.0, 200_000.0, 400_000.0))))
    heights = [1000 - y for _, y in points]
    assert heights[1] / heights[0] == pytest.approx(2.0, rel=1e-2)
    assert heights[2] / heights[0] == pytest.approx(4.0, rel=1e-2)
    assert [x for x, _ in points] == pytest.approx([1000 * (place + 0.5) / 48 for place in range(3)], abs=0.1)


def test_a_gap_interrupts_a_line() -> None:
    """Where a bucket has no value or buckets are missing there is no line, and a point on its own is a dot."""
    (pieces,) = paths(drawing(charts(line(1e5, 1e5, None, 1e5))))
    assert [len(piece) for piece in pieces] == [2, 1]
    whole = line(*[1e5] * 9)
    (pieces,) = paths(drawing(charts(replace(whole, points=whole.points[:4] + whole.points[8:]))))
    assert [len(piece) for piece in pieces] == [4, 1]
    assert "h0" in drawing(charts(line(None, 1e5)))


def test_an_extreme_bucket_does_not_flatten_the_rest() -> None:
    """A single value far beyond the others leaves the chart; the others keep their height."""
    ((points,),) = paths(drawing(charts(line(*[100_000.0] * 20, 60_000_000.0))))
    assert 1000 - points[0][1] > 250
    assert points[-1][1] < 0


def test_incidents_are_marked() -> None:
    """The mark of an incident has its number and place; other targets are not marked, absences mark every chart."""
    at = WINDOW.from_at + DAY_US // 4
    ours = Incident(target="openai/gpt-5-mini", regions=("us-east-2",), from_at=at, sentence="is slower")
    all_of_them = Incident(
        vantage="ohio-1", regions=("us-east-2",), from_at=at, until_at=at + 60 * MINUTE_US, sentence="x"
    )
    drawn = drawing(charts(incidents=(ours, all_of_them)))
    slow = drawn[drawn.index("gpt-5-mini") : drawn.index("deepseek")]
    assert 'x1="25.0%"' in slow
    assert "1 us-east-2 is slower" in slow
    assert drawn.count("1 us-east-2 is slower") == 1
    assert drawn.count("2 ohio-1 in us-east-2 x") == 2
    assert 'class="mark number">1, 2</text>' in slow
    later = replace(all_of_them, from_at=at + 6 * 60 * MINUTE_US)
    apart = drawing(charts(incidents=(ours, later)))
    assert 'class="mark number">1</text>' in apart
    assert 'class="mark number">2</text>' in apart
    assert charts(incidents=(ours,)).targets[0] == "openai/gpt-5-mini"


def test_the_same_values_as_text() -> None:
    """The text has lowest, highest and newest medians, and a trend with the proportions of the target."""
    (shown,) = page(charts()).tables()
    rows = [list(cells) for cells in shown.cells]
    assert rows[0] == ["deepseek/deepseek-v4-flash", "us-east-2", "180", "183", "181", "█" * 24]
    assert rows[1][1:5] == ["ap-southeast-1", "150", "153", "152"]
    assert rows[1][5] == "▇" * 10 + "  " + "▇" * 12
    assert rows[2][5] == "▆" * 22 + "█" * 2


def test_many_targets_and_regions_are_limited() -> None:
    """More charts or lines than a reader can tell apart are left out, and the page says so."""
    lines = [
        replace(line(1e5, region=f"region-{region:02}"), target=f"p/{target:02}")
        for region in range(MAX_REGIONS + 2)
        for target in range(MAX_CHARTS + 1)
    ]
    drawn = drawing(charts(*lines))
    assert drawn.count("<figure>") == MAX_CHARTS
    assert f"shown: {MAX_CHARTS} of {MAX_CHARTS + 1} targets" in drawn
    assert f"shown: {MAX_REGIONS} of {MAX_REGIONS + 2} regions" in drawn
    assert len(paths(drawn)) == MAX_CHARTS * MAX_REGIONS


@pytest.mark.parametrize(
    ("span_us", "label"),
    [(MINUTE_US, ">08:00:15<"), (30 * MINUTE_US, ">08:10<"), (DAY_US, ">12:00<"), (9 * DAY_US, ">11-28<")],
)
def test_the_axis_fits_the_span(span_us: int, label: str) -> None:
    """Labels are clock times for hours, seconds for minutes, and dates for days."""
    span = Window(from_at=WINDOW.from_at, until_at=WINDOW.from_at + span_us)
    answer = replace(SERIES, bucket_us=1, series=(line(1e5),))
    assert label in drawing(time_charts(answer, regions=REGIONS, span=span, incidents=()))


def test_an_empty_series_is_drawn() -> None:
    """A target without a single value has an empty chart, and no trend."""
    shown = charts(line(None, None))
    assert paths(drawing(shown)) == []
    (table,) = page(shown).tables()
    assert list(table.cells[0])[2:] == ["–"] * 4  # noqa: RUF001  # an en dash is unknown
