"""Totals of probes: per target and region, of the plan in force, and never more series than allowed."""

import numpy as np
import pytest

from isochrone_collector.analysis import probe_totals
from isochrone_collector.analysis.probe_totals import UNKNOWN, BatchCounts, ProbeTotals
from isochrone_common.probe_metrics import HISTOGRAMS, LIMITS, OFFSETS
from isochrone_wire.model import Plan, Target


def plan(*ids: int, name: str = "t") -> Plan:
    targets = [Target(id=one, name=f"{name}{one}", provider="p", model="m", base_url="http://h") for one in ids]
    return Plan(version=1, baseline="us", targets=tuple(targets))


def batch(*ids: int, ok: int = 1) -> BatchCounts:
    counts = np.zeros((len(ids), OFFSETS[-1]), np.uint16)
    counts[:, 0] = ok
    return BatchCounts(
        target_ids=np.array(ids, np.int64),
        counts=counts,
        sums=np.zeros((len(ids), len(HISTOGRAMS))),
        last_success_at=np.full(len(ids), 5, np.int64),
        limits=np.full((len(ids), len(LIMITS)), UNKNOWN, np.int64),
        limits_at=np.zeros(len(ids), np.int64),
    )


def found(totals: ProbeTotals) -> dict[tuple[str, str], int]:
    return {(labels[0], labels[1]): counts.counts[0] for labels, counts in totals.series()}


def test_batches_add_up_by_region() -> None:
    """A target has a series per region, and more than 65 535 probes in one do not overflow."""
    current = plan(1, 2)
    totals = ProbeTotals(lambda: current)
    for _ in range(8):
        totals.add("us", batch(1, 2, ok=10_000), samples=20_000)
    totals.add("eu", batch(2), samples=1)
    assert found(totals) == {("us", "t1"): 80_000, ("us", "t2"): 80_000, ("eu", "t2"): 1}
    assert totals.left_out == {}


def test_a_new_plan_renames_and_removes() -> None:
    """A renamed target keeps its counts; one that leaves the plan loses its series, and begins anew when it is back."""
    current = plan(1, 2)
    totals = ProbeTotals(lambda: current)
    totals.add("us", batch(1, 2), samples=2)
    current = plan(1, name="new")
    assert found(totals) == {("us", "new1"): 1}
    totals.add("us", batch(2, ok=3), samples=3)
    assert totals.left_out == {"not_in_plan": 3}
    current = plan(1, 2)
    totals.add("us", batch(2, ok=4), samples=4)
    assert found(totals) == {("us", "t1"): 1, ("us", "t2"): 4}


def test_the_number_of_series_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit of series samples are counted as left out, and so are those of a batch stored in part."""
    monkeypatch.setattr(probe_totals, "MAX_SERIES", 2)
    current = plan(1, 2, 3)
    totals = ProbeTotals(lambda: current)
    totals.add("us", batch(1, 2, 3, ok=5), samples=15)
    assert found(totals) == {("us", "t1"): 5, ("us", "t2"): 5}
    assert totals.left_out == {"limit": 5}
    current = plan(2, 3)
    totals.add("us", batch(3), samples=1)
    assert found(totals) == {("us", "t2"): 5, ("us", "t3"): 1}
    totals = ProbeTotals(plan)
    totals.add("us", None, samples=7)
    assert totals.left_out == {"partly_stored": 7}
