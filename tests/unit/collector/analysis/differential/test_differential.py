"""Differentials: pairing, left-out rounds and decisions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from isochrone_collector.analysis.differential.differential import ComparisonContext, Subject, differentials_of
from isochrone_collector.analysis.differential.panel import build_panel
from isochrone_collector.analysis.differential.participation import Participation
from isochrone_wire.answers import Decision, Differential, Metric, Part
from testdata.columns import Row, present, probes, series

MS = 1_000


def subject(target: int = 1, region: str = "sg") -> Subject:
    return Subject(target_id=target, target=f"sim/{target}", provider="sim", model="a", region=region)


def differential(rows: Sequence[Row], *, metric: Metric = Metric.TTFT, **known: Any) -> Differential:
    """Return the differential of target 1 in sg against us."""
    [found] = differentials_of(
        build_panel(probes(rows)), [subject()], metric=metric, baseline="us", context=ComparisonContext(**known)
    )
    return found


def noise(n: int, *, seed: int, scale: float = 5.0 * MS) -> list[float]:
    return list(np.random.default_rng(seed).normal(0, scale, n))


def test_a_differential_worked_out_by_hand() -> None:
    """Six rounds 30 to 80 ms slower: the shift is the middle, the interval the extremes; independent, they decide."""
    rows = series("us", [(100.0 + n) * MS for n in range(6)])
    rows += series("sg", [(130.0 + 11 * n) * MS for n in range(6)])
    found = differential(rows, decorrelation_rounds={(1, "sg"): 1.0})
    assert (found.shift, found.shift_low, found.shift_high) == (55.0 * MS, 30.0 * MS, 80.0 * MS)
    assert (found.baseline_median, found.region_median) == (102.5 * MS, 157.5 * MS)
    assert found.shift_percent == pytest.approx(100 * 55 / 102.5)
    assert (found.decision, found.reason) == (Decision.SLOWER, "")
    assert (found.n, found.n_eff, found.paired, found.newest_at) == (6, 6.0, True, 5)
    assert (found.faster_probability, found.margin) == (0.0, 20.0 * MS)
    assert (found.median_difference, found.rounds_needed) == (55.0 * MS, 6)
    assert found.correlation == pytest.approx(1.0)
    assert found.q_value == pytest.approx(2 / 64)
    assert (found.unit, found.target, found.region, found.since_at) == ("us", "sim/1", "sg", None)


def test_medians_are_those_of_the_paired_rounds() -> None:
    """Rounds that only one region recorded do not change the medians."""
    day = [100.0 * MS] * 10
    night = [900.0 * MS] * 20
    found = differential(series("us", day) + series("sg", [value + 50 * MS for value in day + night]))
    assert (found.baseline_median, found.region_median) == (100.0 * MS, 150.0 * MS)
    assert (found.n, found.baseline_n, found.region_n) == (10, 10, 30)


@pytest.mark.parametrize(
    ("baseline", "region", "reason"),
    [
        ({}, {1: 1.0}, "no ttft from us"),
        ({1: 1.0}, {}, "no ttft from sg"),
        ({1: 1.0}, {2: 1.0}, "no round has a value from both regions"),
        ({1: 1.0, 2: 1.0, 3: 1.0}, {1: 1.0, 2: 1.0, 3: 1.0}, "3 of 24 rounds needed"),
    ],
)
def test_too_little_decides_nothing(baseline: Mapping[int, float], region: Mapping[int, float], reason: str) -> None:
    """Without enough rounds there is no interval and no decision, and the reason names what is missing."""
    sides = (("us", baseline), ("sg", region))
    found = differential([Row(1, name, at, value) for name, side in sides for at, value in side.items()])
    assert (found.decision, found.reason) == (Decision.UNDECIDED, reason)
    assert (found.shift_low, found.shift_high, found.q_value) == (None, None, None)


def test_rounds_that_do_not_meet_are_compared_as_two_samples() -> None:
    """Two regions that probe at different instants are compared unpaired."""
    rows = series("us", [300.0 * MS + one for one in noise(40, seed=1)])
    rows += series("sg", [400.0 * MS + one for one in noise(30, seed=2)], start=1_000)
    found = differential(rows)
    assert (found.paired, found.n, found.baseline_n, found.region_n) == (False, 0, 40, 30)
    assert (found.decision, found.faster_probability) == (Decision.SLOWER, 0.0)
    assert found.shift == pytest.approx(100 * MS, abs=4 * MS)
    assert 12 < present(found.n_eff) <= 30
    assert found.newest_at == 1_029


def test_timeouts_on_both_sides_are_no_likeness() -> None:
    """Two regions that both hit the same limit are not equivalent, paired or not."""
    lost = [60_000.0 * MS] * 20
    for start, reason in (
        (0, "most rounds of sg ended in a timeout"),
        (1_000, "no round has a value from both regions"),
    ):
        rows = series("us", lost, limits=range(20)) + series("sg", lost, start=start, limits=range(20))
        found = differential(rows)
        assert (found.decision, found.shift, found.reason) == (Decision.UNDECIDED, None, reason)


def test_the_two_parts_of_a_latency_tell_road_from_server() -> None:
    """A region with 40 ms more network and a 10 ms faster server is 30 ms slower, with these parts."""
    base = noise(30, seed=3)
    rows = [Row(1, "us", at, 500 * MS + one, network=20.0 * MS) for at, one in enumerate(base)]
    rows += [Row(1, "sg", at, 530 * MS + one, network=60.0 * MS) for at, one in enumerate(base)]
    found = differential(rows)
    assert found.network_shift == pytest.approx(40 * MS)
    assert found.server_shift == pytest.approx(-10 * MS)
    rate = differential(rows, metric=Metric.TOKENS_PER_SECOND)
    assert (rate.network_shift, rate.server_shift) == (None, None)


def test_a_region_that_is_mostly_faster_with_spikes_is_mixed() -> None:
    """30 ms faster with spikes in 40 % of the rounds is mixed: the centre is slower, medians and most are faster."""
    spikes = np.random.default_rng(3).random(288) < 0.4
    base = np.random.default_rng(4).normal(500 * MS, 20 * MS, 288)
    other = np.random.default_rng(5).normal(470 * MS, 20 * MS, 288) + np.where(spikes, 4_000 * MS, 0)
    found = differential(series("us", list(base)) + series("sg", list(other)))
    assert present(found.median_difference) < 0 < present(found.shift)
    assert present(found.faster_probability) > 0.5
    assert found.decision is Decision.MIXED
    assert "by the centre of all rounds, but its median is faster by" in found.reason


def test_swapping_the_sides_mirrors_the_decision() -> None:
    """Swapping the sides mirrors the decision; a round trip of 16 ms instead of 1 ms is slower."""
    near = [1_000 * MS + one for one in noise(60, seed=1, scale=MS / 10)]
    far = [1_051 * MS + one for one in noise(60, seed=2, scale=MS / 10)]
    found = differential(series("us", near) + series("sg", far))
    turned = differential(series("us", far) + series("sg", near))
    assert (found.decision, turned.decision) == (Decision.SLOWER, Decision.FASTER)
    assert found.margin == turned.margin
    rows = series("us", [1.0 * MS + one for one in noise(40, seed=1, scale=50)])
    rows += series("sg", [16.0 * MS + one for one in noise(40, seed=2, scale=50)])
    assert differential(rows, metric=Metric.RTT).decision is Decision.SLOWER
    assert differential(rows).decision is Decision.EQUIVALENT


@pytest.mark.parametrize(("shared", "low", "high"), [(0.0, -0.15, 0.15), (0.8, 0.6, 0.85)])
def test_the_correlation_of_the_regions(shared: float, low: float, high: float) -> None:
    """What both regions share shows in the correlation of their values, and spikes of either do not hide it."""
    rng = np.random.default_rng(11)
    both, *own = rng.normal(0, 1.0, (3, 300))
    us, sg = (300 * MS * np.exp(0.35 * (np.sqrt(shared) * both + np.sqrt(1 - shared) * one)) for one in own)
    us += np.where(rng.random(300) < 0.05, 5_000 * MS, 0)
    found = differential(series("us", list(us)) + series("sg", list(sg)))
    assert low < present(found.correlation) < high


@pytest.mark.parametrize("base", [5.0, 0.0])
def test_a_constant_side_has_no_correlation(base: float) -> None:
    """Without variation there is no correlation, and no error."""
    found = differential(series("us", [base] * 30) + series("sg", [1.0 + place % 7 for place in range(30)]))
    assert found.correlation is None


@pytest.mark.parametrize(("metric", "probability"), [(Metric.TTFT, 0.2), (Metric.TOKENS_PER_SECOND, 0.8)])
def test_how_often_the_region_does_better(metric: Metric, probability: float) -> None:
    """Of ten rounds the region has the greater value in seven and the same in two: better or worse, by the metric."""
    rows = series("us", [5.0] * 10) + series("sg", [9.0] * 7 + [5.0] * 2 + [1.0])
    assert differential(rows, metric=metric).faster_probability == pytest.approx(probability)


def clearly_slower() -> list[Row]:
    base = noise(60, seed=4)
    return series("us", [300 * MS + one for one in base]) + series("sg", [500 * MS + one for one in base])


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ({"region_problems": {"us": "us is in trouble"}}, "us is in trouble"),
        ({"region_problems": {"sg": "sg is in trouble"}}, "sg is in trouble"),
        (
            {"participations": {(1, "sg"): Participation(recorded=60, planned=200)}},
            "sg recorded 30 % of its rounds; 50 % needed",
        ),
        (
            {"participations": {(1, "us"): Participation(recorded=60, planned=121)}},
            "us recorded 49 % of its rounds; 50 % needed",
        ),
        ({"changes": {(1, "sg"): 56}}, "4 of 24 rounds needed, counted from the change on"),
        ({"changes": {(1, "us"): 60}}, "no ttft from us"),
    ],
)
def test_what_keeps_a_sure_difference_from_being_told(known: dict[str, Any], reason: str) -> None:
    """A region's own problem, too little coverage or a recent change leave it undecided, with the reason."""
    assert differential(clearly_slower()).decision is Decision.SLOWER
    found = differential(clearly_slower(), **known)
    assert (found.decision, found.reason, found.q_value) == (Decision.UNDECIDED, reason, None)


