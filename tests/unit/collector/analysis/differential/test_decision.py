"""Decisions on shifts, and their correction for many comparisons."""

import numpy as np
import pytest

from isochrone_collector.analysis.differential.decision import adjusted_for_comparisons, decide, margin_of, q_values
from isochrone_collector.analysis.stats.paired import Shift
from isochrone_wire.answers import Decision, Metric

MS = 1_000


@pytest.mark.parametrize(
    ("low", "estimate", "high", "decision", "reason"),
    [
        (30, 40, 50, Decision.SLOWER, ""),
        (-50, -40, -30, Decision.FASTER, ""),
        (5, 20, 35, Decision.SLOWER, ""),
        (-10, 0, 10, Decision.EQUIVALENT, ""),
        (5, 10, 15, Decision.EQUIVALENT, ""),
        (-20, 0, 20, Decision.EQUIVALENT, ""),
        (-10, 20, 50, Decision.UNDECIDED, "the interval includes zero, and also differences that matter"),
        (0, 20, 50, Decision.UNDECIDED, "the interval includes zero, and also differences that matter"),
        (1, 19, 40, Decision.UNDECIDED, "the interval excludes zero, but the difference may be too small to matter"),
    ],
)
def test_decisions(low: float, estimate: float, high: float, decision: Decision, reason: str) -> None:
    """An interval that excludes zero and a large shift is a difference, one within the margin is equivalent."""
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


@pytest.mark.parametrize("n", [1, 2, 15, 300])
def test_q_values_are_those_of_benjamini_and_hochberg(n: int) -> None:
    """They are min over j >= i of m·p(j)/j, at most 1, in the order of the p-values given."""
    p_values = np.random.default_rng(n).beta(0.5, 3.0, n)
    ascending = np.sort(p_values)
    by_definition = [
        min(1.0, *(n * ascending[ascending >= p] / (np.flatnonzero(ascending >= p) + 1))) for p in p_values
    ]
    assert q_values(p_values) == pytest.approx(by_definition, rel=1e-12)


def test_one_comparison_needs_no_correction() -> None:
    """A single p-value is its own q-value."""
    assert q_values(np.array([0.03])).tolist() == [0.03]


def test_q_values_worked_out_by_hand() -> None:
    """The procedure's own example: of fifteen tests, those with a q-value up to 5 % are the first four."""
    p_values = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344]
    p_values += [0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0]
    assert (q_values(np.array(p_values)) <= 0.05).sum() == 4


def test_comparisons_without_a_p_value_do_not_count() -> None:
    """A pair without a p-value has no q-value and does not count among the comparisons."""
    found = q_values(np.array([np.nan, 0.02, np.nan, 0.04]))
    assert np.isnan(found).tolist() == [True, False, True, False]
    assert found[[1, 3]].tolist() == [0.04, 0.04]
    assert q_values(np.array([])).tolist() == []
