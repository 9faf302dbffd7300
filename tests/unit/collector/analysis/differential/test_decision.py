"""Decisions on shifts: their sizes in words, the rounds they need, and contradictions."""

import pytest

from isochrone_collector.analysis.differential.decision import (
    LEAST_ROUNDS,
    Rounds,
    adjusted_for_comparisons,
    decide,
    quantity,
    rounds_needed,
    size_in_words,
    unless_mixed,
    with_enough_rounds,
)
from isochrone_collector.analysis.stats.shifts import Shift
from isochrone_wire.answers import Decision, Metric

MS = 1_000
ENOUGH = Rounds(n=LEAST_ROUNDS)


@pytest.mark.parametrize(
    ("low", "estimate", "high", "decision", "reason"),
    [
        (30, 40, 50, Decision.SLOWER, ""),
        (-50, -40, -30, Decision.FASTER, ""),
        (5, 20, 35, Decision.SLOWER, ""),
        (-10, 0, 10, Decision.EQUIVALENT, ""),
        (5, 10, 15, Decision.EQUIVALENT, ""),
        (-20, 0, 20, Decision.EQUIVALENT, ""),
        (-10, 20, 50, Decision.UNDECIDED, "10 ms faster to 50 ms slower: neither zero nor more than 20 ms is excluded"),
        (0, 20, 50, Decision.UNDECIDED, "0 ms faster to 50 ms slower: neither zero nor more than 20 ms is excluded"),
        (5, 15, 25, Decision.UNDECIDED, "slower by 15 ms (5 to 25), not clearly more than 20 ms"),
        (-25, -15, -5, Decision.UNDECIDED, "faster by 15 ms (5 to 25), not clearly more than 20 ms"),
    ],
)
def test_decisions(low: float, estimate: float, high: float, decision: Decision, reason: str) -> None:
    """An interval that excludes zero and a large shift is a difference, one within the margin is equivalent, and what
    is not decided has its size.
    """
    shift = Shift(estimate=estimate * MS, low=low * MS, high=high * MS)
    assert decide(shift, rounds=ENOUGH, margin=20.0 * MS, metric=Metric.TTFT) == (decision, reason)


def test_a_higher_rate_is_faster() -> None:
    """More tokens per second is better, so that a positive shift means faster."""
    shift = Shift(estimate=30.0, low=20.0, high=40.0)
    assert decide(shift, rounds=ENOUGH, margin=5.0, metric=Metric.TOKENS_PER_SECOND)[0] is Decision.FASTER
    assert decide(shift, rounds=ENOUGH, margin=5.0, metric=Metric.TTFT)[0] is Decision.SLOWER


@pytest.mark.parametrize(
    ("shift", "metric", "words"),
    [
        (Shift(estimate=15_000, low=5_000, high=25_000), Metric.TTFT, "slower by 15 ms (5 to 25)"),
        (Shift(estimate=-800, low=-900, high=-700), Metric.RTT, "faster by 0.80 ms (0.70 to 0.90)"),
        (Shift(estimate=8_000, low=-2_000, high=9_000), Metric.E2E, "2.0 ms faster to 9.0 ms slower"),
        (Shift(estimate=3.0, low=2.0, high=4.0), Metric.TOKENS_PER_SECOND, "faster by 3.0 tokens/s (2.0 to 4.0)"),
        (
            Shift(estimate=3.0, low=-2.0, high=14.0),
            Metric.TOKENS_PER_SECOND,
            "14 tokens/s faster to 2.0 tokens/s slower",
        ),
        (Shift(estimate=15_000, low=None, high=None), Metric.TTFT, "slower by 15 ms"),
        (Shift(estimate=0, low=0, high=0), Metric.TTFT, "0 ms faster to 0 ms slower"),
    ],
)
def test_a_size_in_words(shift: Shift, metric: Metric, words: str) -> None:
    """A shift has its direction as a word, its unit, and the interval with the same decimals."""
    assert size_in_words(shift, metric) == words


def test_quantities_have_no_sign() -> None:
    """The size of a difference is positive, with more decimals the smaller it is."""
    assert [quantity(value, Metric.TTFT) for value in (-20_000, 1_500, 40, 0)] == ["20 ms", "1.5 ms", "0.04 ms", "0 ms"]


@pytest.mark.parametrize(
    ("memory", "needed"), [(None, 24), (1.0, 6), (0.5, 6), (1.5, 9), (3.0, 18), (4.0, 24), (13.9, 24)]
)
def test_the_rounds_that_a_decision_needs(memory: float | None, needed: int) -> None:
    """Twenty-four without a known memory, else six independent ones; a long memory makes the interval wider instead."""
    assert rounds_needed(memory) == needed


