"""Reports: text is escaped, charts are drawn to scale, and missing sections have a reason."""

# ruff: noqa: D102  # HTMLParser names the methods, and says what they hear

from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.fake_collector import COVERAGE, DIFFERENTIALS, NOW_AT, WINDOW
from isochrone_client.pages import differentials
from isochrone_client.report import charts, stylesheet, time_charts
from isochrone_client.report.heat_table import drawing as heat_drawing
from isochrone_client.report.heat_table import heat_table
from isochrone_client.report.heat_table import page as heat_page
from isochrone_client.report.html import render_html
from isochrone_client.report.html_elements import Markup, element, joined
from isochrone_client.report.incidents import Incident
from isochrone_client.report.markdown import render_markdown
from isochrone_client.report.sections import Report, Section, facts, span_text
from isochrone_wire.answers import Decision, Differential, DifferentialList, Metric, Window
from isochrone_wire.fleet import CoverageList
from isochrone_wire.model import MINUTE_US
from testdata import insights

HOSTILE = "</td></table><script>alert(1)</script>\"' onload=x &amp; \x1b[31m"
ANSWER = DifferentialList(window=WINDOW, differentials=DIFFERENTIALS)


class Reading(HTMLParser):
    """An HTML text as a browser parses it: elements with attributes, text, and the nesting depth at the end."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def report(rows: tuple[Differential, ...] = DIFFERENTIALS, *, hostile: str = "") -> Report:
    """A report of these differentials, with a hostile text in every place for text."""
    answer = DifferentialList(window=WINDOW, differentials=rows)
    return Report(
        window=WINDOW,
        span=WINDOW,
        generated_at=NOW_AT,
        collector=f"127.0.0.1:4600{hostile}",
        verdict=(f"A sentence.{hostile}",),
        facts=(("baseline", f"us-east-2{hostile}"),),
        sections=(
            heat_section(rows),
            time_section(rows),
            Section(
                key="differentials",
                title="Differentials",
                lead="Each region.",
                pages=(differentials.page(answer, rows, metric=Metric.TTFT, now_at=NOW_AT),),
                chart=charts.intervals,
            ),
            Section(key="origins", title="Origins", pages=(differentials.phases_page(answer),), chart=charts.bars),
            Section(key="tiers", title="Price tiers", missing=f"Left out: it failed{hostile}"),
        ),
    )


def heat_section(rows: tuple[Differential, ...]) -> Section:
    """The heat table of these differentials."""
    table = heat_table((), rows, metric=Metric.TTFT, baseline="us-east-2", now_at=NOW_AT)
    return Section(key="regions", title="Targets by region", pages=(heat_page(table),), drawing=heat_drawing(table))


def time_section(rows: tuple[Differential, ...]) -> Section:
    """A chart per target with a line from its region and an incident."""
    lines = tuple(replace(insights.SERIES.series[0], target=row.target, region=row.region) for row in rows)
    found = tuple(
        Incident(target=row.target, regions=(row.region,), from_at=WINDOW.from_at, sentence=f"was {row.reason}")
        for row in rows
    )
    drawn = time_charts.time_charts(
        replace(insights.SERIES, series=lines), regions=("us-east-2",), span=WINDOW, incidents=found
    )
    return Section(key="time", title="Over time", pages=(time_charts.page(drawn),), drawing=time_charts.drawing(drawn))


def shape(reading: Reading) -> list[tuple[str, set[str]]]:
    """The elements with the names of their attributes, without `wbr`."""
    return [(name, set(attributes)) for name, attributes in reading.elements if name != "wbr"]


def test_regions_stay_together() -> None:
    """Answers are ordered by target; the contribution of the phases is shown by region."""
    rows = tuple(replace(DIFFERENTIALS[0], target=target, region=region) for target in "xy" for region in ("a", "b"))
    page = differentials.phases_page(DifferentialList(window=WINDOW, differentials=rows))
    assert [heading for heading, _ in page.groups()] == ["a against us-east-2", "b against us-east-2"]


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_text_becomes_an_element(text: str, attribute: str) -> None:
    """A browser reads any text or attribute back unchanged and finds one element only."""
    reading = Reading(element("td", text, title=attribute))
    ((name, attributes),) = reading.elements
    assert name == "td"
    assert "".join(reading.texts) == "".join(mark if mark.isprintable() else " " for mark in text)
    assert list(attributes) == ["title"]


def test_markup_is_escaped_once() -> None:
    """Markup is not escaped again, however often it is nested."""
    assert joined(element("p", "a & b"), "<") == "<p>a &amp; b</p>&lt;"
    assert element("i", Markup("<b></b>"), class_=None) == "<i><b></b></i>"


def test_hostile_names_stay_text() -> None:
    """A target, region, reason or error with HTML adds no element and no attribute."""
    rows = tuple(
        replace(row, target=HOSTILE, region=HOSTILE, reason=HOSTILE, decision=Decision.UNDECIDED)
        for row in DIFFERENTIALS
    )
    harmless = tuple(
        replace(row, target="x", region="y", reason="z", decision=Decision.UNDECIDED) for row in DIFFERENTIALS
    )
    hostile, plain = Reading(render_html(report(rows, hostile=HOSTILE))), Reading(render_html(report(harmless)))
    assert shape(hostile) == shape(plain)
    assert hostile.open == []
    assert "\x1b" not in render_html(report(rows, hostile=HOSTILE))
    assert "<script" not in render_markdown(report(rows, hostile=HOSTILE)).replace("\\<", "")


def test_the_page_needs_nothing_else() -> None:
    """No element can fetch anything, the policy forbids it too, and the policy has the hash of the style sheet."""
    reading = Reading(render_html(report()))
    links = [
        value for _, attributes in reading.elements for name, value in attributes.items() if name in ("href", "src")
    ]
    assert all(link is not None and link.startswith(("#", "data:,")) for link in links)
    assert {name for name, _ in reading.elements} & {"script", "img", "iframe", "object", "form"} == set()
    assert not any(name == "style" for _, attributes in reading.elements for name in attributes)
    policy = next(attributes["content"] for name, attributes in reading.elements if "http-equiv" in attributes)
    assert policy == stylesheet.POLICY
    assert "default-src 'none'" in stylesheet.POLICY
    assert stylesheet.SHEET in reading.texts


def test_the_title_is_the_span_of_the_data() -> None:
    """The title names the rounds that have samples, not the requested window; without any it says so."""
    short = Window(from_at=NOW_AT - 7 * MINUTE_US, until_at=NOW_AT)
    assert replace(report(), span=short).title == "LLM latency by region, 2026-11-21 07:53 to 08:00 UTC"
    assert span_text(WINDOW) == "2026-11-20 08:00 to 2026-11-21 08:00 UTC"
    assert replace(report(), span=None).title == (
        "LLM latency by region: no samples between 2026-11-20 08:00 and 2026-11-21 08:00 UTC"
    )


def test_a_section_without_an_answer_says_why() -> None:
    """A failed section is a sentence in both formats; nothing is left out silently."""
    for text in (render_html(report()), render_markdown(report())):
        assert "Left out: it failed" in text
        assert "Price tiers" in text
        assert "Method and confidence" in text


def test_markdown_has_the_same_tables() -> None:
    """The Markdown has the same tables, under the same headings."""
    text = render_markdown(report())
    assert text.startswith("# LLM latency by region, 2026-11-20 08:00 to 2026-11-21 08:00 UTC\n")
    assert "## Differentials" in text
    assert "| openai/gpt-5-mini | 320 → 513 | +191 |" in text
    assert "| openai/gpt-5-mini | 0 | +177 | +178 | +178 | +13 | +547 | +4 | +9 | 1402 |" in text


def places(markup: str, name: str) -> list[float]:
    """The positions of the elements of a class, in per cent of the width."""
    found = [attributes for _, attributes in Reading(markup).elements if name in str(attributes.get("class")).split()]
    return [float(str(part.get("cx") or part.get("x1") or part.get("x")).rstrip("%")) for part in found]


def test_the_interval_is_drawn_where_it_is() -> None:
    """Zero, dot and both ends of the whisker have the order and the proportions of their values."""
    row = replace(DIFFERENTIALS[0], shift=100.0, shift_low=50.0, shift_high=200.0, margin=20.0)
    column = charts.intervals([row])
    assert column is not None
    cell = column.cell(row)
    (zero,), (dot,), (low, left, high) = places(cell, "zero"), places(cell, "dot"), places(cell, "whisker")
    assert (low, left) == (left, low)
    assert (dot - zero) / (low - zero) == pytest.approx(2.0, rel=1e-3)
    assert (high - zero) / (low - zero) == pytest.approx(4.0, rel=1e-3)


def test_bars_add_up() -> None:
    """Increases are stacked right of zero and decreases left of it, each as wide as its shift."""
    parts = [replace(DIFFERENTIALS[0].parts[place], shift=shift) for place, shift in ((0, 10.0), (1, -30.0), (4, 20.0))]
    row = replace(DIFFERENTIALS[0], parts=tuple(parts))
    column = charts.bars([row])
    assert column is not None
    rects = [a for _, a in Reading(column.cell(row)).elements if str(a.get("class")).startswith("part")]
    dns, tcp, server = ([float(str(a[side]).rstrip("%")) for side in ("x", "width")] for a in rects)
    (zero,) = places(column.cell(row), "zero")
    assert dns[0] == zero == pytest.approx(tcp[0] + tcp[1], abs=0.01)
    assert server[0] == pytest.approx(dns[0] + dns[1], abs=0.01)
    assert tcp[1] == pytest.approx(dns[1] + server[1], abs=0.01)


@given(
    st.lists(st.tuples(*[st.floats(min_value=-1e9, max_value=1e9)] * 3), min_size=1, max_size=5),
    st.one_of(st.none(), st.floats(min_value=0, max_value=1e9)),
)
def test_every_position_is_on_the_chart(values: list[tuple[float, ...]], margin: float | None) -> None:
    """For any numbers, every position is between 0 and 100 per cent, and zero is on the scale."""
    rows = [
        replace(DIFFERENTIALS[0], shift=shift, shift_low=low, shift_high=high, margin=margin, parts=())
        for low, shift, high in map(sorted, values)
    ]
    column = charts.intervals(rows)
    assert column is not None
    for row in rows:
        found = [
            place for name in ("zero", "dot", "whisker", "tick", "margin") for place in places(column.cell(row), name)
        ]
        assert all(0 <= place <= 100 for place in found)


@pytest.mark.parametrize("chart", [charts.intervals, charts.bars])
def test_nothing_known_is_not_drawn(chart: object) -> None:
    """Without intervals there is no chart of intervals, and without phases there are no bars."""
    assert callable(chart)
    assert chart([DIFFERENTIALS[2]]) is None
    assert chart([]) is None


def test_the_head_of_a_report() -> None:
    """The head has baseline, metric, plan and the share of the planned rounds that was recorded."""
    told = dict(
        facts(
            window=WINDOW,
            baseline="us-east-2",
            metric=Metric.TTFT,
            plan_version=3,
            targets=2,
            coverage=CoverageList(window=WINDOW, coverage=COVERAGE),
        )
    )
    assert told["plan"] == "version 3, 2 targets"
    assert told["recorded"] == "1439 of 2880 planned rounds (49.9 %) by 1 vantage"
