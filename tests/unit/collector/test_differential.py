"""Differentials: what is paired, what is left out, and what may be said of the rest."""

import pytest

from isochrone_collector.differential import Series, Subject, decide, differential, margin_of, pair
from isochrone_collector.stats.paired import Shift
from isochrone_wire.answers import Decision, Metric

MS = 1_000


def subject(metric: Metric = Metric.TTFT) -> Subject:
    return Subject(target="sim/a", provider="sim", model="a", metric=metric, baseline="us", region="sg")


def series(values: dict[int, float], *, censored: tuple[int, ...] = ()) -> Series:
    return Series(
        rounds=list(values), values=list(values.values()), censored=[round_at in censored for round_at in values]
    )


def test_only_shared_rounds_are_paired() -> None:
    """A round that one region missed says nothing; the others meet their own partner, whatever came between."""
    pairs = pair(series({10: 1.0, 20: 2.0, 40: 4.0}), series({20: 200.0, 30: 300.0, 40: 400.0}))
    assert pairs.rounds == [20, 40]
    assert pairs.baseline.tolist() == [2.0, 4.0]
    assert pairs.region.tolist() == [200.0, 400.0]


def test_a_round_lost_on_both_sides_is_left_out() -> None:
    """Two timeouts are no evidence that two regions are alike; one timeout is evidence against the region it hit."""
    pairs = pair(
        series({1: 60.0, 2: 60.0, 3: 5.0}, censored=(1, 2)), series({1: 60.0, 2: 7.0, 3: 60.0}, censored=(1, 3))
    )
    assert pairs.rounds == [2, 3]
    assert (pairs.region - pairs.baseline).tolist() == [-53.0, 55.0]


def test_medians_are_those_of_the_paired_rounds() -> None:
    """A night that only one region saw does not move the medians that are compared."""
    day = dict.fromkeys(range(10), 100.0 * MS)
    night = dict.fromkeys(range(10, 30), 900.0 * MS)
    found = differential(subject(), series(day), series({n: v + 50 * MS for n, v in {**day, **night}.items()}))
    assert (found.baseline_median, found.region_median) == (100.0 * MS, 150.0 * MS)
    assert (found.n, found.baseline_n, found.region_n) == (10, 10, 30)


def test_a_differential_worked_out_by_hand() -> None:
    """Six rounds, each 30 to 80 ms slower: the shift is the middle, the interval the extremes, the decision slower."""
    baseline = {n * 60: (100.0 + n) * MS for n in range(6)}
    region = {n * 60: (130.0 + n + 10 * n) * MS for n in range(6)}
    found = differential(subject(), series(baseline), series(region))
    assert (found.shift, found.shift_low, found.shift_high) == (55.0 * MS, 30.0 * MS, 80.0 * MS)
    assert found.baseline_median == 102.5 * MS
    assert found.shift_percent == pytest.approx(100 * 55 / 102.5)
    assert (found.decision, found.reason) == (Decision.SLOWER, "")
    assert found.newest_at == 300
    assert (found.unit, found.target, found.region) == ("us", "sim/a", "sg")


@pytest.mark.parametrize(
    ("baseline", "region", "reason"),
    [
        ({}, {1: 1.0}, "no ttft from us"),
        ({1: 1.0}, {}, "no ttft from sg"),
        ({1: 1.0}, {2: 1.0}, "no round has a value from both regions"),
        ({1: 1.0, 2: 1.0, 3: 1.0}, {1: 1.0, 2: 1.0, 3: 1.0}, "3 of 6 rounds needed"),
    ],
)
def test_too_little_is_undecided_and_says_why(
    baseline: dict[int, float], region: dict[int, float], reason: str
) -> None:
    """Without enough rounds there is no interval and no decision, and the reason names what is missing."""
    found = differential(subject(), series(baseline), series(region))
    assert (found.decision, found.reason) == (Decision.UNDECIDED, reason)
    assert (found.shift_low, found.shift_high) == (None, None)


@pytest.mark.parametrize(
    ("low", "estimate", "high", "decision", "reason"),
    [
        (30, 40, 50, Decision.SLOWER, ""),
        (-50, -40, -30, Decision.FASTER, ""),
        (5, 20, 35, Decision.SLOWER, ""),
        (-10, 0, 10, Decision.EQUIVALENT, ""),
        (5, 10, 15, Decision.EQUIVALENT, ""),
        (-20, 0, 20, Decision.EQUIVALENT, ""),
        (-10, 20, 50, Decision.UNDECIDED, "interval holds zero and exceeds the margin"),
        (0, 20, 50, Decision.UNDECIDED, "interval holds zero and exceeds the margin"),
        (1, 19, 40, Decision.UNDECIDED, "interval is off zero and exceeds the margin, and the shift is within it"),
    ],
)
def test_decisions(low: float, estimate: float, high: float, decision: Decision, reason: str) -> None:
    """Off zero and large is a difference, wholly within the margin is none, and all else is open."""
    shift = Shift(estimate=estimate * MS, low=low * MS, high=high * MS)
    assert decide(shift, n=9, margin=20.0 * MS, metric=Metric.TTFT) == (decision, reason)


def test_a_higher_rate_is_faster() -> None:
    """More tokens per second is better, so that a positive shift means faster."""
    shift = Shift(estimate=30.0, low=20.0, high=40.0)
    assert decide(shift, n=9, margin=5.0, metric=Metric.TOKENS_PER_SECOND)[0] is Decision.FASTER
    assert decide(shift, n=9, margin=5.0, metric=Metric.TTFT)[0] is Decision.SLOWER


@pytest.mark.parametrize(
    ("metric", "median", "margin"),
    [
        (Metric.TTFT, 100.0 * MS, 20.0 * MS),
        (Metric.TTFT, 1_000.0 * MS, 50.0 * MS),
        (Metric.RTT, 0.0, 20.0 * MS),
        (Metric.TOKENS_PER_SECOND, 100.0, 5.0),
    ],
)
def test_margins(metric: Metric, median: float, margin: float) -> None:
    """A duration must differ by 20 ms or 5 %, whichever is more, and a rate by 5 %."""
    assert margin_of(metric, median) == margin
