"""The cells of the demo's screen, from the collector's answers."""

from dataclasses import replace

import pytest

from isochrone_client.demo.board import by_place, read_board
from isochrone_client.screen.board import Board
from isochrone_wire.answers import Decision, Differential, Metric, Quantile
from isochrone_wire.insights import Standing

TARGETS = ("acme/large", "acme/small")
BASELINE, REGION, OTHER = "us-east-2", "ap-southeast-1", "eu-central-1"


def differential(
    target: str, shift_ms: float | None, *, region: str = REGION, error_ms: float = 2, n: int = 10
) -> Differential:
    """A difference with its interval; without a shift, one that is not known yet."""
    shift = None if shift_ms is None else 1000 * shift_ms
    return Differential(
        target=target,
        provider="acme",
        model=target.partition("/")[2],
        metric=Metric.TTFT,
        unit="us",
        baseline=BASELINE,
        region=region,
        shift=shift,
        shift_low=None if shift is None else shift - 1000 * error_ms,
        shift_high=None if shift is None else shift + 1000 * error_ms,
        n=0 if shift is None else n,
        baseline_n=n + 1,
        region_n=n,
        decision=Decision.UNDECIDED if shift is None else Decision.SLOWER,
        margin=20_000.0,
    )


def standing(target: str, region: str, ttft_ms: float) -> Standing:
    """A row of the leaderboard."""
    return Standing(
        region=region,
        rank=1,
        target=target,
        provider="acme",
        model=target.partition("/")[2],
        n=3,
        failed=0,
        ttft_p50_us=Quantile(value=1000 * ttft_ms),
    )


def board(*rows: Differential, usual: tuple[Differential, ...] = (), standings: tuple[Standing, ...] = ()) -> Board:
    """A board of two targets and three regions."""
    return read_board(
        standings, rows, baseline=BASELINE, regions=(REGION, OTHER), targets=TARGETS, usual=by_place(usual)
    )


def test_every_place_has_a_cell() -> None:
    """Before the first sample each target has an empty cell in each region."""
    empty = board()
    assert len(empty.cells) == 6
    assert not empty.has_every_value
    assert not empty.is_firm
    assert not empty.changed


def test_a_cell_combines_both_answers() -> None:
    """A cell has the median of the leaderboard and the difference of the same target and region."""
    cell = board(differential(TARGETS[0], -30), standings=(standing(TARGETS[0], REGION, 170),)).cell(TARGETS[0], REGION)
    assert (cell.value, cell.shift, cell.low, cell.high) == (170_000, -30_000, -32_000, -28_000)
    assert cell.is_firm


def test_a_cell_warms_up_with_the_rounds_of_both_regions() -> None:
    """As long as there is no difference, the rounds are those of the region with fewer of them."""
    cell = board(differential(TARGETS[0], None, n=4)).cell(TARGETS[0], REGION)
    assert (cell.rounds, cell.is_firm) == (4, False)


@pytest.mark.parametrize(
    ("usual_ms", "now_ms", "error_ms", "change_ms"),
    [
        (35, 435, 5, 400),
        (435, 35, 5, -400),
        (35, 65, 4, 30),
        (35, 60, 4, None),  # 17 ms apart: less than the smallest difference that matters
        (35, 435, 400, None),  # the intervals overlap
        (None, 435, 5, None),
        (35, None, 5, None),
    ],
)
def test_a_change_is_certain_and_matters(
    usual_ms: float | None, now_ms: float | None, error_ms: float, change_ms: float | None
) -> None:
    """A place has changed if the intervals of now and of the start are apart by more than the smallest difference that
    matters; no other place is marked.
    """
    usual = [differential(target, 35, region=region) for target in TARGETS for region in (REGION, OTHER)]
    usual[0] = differential(TARGETS[0], usual_ms)
    now = [replace(row) for row in usual]
    now[0] = differential(TARGETS[0], now_ms, error_ms=error_ms)
    found = board(*now, usual=tuple(usual))
    assert found.changed == (() if change_ms is None else ((TARGETS[0], REGION),))
    if change_ms is not None:
        assert found.cell(TARGETS[0], REGION).changed == 1000 * change_ms


def test_a_network_that_adds_nothing_is_not_shown() -> None:
    """The network counts from a millisecond on."""
    row = differential(TARGETS[0], 35)
    assert not board(replace(row, network_shift=900.0)).has_network
    assert board(replace(row, network_shift=-1_100.0)).has_network