@pytest.mark.parametrize("decision", [Decision.FASTER, Decision.SLOWER, Decision.EQUIVALENT])
def test_too_few_rounds_decide_nothing(decision: Decision) -> None:
    """With fewer than the rounds needed, the size is stated and nothing is decided; a reason from before stays."""
    shift = Shift(estimate=-15_000, low=-25_000, high=-5_000)
    few = Rounds(n=23, undetermined=2)
    found = with_enough_rounds((decision, ""), shift, rounds=few, metric=Metric.TTFT)
    expected = "faster by 15 ms (5 to 25) so far; 23 of 24 rounds needed; 2 left out: a timeout"
    assert found[0] is Decision.UNDECIDED
    assert found[1].startswith(expected)
    kept = (Decision.UNDECIDED, "most rounds of sg ended in a timeout")
    assert with_enough_rounds(kept, shift, rounds=few, metric=Metric.TTFT) == kept
    for enough in (Rounds(n=24), Rounds(n=23, memory=2.0)):
        assert with_enough_rounds((decision, ""), shift, rounds=enough, metric=Metric.TTFT) == (decision, "")


def test_without_an_interval_the_rounds_are_the_reason() -> None:
    """Below six rounds there is no interval, and the reason is the number of rounds."""
    shift = Shift(estimate=15_000, low=None, high=None)
    found = decide(shift, rounds=Rounds(n=5), margin=20.0 * MS, metric=Metric.TTFT)
    assert found == (Decision.UNDECIDED, "5 of 24 rounds needed")


SLOWER = Shift(estimate=713_000, low=600_000, high=800_000)


@pytest.mark.parametrize(
    ("median_difference", "faster_share", "but"),
    [
        (-21_000.0, 0.65, "its median is faster by 21 ms and 65 % of its rounds are faster"),
        (-21_000.0, 0.4, "its median is faster by 21 ms"),
        (30_000.0, 0.65, "65 % of its rounds are faster"),
    ],
)
def test_contradicting_signs_are_mixed(median_difference: float, faster_share: float, but: str) -> None:
    """A shift that the medians or most rounds contradict is no difference in either direction, with the reason."""
    found = unless_mixed(
        (Decision.SLOWER, ""),
        SLOWER,
        median_difference=median_difference,
        faster_share=faster_share,
        metric=Metric.TTFT,
    )
    reason = (
        f"slower by 713 ms (600 to 800) by the centre of all rounds, but {but}: no single size describes these rounds"
    )
    assert found == (Decision.MIXED, reason)


def test_a_rate_can_be_mixed_too() -> None:
    """For a rate the signs mean the opposite."""
    shift = Shift(estimate=30.0, low=20.0, high=40.0)
    decision, reason = unless_mixed(
        (Decision.FASTER, ""), shift, median_difference=-5.0, faster_share=0.3, metric=Metric.TOKENS_PER_SECOND
    )
    assert decision is Decision.MIXED
    assert "but its median is slower by 5.0 tokens/s and 70 % of its rounds are slower" in reason


@pytest.mark.parametrize(
    ("verdict", "median_difference", "faster_share"),
    [
        ((Decision.SLOWER, ""), 700_000.0, 0.1),
        ((Decision.SLOWER, ""), 0.0, 0.5),
        ((Decision.UNDECIDED, "why"), -21_000.0, 0.65),
        ((Decision.EQUIVALENT, ""), -21_000.0, 0.65),
    ],
)
def test_agreeing_signs_are_not_mixed(
    verdict: tuple[Decision, str], median_difference: float, faster_share: float
) -> None:
    """Equal medians contradict nothing, and only a difference can be contradicted."""
    found = unless_mixed(
        verdict, SLOWER, median_difference=median_difference, faster_share=faster_share, metric=Metric.TTFT
    )
    assert found == verdict


@pytest.mark.parametrize("decision", [Decision.FASTER, Decision.SLOWER])
@pytest.mark.parametrize("q_value", [0.051, 0.9, None])
def test_a_difference_that_may_be_chance_is_none(decision: Decision, q_value: float | None) -> None:
    """Above a false-discovery rate of 5 % a difference is undecided; the reason has the rate and the comparisons."""
    found, reason = adjusted_for_comparisons((decision, ""), q_value=q_value, comparisons=300)
    assert found is Decision.UNDECIDED
    assert "among 300 comparisons" in reason


@pytest.mark.parametrize(
    ("decision", "q_value"), [(Decision.FASTER, 0.05), (Decision.SLOWER, 0.0), (Decision.EQUIVALENT, 0.9)]
)
def test_what_is_no_chance_stands(decision: Decision, q_value: float) -> None:
    """A certain difference survives any number of comparisons, and equivalence is not corrected."""
    assert adjusted_for_comparisons((decision, ""), q_value=q_value, comparisons=300) == (decision, "")