def test_trouble_elsewhere_changes_nothing() -> None:
    """Problems of other regions and targets have no effect; with one round less than 24 nothing is decided."""
    known: dict[str, Any] = {
        "region_problems": {"eu": "eu is in trouble"},
        "participations": {(2, "sg"): Participation(recorded=1, planned=100)},
        "changes": {(2, "sg"): 59},
    }
    assert differential(clearly_slower(), **known) == differential(clearly_slower())
    few = differential([row for row in clearly_slower() if row.at < 23])
    assert few.reason == "slower by 200 ms (199 to 201) so far; 23 of 24 rounds needed"


def test_a_change_point_begins_the_window() -> None:
    """After a change only later rounds are compared, and the result has the instant."""
    base = noise(60, seed=5)
    rows = series("us", [300 * MS + one for one in base])
    rows += series("sg", [(200 if at < 30 else 500) * MS + one for at, one in enumerate(base)])
    found = differential(rows, changes={(1, "sg"): 30})
    assert (found.since_at, found.n, found.decision) == (30, 30, Decision.SLOWER)
    assert found.shift == pytest.approx(200 * MS)


def test_sides_and_parts_come_with_the_answer() -> None:
    """Failures and coverage of both sides, and requested parts, are reported whatever the decision is."""
    parts = (Part(name="rtt", shift=1.0),)
    participations = {
        (1, "us"): Participation(tried=60, failed=6, recorded=60, planned=60),
        (1, "sg"): Participation(tried=60),
    }
    found = differential(clearly_slower(), participations=participations, parts={(1, "sg"): parts})
    assert found.parts == parts
    assert (found.baseline_side.n, found.baseline_side.coverage) == (60, 1.0)
    assert present(found.baseline_side.failures).value == 0.1
    assert present(found.region_side.failures).value == 0.0


