"""Decisions on shifts: sizes in words, rounds, losses, contradictions, margins and false-discovery rates."""

import numpy as np
import pytest

from isochrone_collector.analysis.differential.decision import (
    Comparison,
    Rounds,
    decide,
    family_rates,
    margin_of,
    q_values,
    quantity,
    rounds_needed,
    size_in_words,
)
from isochrone_collector.analysis.stats.shifts import Shift
from isochrone_wire.answers import Decision, Metric
from isochrone_wire.model import MarginRule

MS = 1_000
FASTER = Shift(estimate=-40 * MS, low=-50 * MS, high=-30 * MS)
SLOWER = Shift(estimate=40 * MS, low=30 * MS, high=50 * MS)
EQUAL = Shift(estimate=0, low=-10 * MS, high=10 * MS)


def decided(shift: Shift, **more: object) -> tuple[Decision, str]:
    """Return the decision on a shift of 24 certain rounds with a margin of 20 ms, unless given otherwise."""
    usual = {
        "metric": Metric.TTFT,
        "shift": shift,
        "rounds": Rounds(n=24),
        "margin": 20.0 * MS,
        "median_difference": 0.0,
        "faster_share": 0.5,
        "q_value": 0.0,
        "comparisons": 300,
    }
    return decide(Comparison(**usual | more))  # type: ignore[arg-type]  # a dict of mixed values


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
        (5, 15, 25, Decision.UNDECIDED, "slower by 15 ms (5 to 25): the estimate, 15 ms, is below 20 ms"),
        (-25, -15, -5, Decision.UNDECIDED, "faster by 15 ms (5 to 25): the estimate, 15 ms, is below 20 ms"),
        (5, 19.96, 25, Decision.UNDECIDED, "slower by 20 ms (5 to 25): the estimate, 19.96 ms, is below 20 ms"),
    ],
)
def test_decisions(low: float, estimate: float, high: float, decision: Decision, reason: str) -> None:
    """A large shift without zero is a difference, one within the margin equivalent; else the reason has the size."""
    assert decided(Shift(estimate=estimate * MS, low=low * MS, high=high * MS)) == (decision, reason)


def test_a_higher_rate_is_faster() -> None:
    """More tokens per second is better, so that a positive shift means faster."""
    shift = Shift(estimate=30.0, low=20.0, high=40.0)
    assert decided(shift, margin=5.0, metric=Metric.TOKENS_PER_SECOND)[0] is Decision.FASTER
    assert decided(shift, margin=5.0)[0] is Decision.SLOWER


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
    ("known", "needed"), [(None, 24), (1.0, 6), (0.5, 6), (1.5, 9), (3.0, 18), (4.0, 24), (13.9, 24)]
)
def test_the_rounds_that_a_decision_needs(known: float | None, needed: int) -> None:
    """Twenty-four, or six independent ones if they are known; strong correlation makes the interval wider instead."""
    assert rounds_needed(known) == needed


@pytest.mark.parametrize(
    ("shift", "rounds", "reason"),
    [
        (FASTER, Rounds(n=23, undetermined=2), "faster by 40 ms (30 to 50) so far; 23 of 24 rounds needed; 2 left out"),
        (SLOWER, Rounds(n=23), "slower by 40 ms (30 to 50) so far; 23 of 24 rounds needed"),
        (EQUAL, Rounds(n=23), "10 ms faster to 10 ms slower so far; 23 of 24 rounds needed"),
        (Shift(estimate=15 * MS, low=None, high=None), Rounds(n=5), "5 of 24 rounds needed"),
    ],
)
def test_too_few_rounds_decide_nothing(shift: Shift, rounds: Rounds, reason: str) -> None:
    """With fewer rounds than needed the reason has the size; fewer do if they are known to be independent."""
    decision, found = decided(shift, rounds=rounds)
    assert decision is Decision.UNDECIDED
    assert found.startswith(reason)
    if shift.low is not None:
        enough = decided(shift, rounds=Rounds(n=23, decorrelation_rounds=2.0, undetermined=2))
        assert enough == decided(shift)
        assert enough[0] is not Decision.UNDECIDED


