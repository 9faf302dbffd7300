"""The statistics on generated data of known truth: coverage of intervals, power, and false decisions.

Rounds resemble their neighbours as the values of a first-order autoregression do, each of which keeps φ of the one
before. Seeds are fixed, so that the figures are always the same ones; docs/statistics.md has them.
"""

import numpy as np
import pytest
import scipy

from isochrone_collector.analysis.differential.differential import ComparisonContext, Subject, differentials_of
from isochrone_collector.analysis.differential.panel import Panel
from isochrone_collector.analysis.stats.arrays import Ragged, Reals
from isochrone_collector.analysis.stats.binomial import interval_ranks
from isochrone_collector.analysis.stats.shifts import paired_shifts, unpaired_shift
from isochrone_wire.answers import Decision, Metric

SEED = 20261121
MS = 1_000.0
WARM_UP = 60


def chains(draws: int, n: int, *, correlation: float, seed: int = SEED, heavy: bool = False) -> Reals:
    """So many series of n values around 0, each keeping that share of the one before; `heavy` has Laplace's tails."""
    chance = np.random.default_rng(seed + n)
    shape = (draws, WARM_UP + n)
    values = chance.laplace(0.0, 1.0, shape) if heavy else chance.standard_normal(shape)
    for place in range(1, WARM_UP + n):
        values[:, place] += correlation * values[:, place - 1]
    return values[:, WARM_UP:]


def paired_coverage(values: Reals) -> float:
    """Return the share of paired intervals that contain the true shift, 0."""
    draws, n = values.shape
    found = paired_shifts(Ragged(values=values.ravel(), offsets=np.arange(draws + 1) * n))
    return float(((found.low <= 0) & (found.high >= 0)).mean())


@pytest.mark.parametrize("heavy", [False, True], ids=["normal", "laplace"])
@pytest.mark.parametrize("n", [8, 24, 96, 288])
def test_intervals_of_independent_rounds_cover_what_they_promise(n: int, *, heavy: bool) -> None:
    """A paired interval of 95 % holds the truth in 94 to 98 % of the draws, for few rounds and for many."""
    assert 0.94 <= paired_coverage(chains(2_000, n, correlation=0.0, heavy=heavy)) <= 0.98


@pytest.mark.parametrize(
    ("n", "correlation", "least"),
    [(24, 0.5, 0.9), (60, 0.8, 0.9), (96, 0.5, 0.93), (96, 0.8, 0.91), (288, 0.5, 0.94), (288, 0.8, 0.94)],
)
def test_intervals_of_rounds_that_resemble_each_other_stay_near_it(n: int, correlation: float, least: float) -> None:
    """Neighbours that correlate by 0.8 cost a nominal 95 % interval at most five points."""
    assert paired_coverage(chains(2_000, n, correlation=correlation)) >= least


@pytest.mark.parametrize(
    ("m", "n", "correlation", "least"),
    [(6, 6, 0.0, 0.93), (30, 200, 0.0, 0.93), (96, 96, 0.0, 0.93), (96, 96, 0.5, 0.9), (96, 96, 0.8, 0.87)],
)
def test_unpaired_intervals_cover_what_they_promise(m: int, n: int, correlation: float, least: float) -> None:
    """The intervals of two samples whose rounds do not meet hold the true shift, likeness in each side or none."""
    sides = zip(
        chains(500, m, correlation=correlation), 3.0 + chains(500, n, correlation=correlation, seed=7), strict=True
    )
    found = [unpaired_shift(x, y) for x, y in sides]
    held = [
        s.shift.low <= 3.0 <= s.shift.high for s in found if s and s.shift.low is not None and s.shift.high is not None
    ]
    assert len(held) == 500
    assert np.mean(held) >= least


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95])
def test_intervals_of_quantiles_cover_what_they_promise(share: float) -> None:
    """The interval of a quantile holds the true one as often as its two ranks say: in 95 % of the draws, or more."""
    n = 100
    ranks = interval_ranks(n, share)
    assert ranks is not None
    draws = np.sort(np.random.default_rng(SEED).lognormal(0.0, 1.0, (4_000, n)), axis=1)
    truth = np.quantile(np.random.default_rng(1).lognormal(0.0, 1.0, 2_000_000), share)
    held = (draws[:, ranks[0] - 1] <= truth) & (truth <= draws[:, ranks[1] - 1])
    promised = scipy.stats.binom.cdf(ranks[1] - 1, n, share) - scipy.stats.binom.cdf(ranks[0] - 1, n, share)
    assert promised >= 0.95
    assert held.mean() == pytest.approx(promised, abs=0.01)


