"""The shift of paired differences: hand-made cases, the relation to Wilcoxon's test, and coverage by simulation."""

import itertools

import numpy as np
import pytest
from scipy.stats import wilcoxon

from isochrone_collector.stats import paired
from isochrone_collector.stats.paired import Shift, hodges_lehmann, interval_depth, signed_rank_counts


def shift_of(*differences: float) -> Shift:
    found = hodges_lehmann(np.array(differences, dtype=np.float64))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("differences", "estimate"),
    [
        ([5.0], 5.0),
        ([1.0, 3.0], 2.0),
        # Walsh averages 1 1.5 2 5.5 6 10: the middle ones are 2 and 5.5.
        ([1.0, 2.0, 10.0], 3.75),
        # Sorted Walsh averages of 0 1 4 9: 0 .5 1 2 2.5 4 4.5 5 6.5 9.
        ([9.0, 0.0, 4.0, 1.0], 3.25),
    ],
)
def test_estimates_worked_out_by_hand(differences: list[float], estimate: float) -> None:
    """The estimate is the median of the Walsh averages."""
    assert shift_of(*differences).estimate == estimate


def test_nothing_has_no_shift() -> None:
    """Of no pairs there is no shift, not zero."""
    assert hodges_lehmann(np.array([], dtype=np.float64)) is None


def test_five_rounds_are_too_few() -> None:
    """Below six pairs there is an estimate and no interval."""
    assert shift_of(1, 2, 3, 4, 5) == Shift(estimate=3.0, low=None, high=None)


def test_six_rounds_are_bounded_by_their_extremes() -> None:
    """With six pairs the interval runs from the smallest to the largest difference (96.9 %)."""
    assert shift_of(6, 1, 5, 2, 4, 3) == Shift(estimate=3.5, low=1.0, high=6.0)


@pytest.mark.parametrize(
    ("n", "depth"), [(5, None), (6, 1), (7, 3), (8, 4), (9, 6), (10, 9), (15, 26), (20, 53), (25, 90)]
)
def test_depths_are_the_tabled_critical_values(n: int, depth: int | None) -> None:
    """The depth is one more than the tabled two-sided 5 % critical value of the signed-rank test."""
    assert interval_depth(n) == depth


def test_the_distribution_is_that_of_all_sign_patterns() -> None:
    """Counting subsets agrees with writing down every pattern of signs of five ranks."""
    sums = [sum(rank for rank, sign in zip(range(1, 6), signs, strict=True) if sign) for signs in patterns(5)]
    assert signed_rank_counts(5).tolist() == [sums.count(total) for total in range(16)]


def patterns(n: int) -> list[tuple[bool, ...]]:
    return list(itertools.product((False, True), repeat=n))


def test_normal_and_exact_depths_meet() -> None:
    """Where the exact distribution ends, the normal one continues within one rank."""
    mean = paired._MAX_EXACT_N
    tails = np.cumsum(signed_rank_counts(mean + 1)) / 2.0 ** (mean + 1)
    exact = int(np.searchsorted(tails, 0.025, side="right"))
    approximate = interval_depth(mean + 1)
    assert approximate is not None
    assert abs(approximate - exact) <= 1


@pytest.mark.parametrize("n", [6, 12, 30])
def test_the_interval_holds_what_wilcoxon_does_not_reject(n: int) -> None:
    """A shift inside the interval is not rejected at 5 % by Wilcoxon's exact test, and one outside is."""
    differences = np.random.default_rng(n).normal(3.0, 2.0, n)
    found = shift_of(*differences)
    assert found.low is not None
    assert found.high is not None
    for shift, rejected in (
        (found.low - 1e-6, True),
        (found.low + 1e-6, False),
        (found.estimate, False),
        (found.high - 1e-6, False),
        (found.high + 1e-6, True),
    ):
        assert (wilcoxon(differences - shift, method="exact").pvalue <= 0.05) == rejected


@pytest.mark.parametrize("n", [2, 7, 60, 199, 200])
def test_counting_finds_what_listing_finds(n: int) -> None:
    """The frugal search gives every Walsh average its sorted list gives, with ties and without."""
    for differences in (np.random.default_rng(n).lognormal(12, 1, n), np.round(np.linspace(-3, 3, n)) * 1_000):
        ordered = np.sort(differences)
        listed, counted = paired._ListedWalsh(ordered), paired._CountedWalsh(ordered)
        total = n * (n + 1) // 2
        for rank in {1, 2, total // 3 + 1, total // 2 + 1, total}:
            assert counted(rank) == pytest.approx(listed(rank), rel=1e-12, abs=1e-6)


def test_many_pairs_take_little_memory_and_time() -> None:
    """Ten thousand pairs, which have fifty million Walsh averages, are estimated well."""
    differences = np.random.default_rng(1).normal(10_000, 5_000, 10_000)
    found = shift_of(*differences)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 10_000 < found.high
    assert found.high - found.low < 300


def test_equal_differences_are_their_own_shift() -> None:
    """When every round differs by the same, the interval is that number."""
    for n in (10, 500):
        assert shift_of(*[4_000.0] * n) == Shift(estimate=4_000.0, low=4_000.0, high=4_000.0)


@pytest.mark.parametrize(("n", "draws"), [(8, 3_000), (40, 3_000), (250, 800)])
def test_intervals_cover_the_truth(n: int, draws: int) -> None:
    """For independent symmetric differences the interval holds the true shift in about 95 % of the draws."""
    chance = np.random.default_rng(20261121)
    held = 0
    for differences in chance.laplace(50.0, 20.0, size=(draws, n)):
        found = hodges_lehmann(differences)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 50.0 <= found.high
    assert 0.93 <= held / draws <= 0.98