@pytest.mark.parametrize(
    ("shift", "losses", "reason"),
    [
        (FASTER, {"region_losses": "lost"}, "lost"),
        (FASTER, {"baseline_losses": "lost"}, ""),
        (SLOWER, {"region_losses": "lost"}, ""),
        (SLOWER, {"baseline_losses": "lost"}, "lost"),
        (EQUAL, {"region_losses": "lost"}, "lost"),
        (EQUAL, {"baseline_losses": "lost"}, "lost"),
    ],
)
def test_no_decision_favours_a_side_that_lost_its_rounds(shift: Shift, losses: dict[str, str], reason: str) -> None:
    """Neither faster nor equivalent is decided for such a side, but a decision against it is."""
    assert decided(shift, **losses) == ((Decision.UNDECIDED, reason) if reason else decided(shift))


@pytest.mark.parametrize(
    ("median_difference", "faster_share", "but"),
    [
        (-21_000.0, 0.65, "its median is faster by 21 ms and 65 % of its rounds are faster"),
        (-21_000.0, 0.4, "its median is faster by 21 ms"),
        (30_000.0, 0.65, "65 % of its rounds are faster"),
        (700_000.0, 0.1, ""),
        (0.0, 0.5, ""),
    ],
)
def test_contradicting_signs_are_mixed(median_difference: float, faster_share: float, but: str) -> None:
    """A shift that medians or most rounds contradict is mixed; equal ones contradict nothing, and only differences."""
    more = {"median_difference": median_difference, "faster_share": faster_share}
    reason = f"slower by 40 ms (30 to 50) by the centre of all rounds, but {but}: no single size describes these rounds"
    assert decided(SLOWER, **more) == ((Decision.MIXED, reason) if but else (Decision.SLOWER, ""))
    assert decided(EQUAL, **more) == (Decision.EQUIVALENT, "")
    unclear = Shift(estimate=10 * MS, low=-10 * MS, high=30 * MS)
    assert decided(unclear, **more) == decided(unclear)
    assert decided(unclear)[0] is Decision.UNDECIDED


def test_a_rate_can_be_mixed_too() -> None:
    """For a rate the signs mean the opposite."""
    more = {"metric": Metric.TOKENS_PER_SECOND, "margin": 5.0, "median_difference": -5.0, "faster_share": 0.3}
    decision, reason = decided(Shift(estimate=30.0, low=20.0, high=40.0), **more)
    assert decision is Decision.MIXED
    assert "but its median is slower by 5.0 tokens/s and 70 % of its rounds are slower" in reason


@pytest.mark.parametrize(
    ("shift", "q_value", "stands"),
    [
        *((shift, q_value, False) for shift in (FASTER, SLOWER) for q_value in (0.051, 0.9, None)),
        (FASTER, 0.05, True),
        (SLOWER, 0.0, True),
        (EQUAL, 0.9, True),
    ],
)
def test_a_difference_that_may_be_chance_is_none(shift: Shift, q_value: float | None, *, stands: bool) -> None:
    """Above a false-discovery rate of 5 % a difference is undecided; equivalence is not corrected."""
    found, reason = decided(shift, q_value=q_value)
    assert (found is not Decision.UNDECIDED) == stands
    assert stands or "among 300 comparisons" in reason