def fleet(pairs: int, n: int, *, shift_us: float, correlation: float) -> tuple[Decision, ...]:
    """The decisions about so many targets whose region is by that much slower than the baseline, which takes 300 ms.

    Both sides share the provider's load, and each adds 30 ms of its own.
    """
    load = 300 * MS + 100 * MS * np.abs(chains(pairs, n, correlation=0.9, seed=1))
    sides = [load + 30 * MS * chains(pairs, n, correlation=correlation, seed=seed) for seed in (2, 3)]
    values = np.stack([sides[0], sides[1] + shift_us], axis=1)
    cells = pairs * 2 * n
    panel = Panel(
        target_ids=np.arange(pairs),
        regions=("us", "sg"),
        group=np.repeat(np.arange(pairs * 2), n),
        round_at=np.tile(np.arange(n), pairs * 2),
        value=values.ravel(),
        censored=np.zeros(cells, dtype=bool),
        network=np.full(cells, np.nan),
    )
    subjects = [Subject(target_id=i, target=str(i), provider="p", model="m", region="sg") for i in range(pairs)]
    found = differentials_of(panel, subjects, metric=Metric.TTFT, baseline="us", context=ComparisonContext())
    return tuple(line.decision for line in found)


@pytest.mark.parametrize(("n", "correlation"), [(12, 0.0), (96, 0.0), (96, 0.5), (96, 0.8)])
def test_no_difference_is_hardly_ever_called_one(n: int, correlation: float) -> None:
    """Of 600 pairs that are alike at most one in a hundred is called faster or slower."""
    decisions = fleet(600, n, shift_us=0.0, correlation=correlation)
    called = sum(decision in {Decision.FASTER, Decision.SLOWER} for decision in decisions)
    assert called <= 6


@pytest.mark.parametrize("n", [6, 12, 23])
def test_a_short_series_of_unknown_memory_decides_nothing(n: int) -> None:
    """Whatever the difference is, rounds that may resemble each other are not decided on before there are 24."""
    for shift_us in (0.0, 100 * MS):
        assert set(fleet(60, n, shift_us=shift_us, correlation=0.8)) == {Decision.UNDECIDED}


def test_what_is_alike_is_found_alike() -> None:
    """With a day of rounds, equal pairs are equivalent rather than undecided."""
    decisions = fleet(300, 288, shift_us=0.0, correlation=0.0)
    assert decisions.count(Decision.EQUIVALENT) >= 0.95 * len(decisions)


@pytest.mark.parametrize(("n", "shift_us", "power"), [(24, 60 * MS, 0.9), (96, 40 * MS, 0.9)])
def test_what_is_different_is_found(n: int, shift_us: float, power: float) -> None:
    """A relevant difference is decided: of 60 ms after two dozen rounds, of 40 ms after a day of quarter hours."""
    decisions = fleet(300, n, shift_us=shift_us, correlation=0.0)
    assert decisions.count(Decision.SLOWER) >= power * len(decisions)
    assert decisions.count(Decision.FASTER) == 0


def test_pairing_takes_out_what_both_sides_share() -> None:
    """Under a shared load the paired interval is less than half as wide as that of the same values unpaired."""
    load = 100 * chains(40, 96, correlation=0.9, seed=1)
    base, other = (load + 10 * chains(40, 96, correlation=0.0, seed=seed) for seed in (2, 3))
    paired = paired_shifts(Ragged(values=(other - base).ravel(), offsets=np.arange(41) * 96))
    unpaired = [found.shift for x, y in zip(base, other, strict=True) if (found := unpaired_shift(x, y))]
    widths = [shift.high - shift.low for shift in unpaired if shift.low is not None and shift.high is not None]
    assert np.median(paired.high - paired.low) < 0.5 * np.median(widths)
