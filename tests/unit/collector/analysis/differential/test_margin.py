"""Margins: defaults by metric, a plan's rules, and symmetry."""

import pytest

from isochrone_collector.analysis.differential.decision import margin_of
from isochrone_wire.answers import Metric
from isochrone_wire.model import MarginRule

MS = 1_000


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
def test_defaults(metric: Metric, medians: tuple[float, float], size: float) -> None:
    """Latencies of a request differ from 20 ms on, a round trip from 1 ms, connecting from 3 ms, and all by 5 %."""
    assert margin_of(metric).size(*medians) == size


@pytest.mark.parametrize("metric", Metric)
def test_the_margin_does_not_depend_on_the_baseline(metric: Metric) -> None:
    """Both sides give the same margin, whichever is the baseline."""
    margin = margin_of(metric)
    assert margin.size(400_000.0, 1_900_000.0) == margin.size(1_900_000.0, 400_000.0)


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
