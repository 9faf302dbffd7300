"""Matrices of the live view, made from the collector's answers."""

from dataclasses import replace

import pytest

from isochrone_client.live_view.answers import _points, matrix_of
from isochrone_client.live_view.state import Question
from isochrone_client.pages.matrix import METRICS, SORTS, arranged, median
from isochrone_wire.answers import Metric, Order
from isochrone_wire.durations import MINUTE_US
from testdata.client_answers import ANSWERS, BASELINE, EQUAL, FAILING, FAST, NEW, OTHER, REGION, SLOW
from testdata.insights import NOW_AT

BOARD = matrix_of(ANSWERS)


def test_a_cell_combines_all_answers() -> None:
    """A cell has the median of the leaderboard, the difference, the bars of the series and the incident."""
    cell = BOARD.cell(FAILING, REGION)
    assert cell.firm is not None
    assert (cell.value, cell.firm.shift, cell.firm.shift_low, cell.firm.shift_high) == (645_000, 35_000, 31_000, 40_000)
    assert (cell.is_failing, cell.is_stale, cell.bars) == (True, False, "▅▅▅▆▆▆▆▇▇×××")  # noqa: RUF001  # the sign
    assert BOARD.cell(FAILING, BASELINE).value == 610_000
    assert not BOARD.cell(FAILING, OTHER).is_failing


def test_a_place_is_stale_if_its_newest_round_is_old() -> None:
    """A place without a new round for a quarter of an hour is stale, and its bars end where its rounds do."""
    assert [place for place, cell in BOARD.cells.items() if cell.is_stale] == [(EQUAL, OTHER)]
    assert BOARD.cell(EQUAL, OTHER).bars.endswith("▆        ")


def test_a_median_without_an_interval_is_not_shown() -> None:
    """As in a leaderboard, a median of too few samples is unknown."""
    standings = tuple(
        replace(row, ttft_p50_us=replace(row.ttft_p50_us, low=None)) if row.ttft_p50_us else row
        for row in ANSWERS.leaderboard.standings
    )
    bare = replace(ANSWERS, leaderboard=replace(ANSWERS.leaderboard, standings=standings))
    assert matrix_of(bare).cell(FAST, REGION).value is None


@pytest.mark.parametrize(
    ("sort", "names"),
    [
        ("name", [FAST, FAILING, SLOW, EQUAL, NEW]),
        ("value", [FAST, SLOW, EQUAL, FAILING, NEW]),
        ("difference", [SLOW, FAILING, FAST, EQUAL, NEW]),
    ],
)
def test_targets_are_sorted(sort: str, names: list[str]) -> None:
    """`value` begins with the best target of the baseline, `difference` with the worst in any region; unknown ones end
    the list.
    """
    assert sort in SORTS
    assert list(arranged(BOARD, sort=sort).targets) == names


def test_a_rate_is_better_if_it_is_higher() -> None:
    """By speed, the best target is the one with the highest value, and the worst one the most negative difference."""
    by_speed = replace(BOARD, metric=Metric.TOKENS_PER_SECOND)
    by_value = arranged(by_speed, sort="value").targets
    assert by_value[0] == FAILING
    by_difference = arranged(by_speed, sort="difference").targets
    assert by_difference[0] == FAST


@pytest.mark.parametrize("metric", METRICS)
def test_each_metric_has_a_median_and_an_order(metric: Metric) -> None:
    """Each metric that can be shown is in a leaderboard, which can be ordered by it."""
    assert Question(metric=metric).order in Order
    standing = ANSWERS.leaderboard.standings[0]
    assert (median(standing, metric) is None) == (metric not in (Metric.TTFT, Metric.TOKENS_PER_SECOND))


def test_buckets_without_a_probe_are_gaps() -> None:
    """The buckets of the window are returned, also those in which nothing was probed."""
    series = ANSWERS.histories[EQUAL, OTHER]
    points = _points(series, ANSWERS.series)
    assert [point.at if point else None for point in points[2:5]] == [
        NOW_AT - 50 * MINUTE_US,
        NOW_AT - 45 * MINUTE_US,
        None,
    ]
    assert len(points) == 12
