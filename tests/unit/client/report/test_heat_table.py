"""The heat table: one row per target, one column per region, colours by the decided difference."""

from dataclasses import replace

import pytest

from fixtures.fake_collector import DIFFERENTIALS, NOW_AT, STANDINGS
from isochrone_client.report.heat_table import MAX_COLUMNS, HeatTable, drawing, heat_table, page
from isochrone_wire.answers import Decision, Differential, Metric
from isochrone_wire.model import MINUTE_US


def table(*rows: Differential, metric: Metric = Metric.TTFT) -> HeatTable:
    """The table of the standings and these differentials."""
    return heat_table(STANDINGS, rows, metric=metric, baseline="us-east-2", now_at=NOW_AT)


def text(found: HeatTable) -> list[list[str]]:
    """The table as text."""
    (shown,) = page(found).tables()
    return [list(cells) for cells in shown.cells]


def test_a_row_has_every_region() -> None:
    """The baseline comes first, the fastest target on top; cells have medians and decided differences."""
    found = table(*DIFFERENTIALS)
    assert found.regions == ("us-east-2", "ap-southeast-1")
    assert text(found) == [
        ["deepseek/deepseek-v4-flash", "180", "150 (-30)", "99.4", "60", "0.25"],
        ["openai/gpt-5-mini", "320", "513 (+191)", "100.0", "145", "–"],  # noqa: RUF001  # an en dash is unknown
        ["moonshot/kimi-k2.5", "600", "– (undecided)", "–", "–", "–"],  # noqa: RUF001  # as above
    ]


def test_without_pairs_it_has_the_medians() -> None:
    """One region alone is a table of medians."""
    assert [row[:2] for row in text(table())] == [["deepseek/deepseek-v4-flash", "180"], ["openai/gpt-5-mini", "320"]]
    assert 'class="tile"' in drawing(table())


def test_a_metric_without_standings_has_the_medians_of_the_pairs() -> None:
    """Leaderboards have no round-trip times; differentials have."""
    found = table(*(replace(row, metric=Metric.RTT) for row in DIFFERENTIALS), metric=Metric.RTT)
    assert [row[:3] for row in text(found)][:2] == [
        ["deepseek/deepseek-v4-flash", "180", "150 (-30)"],
        ["openai/gpt-5-mini", "320", "513 (+191)"],
    ]


@pytest.mark.parametrize(
    ("decision", "percent", "name"),
    [
        (Decision.SLOWER, 6.0, "worse1"),
        (Decision.SLOWER, 30.0, "worse2"),
        (Decision.SLOWER, 60.0, "worse3"),
        (Decision.FASTER, -6.0, "better1"),
        (Decision.FASTER, -30.0, "better2"),
        (Decision.FASTER, -60.0, "better3"),
        (Decision.UNDECIDED, 60.0, "unsure"),
        (Decision.MIXED, 60.0, "unsure"),
        (Decision.EQUIVALENT, 1.0, ""),
    ],
)
def test_the_colour_is_that_of_the_decision(decision: Decision, percent: float, name: str) -> None:
    """Only a decided difference has a colour, the stronger the larger it is."""
    row = replace(DIFFERENTIALS[0], decision=decision, shift_percent=percent)
    assert f'class="{f"tile {name}".strip()}" ' in drawing(table(row)).replace('">', '" ')


def test_a_row_with_a_step_is_shown() -> None:
    """A difference that holds since a change within the window has that instant, and the median since then."""
    row = replace(DIFFERENTIALS[0], since_at=NOW_AT - 7 * MINUTE_US)
    assert text(table(row))[1][2] == "513 (+191 since 07:53:00)"


def test_many_regions_are_tiles() -> None:
    """With more regions than columns fit on a screen, each target has a list of tiles."""
    few = [replace(DIFFERENTIALS[0], region=f"r{n}") for n in range(MAX_COLUMNS - 1)]
    many = [replace(DIFFERENTIALS[0], region=f"r{n}") for n in range(MAX_COLUMNS)]
    assert 'class="heat"' in drawing(table(*few))
    assert 'class="heat tiles"' in drawing(table(*many))