def test_one_lucky_pair_among_many_is_not_told() -> None:
    """A difference that is decided alone is undecided among two hundred comparisons without difference."""
    values = [100.0 * MS, 130.0 * MS, 140.0 * MS, 150.0 * MS, 160.0 * MS, 170.0 * MS, 180.0 * MS]
    decorrelation_rounds = {(target, "sg"): 1.0 for target in range(1, 202)}
    rows = series("us", [100.0 * MS] * 7) + series("sg", values)
    others = [
        row
        for target in range(2, 202)
        for row in series("us", [100.0 * MS] * 7, target=target)
        + series("sg", [100.0 * MS + one for one in noise(7, seed=target)], target=target)
    ]
    alone = differential(rows, decorrelation_rounds=decorrelation_rounds)
    found = differentials_of(
        build_panel(probes(rows + others)),
        [subject(target) for target in range(1, 202)],
        metric=Metric.TTFT,
        baseline="us",
        context=ComparisonContext(decorrelation_rounds=decorrelation_rounds),
    )
    assert alone.decision is Decision.SLOWER
    assert (found[0].decision, found[0].shift) == (Decision.UNDECIDED, alone.shift)
    assert "among 201 comparisons" in found[0].reason
    assert Decision.FASTER not in {line.decision for line in found}


