"""The keys of the live view, from their bytes on, and its matrices of the collector's answers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isochrone_client.live_view.answers import _points, matrix_of, snapshot
from isochrone_client.live_view.state import BINDINGS, Question, ViewState, press
from isochrone_client.pages.matrix import METRICS, SORTS, Matrix, arranged, median
from isochrone_client.screen import KeyDecoder
from isochrone_wire.answers import Metric, Order, Quantile
from isochrone_wire.durations import MINUTE_US
from isochrone_wire.json_format import rfc3339
from testdata.client_answers import ANSWERS, BASELINE, EQUAL, FAILING, FAST, NEW, OTHER, REGION, SLOW, difference
from testdata.insights import NOW_AT

BOARD = matrix_of(ANSWERS)


def test_a_cell_combines_all_answers() -> None:
    """A cell combines all answers; without a new round for a quarter of an hour a place is stale."""
    cell = BOARD.cell(FAILING, REGION)
    assert cell.firm is not None
    assert (cell.value, cell.firm.shift, cell.firm.shift_low, cell.firm.shift_high) == (645_000, 35_000, 31_000, 40_000)
    assert (cell.is_failing, cell.is_stale, cell.bars) == (True, False, "▅▅▅▆▆▆▆▇▇×××")  # noqa: RUF001  # the sign
    assert BOARD.cell(FAILING, BASELINE).value == 610_000
    assert not BOARD.cell(FAILING, OTHER).is_failing
    assert [place for place, cell in BOARD.cells.items() if cell.is_stale] == [(EQUAL, OTHER)]
    assert BOARD.cell(EQUAL, OTHER).bars.endswith("▆        ")


def test_a_median_without_an_interval_is_marked() -> None:
    """As in a leaderboard, a median of too few samples is shown with a mark."""
    standings = tuple(
        replace(row, ttft_p50_us=replace(row.ttft_p50_us, low=None)) if row.ttft_p50_us else row
        for row in ANSWERS.leaderboard.standings
    )
    bare = replace(ANSWERS, leaderboard=replace(ANSWERS.leaderboard, standings=standings))
    for answers, is_early in ((ANSWERS, False), (bare, True)):
        cell = matrix_of(answers).cell(FAST, REGION)
        assert (cell.value is None, cell.is_early) == (False, is_early)


VALUES = json.loads((Path(__file__).parents[3] / "testdata" / "matrix_values.json").read_text())


@pytest.mark.parametrize("case", VALUES, ids=lambda case: case["law"])
def test_values_and_differences_are_of_the_same_rounds(case: dict[str, Any]) -> None:
    """As on the page, in matrix and records the values of a line are of the rounds that the differences are of."""
    standings = tuple(
        replace(
            ANSWERS.leaderboard.standings[0],
            target=FAST,
            region=region,
            ttft_p50_us=Quantile(value=quantile[0], low=quantile[1], high=quantile[2]),
        )
        for region, quantile in case["standings"].items()
    )
    differences = tuple(
        replace(
            difference(None, target=FAST, region=row["region"]),
            baseline="us",
            shift_low=row["low"],
            shift_high=row["high"],
            **{name: row[name] for name in ("baseline_median", "region_median", "shift", "n", "since_at")},
        )
        for row in case["differences"]
    )
    answers = replace(
        ANSWERS,
        baseline="us",
        regions=tuple(row["region"] for row in case["differences"]),
        targets=(FAST,),
        leaderboard=replace(ANSWERS.leaderboard, standings=standings),
        differentials=replace(ANSWERS.differentials, differentials=differences),
    )
    cells = {region: cell for (_, region), cell in matrix_of(answers).cells.items()}
    assert {region: [(cell.value or 0) / 1000, cell.is_early] for region, cell in cells.items()} == case["values"]
    records = {row["region"]: row for row in snapshot(answers, sort="name", width=200).iter_records()}
    for region, row in records.items():
        since = next((one["since_at"] for one in case["differences"] if one["region"] == region), None)
        assert row["median"]["value"] == cells[region].value
        assert row["since_at"] == (None if since is None else rfc3339(since))


@pytest.mark.parametrize(
    ("sort", "names"),
    [
        ("name", [FAST, FAILING, SLOW, EQUAL, NEW]),
        ("value", [FAST, SLOW, EQUAL, FAILING, NEW]),
        ("difference", [SLOW, FAILING, FAST, EQUAL, NEW]),
    ],
)
def test_targets_are_sorted(sort: str, names: list[str]) -> None:
    """`value` begins with the baseline's best, `difference` with the worst of any region; unknown ones are last."""
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