@pytest.mark.parametrize(
    ("metric", "medians", "size"),
    [
        (Metric.TTFT, (100.0 * MS, 120.0 * MS), 20.0 * MS),
        (Metric.TTFT, (1_000.0 * MS, 1_200.0 * MS), 50.0 * MS),
        (Metric.RTT, (1.0 * MS, 16.0 * MS), 1.0 * MS),
        (Metric.RTT, (100.0 * MS, 110.0 * MS), 5.0 * MS),
        (Metric.CONNECT, (3.0 * MS, 48.0 * MS), 3.0 * MS),
        (Metric.TOKENS_PER_SECOND, (100.0, 120.0), 5.0),
    ],
)
def test_default_margins(metric: Metric, medians: tuple[float, float], size: float) -> None:
    """Requests differ from 20 ms on, round trips from 1 ms, connecting from 3 ms, and all by 5 %, on either side."""
    assert margin_of(metric).size(*medians) == margin_of(metric).size(*reversed(medians)) == size


def test_a_rule_replaces_what_it_sets() -> None:
    """A plan's rule for one metric sets its smallest size, its percentage or both, and leaves other metrics alone."""
    rules = (
        MarginRule(metric="ttft", least=5_000.0),
        MarginRule(metric="e2e", percent=10.0),
        MarginRule(metric="rtt", least=0.0, percent=0.0),
    )
    assert margin_of(Metric.TTFT, rules).size(50.0 * MS, 60.0 * MS) == 5.0 * MS
    assert margin_of(Metric.TTFT, rules).size(500.0 * MS, 600.0 * MS) == 25.0 * MS
    assert margin_of(Metric.E2E, rules).size(500.0 * MS, 600.0 * MS) == 50.0 * MS
    assert margin_of(Metric.RTT, rules).size(500.0 * MS, 600.0 * MS) == 0.0
    assert margin_of(Metric.TTFAT, rules) == margin_of(Metric.TTFAT)


@pytest.mark.parametrize("n", [1, 2, 15, 300])
def test_q_values_are_those_of_benjamini_and_hochberg(n: int) -> None:
    """They are min over j >= i of m·p(j)/j, at most 1, in the order of the p-values given."""
    p_values = np.random.default_rng(n).beta(0.5, 3.0, n)
    ascending = np.sort(p_values)
    by_definition = [
        min(1.0, *(n * ascending[ascending >= p] / (np.flatnonzero(ascending >= p) + 1))) for p in p_values
    ]
    assert q_values(p_values) == pytest.approx(by_definition, rel=1e-12)


def test_q_values_worked_out_by_hand() -> None:
    """Of the procedure's fifteen tests four have a q-value up to 5 %; a pair without a p-value does not count."""
    p_values = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344]
    p_values += [0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0]
    assert (q_values(np.array(p_values)) <= 0.05).sum() == 4
    found = q_values(np.array([np.nan, 0.02, np.nan, 0.04]))
    assert np.isnan(found).tolist() == [True, False, True, False]
    assert found[[1, 3]].tolist() == [0.04, 0.04]
    assert q_values(np.array([])).tolist() == []


def test_a_question_about_some_members_has_the_rates_of_all() -> None:
    """A member's rate depends on the family only; a comparison outside gets that of an additional member."""
    p_values = np.array([0.001, 0.02, 0.2, 0.0005, 0.9, np.nan])
    members = np.array([True, True, True, False, False, False])
    found, comparisons = family_rates(p_values, is_member=members)
    assert found[:3].tolist() == q_values(p_values[:3]).tolist()
    assert comparisons == 3
    assert found[3] == pytest.approx(q_values(p_values[:4])[3])
    assert found[4] == pytest.approx(q_values(p_values[[0, 1, 2, 4]])[3])
    assert np.isnan(found[5])


def test_a_family_that_was_not_read_has_the_largest_rate_possible() -> None:
    """Each p-value is multiplied by the number of comparisons, which is never less than what the procedure gives."""
    p_values = np.array([0.0001, 0.001, 0.04, np.nan])
    everything = np.ones(4, dtype=np.bool_)
    found, comparisons = family_rates(p_values, is_member=everything, size=30)
    assert found[:3] == pytest.approx([0.003, 0.03, 1.0])
    assert comparisons == 30
    assert (found[:3] >= q_values(np.concatenate([p_values[:3], np.full(27, 0.5)]))[:3]).all()