@pytest.mark.parametrize(
    ("lost", "start", "decision", "reason"),
    [
        (40, 0, Decision.UNDECIDED, "most rounds of sg ended in a timeout"),
        (25, 0, Decision.UNDECIDED, "most rounds of sg ended in a timeout"),
        (16, 0, Decision.FASTER, ""),
        (40, 1_000, Decision.UNDECIDED, "no round has a value from both regions"),
        (3, 1_000, Decision.UNDECIDED, "no round has a value from both regions"),
    ],
)
def test_giving_up_early_is_not_fast(lost: int, start: int, decision: Decision, reason: str) -> None:
    """A region given up after 10 s is not faster than an answer after 15; by most of its answered rounds it may be."""
    base = [15_000 * MS + one for one in noise(40, seed=6)]
    other = [10_000 * MS if place < lost else 9_000 * MS + one for place, one in enumerate(noise(40, seed=7))]
    found = differential(series("us", base) + series("sg", other, start=start, limits=range(lost)))
    assert (found.decision, found.reason) == (decision, reason)
    turned = differential(series("sg", base) + series("us", other, start=start, limits=range(lost)))
    mirrored = Decision.SLOWER if decision is Decision.FASTER else decision
    assert (turned.decision, turned.reason) == (mirrored, reason.replace("sg", "us"))


def test_timeouts_beyond_the_baseline_count_against_a_region() -> None:
    """Timeouts beyond the baseline count against a region; of unknown sign they only leave fewer rounds."""
    other = [60_000.0 * MS if place % 4 else 300 * MS + one for place, one in enumerate(noise(60, seed=8))]
    base = [300 * MS + one for one in noise(60, seed=9)]
    found = differential(series("us", base) + series("sg", other, limits=[place for place in range(60) if place % 4]))
    assert (found.decision, found.n) == (Decision.SLOWER, 60)
    rows = series("us", [15.0] * 9) + series("sg", [10.0] * 4 + [16.0] * 5, limits=range(4))
    found = differential(rows)
    expected = "5 of 24 rounds needed; 4 left out: a timeout of one side came before the other's answer"
    assert (found.decision, found.reason) == (Decision.UNDECIDED, expected)


@pytest.mark.parametrize(
    ("side", "decision", "reason"),
    [("us", Decision.UNDECIDED, "most probes of us failed"), ("sg", Decision.SLOWER, "")],
)
def test_nothing_is_decided_in_favour_of_who_nearly_always_fails(side: str, decision: Decision, reason: str) -> None:
    """A mostly failing region is never faster; it may be slower."""
    found = differential(clearly_slower(), participations={(1, side): Participation(tried=200, failed=140)})
    assert (found.decision, found.reason) == (decision, reason)