STATE = ViewState(question=Question())
SHOWN = Matrix(metric=Metric.TTFT, targets=("a/a", "b/b", "c/c"), baseline="us", regions=("eu", "sg"))
EMPTY = Matrix(metric=Metric.TTFT, targets=(), baseline="", regions=())


def after(*keys: str, state: ViewState = STATE, shown: Matrix = SHOWN) -> ViewState:
    for key in keys:
        state = press(state, key, shown)
    return state


@pytest.mark.parametrize(
    ("keys", "changed"),
    [
        (["s"], {"sort": "value"}),
        (["s", "s"], {"sort": "difference"}),
        (["s", "s", "s"], {}),
        (["m"], {"question": Question(metric=Metric.TTFT_COLD)}),
        (["m"] * len(METRICS), {}),
        (["b"], {"question": Question(baseline="eu")}),
        (["w"], {"question": Question(window="6h")}),
        (["W"], {"question": Question(window="15m")}),
        (["W", "W"], {"question": Question(window="7d")}),
        (["/", "g", "p", "t", "enter"], {"name_part": "gpt"}),
        (["/", "g", "x", "backspace", "escape"], {}),
        (["/", "q", "enter"], {"name_part": "q"}),
        (["/", "é", "up", "enter"], {"name_part": "é"}),
        (["/", "g", "enter", "escape"], {}),
        (["down"], {"selected": "b/b"}),
        (["j", "j", "j"], {"selected": "c/c"}),
        (["page down", "page up"], {"selected": "a/a"}),
        (["right"], {"first_region": 1}),
        (["right", "right", "right"], {"first_region": 1}),
        (["left"], {}),
        (["j", "enter"], {"selected": "b/b", "detail": "b/b"}),
        (["enter", "escape"], {}),
        (["enter", "down", "j", "up"], {"detail": "a/a", "scrolled": 1}),
        (["enter", "up"], {"detail": "a/a"}),
        (["?"], {"has_help": True}),
        (["?", "s"], {}),
        (["?", "q"], {"is_over": True}),
        (["q"], {"is_over": True}),
        (["enter", "q"], {"detail": "a/a", "is_over": True}),
        (["x", "end"], {}),
    ],
)
def test_each_key_does_what_the_help_states(keys: list[str], changed: dict[str, object]) -> None:
    """A key changes what its sentence in the help states, and nothing else."""
    assert after(*keys) == replace(STATE, **changed)  # type: ignore[arg-type]


def test_nothing_is_selected_where_there_is_nothing() -> None:
    """Without targets and regions no key is an error; a window of one's own can be chosen again."""
    for binding in BINDINGS:
        for key in binding.keys:
            assert after(key, shown=EMPTY).question.baseline == ""
    state = replace(STATE, question=Question(window="today"), windows=("today", "15m", "1h"))
    assert after("w", state=state).question.window == "15m"
    assert after("w", "W", state=state).question.window == "today"


def test_a_selected_target_that_is_gone_is_replaced_by_the_first() -> None:
    """If a filter hides the selected target, keys begin at the first one shown."""
    assert after("down", state=replace(STATE, selected="gone")).selected == "b/b"


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"sm", ["s", "m"]),
        (b"\x1b[A", ["up"]),
        (b"\x1bOB", ["down"]),
        (b"\x1b[5~j", ["page up", "j"]),
        (b"\x1b", ["escape"]),
        (b"\r", ["enter"]),
        (b"\x7f\x08", ["backspace", "backspace"]),
        ("é/".encode(), ["é", "/"]),
        # A key with a modifier, an unknown one, one that has no name, and a byte that is no text.
        (b"\x1b[1;5Cx", ["x"]),
        (b"\x1b[200~", []),
        (b"\x01", []),
        (b"\xffq", ["q"]),
        (b"\x1b[", []),
    ],
)
def test_keys_have_names(data: bytes, keys: list[str]) -> None:
    """Characters are themselves, and sequences are keys with names; unknown ones are ignored."""
    assert list(KeyDecoder().keys(data)) == keys


def test_a_character_may_be_divided() -> None:
    """A character that arrives in two reads is one key."""
    decoder, data = KeyDecoder(), "é".encode()
    assert [list(decoder.keys(data[:1])), list(decoder.keys(data[1:]))] == [[], ["é"]]
