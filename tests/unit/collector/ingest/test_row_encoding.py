"""Counts of a batch for Prometheus are those of its samples one by one."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isochrone_collector.analysis.probe_totals import ProbeTotals
from isochrone_collector.ingest.raw_push import decode_push
from isochrone_collector.ingest.row_encoding import count_probes
from isochrone_collector.ingest.sample_columns import SampleColumns
from isochrone_common.probe_metrics import ProbeCounts
from isochrone_wire import codec
from isochrone_wire.model import DAY_US, Batch, Outcome, Plan, Quality, RateLimit, Sample, Target, Vantage

AT = 1_795_248_000_000_000
DURATION = st.none() | st.integers(0, 200_000_000) | st.sampled_from([50_000, 300_000, 60_000_000, DAY_US])
COUNT = st.none() | st.integers(0, 20)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "target_id": st.sampled_from([7, 8, 9]),
    "round_at": st.just(AT),
    "dispatched_at": st.integers(AT, AT + 20),
    "outcome": st.sampled_from(Outcome),
    "quality": st.sampled_from([Quality.CLEAN, Quality.CACHED, Quality.CLOCK_STEPPED, Quality.BLOCKED]),
    **dict.fromkeys(("ttft_us", "ttfat_us", "e2e_us", "timeout_us"), DURATION),
    "tokens_per_second": st.none() | st.floats(0, 2_000),
    **dict.fromkeys(("prompt_tokens", "cached_tokens"), COUNT),
    "ratelimit": st.none() | st.builds(RateLimit, remaining_requests=COUNT, limit_tokens=COUNT, retry_after_us=COUNT),
}
SAMPLE = st.builds(Sample, **VALUES)


def columns_of(samples: list[Sample]) -> SampleColumns:
    batch = Batch(vantage=Vantage(name="v", region="us"), epoch=1, seq=1, samples=tuple(samples))
    return decode_push(codec.encode(batch).SerializeToString(), AT).decode_columns()


def totals() -> ProbeTotals:
    targets = tuple(Target(id=one, name=f"t{one}", provider="p", model="m", base_url="http://h") for one in (7, 8, 9))
    plan = Plan(version=1, baseline="us", targets=targets)
    return ProbeTotals(lambda: plan)


@settings(max_examples=40)
@given(st.lists(st.lists(SAMPLE, min_size=1, max_size=12), min_size=1, max_size=3))
def test_columns_count_as_samples_do(batches: list[list[Sample]]) -> None:
    """Any batches give the same numbers as adding their samples one after the other, in the order of their dispatch."""
    ours, expected = totals(), defaultdict[str, ProbeCounts](ProbeCounts)
    for samples in batches:
        columns = columns_of(samples)
        ours.add("us", count_probes(columns), samples=len(samples))
        for sample in sorted(samples, key=lambda one: one.dispatched_at):
            expected[f"t{sample.target_id}"].add(sample)
    found = {labels[1]: counts for labels, counts in ours.series()}
    assert found.keys() == expected.keys()
    for name, counts in found.items():
        other = expected[name]
        assert counts.counts == other.counts
        assert counts.sums == pytest.approx(other.sums)
        assert counts.last_success_at == other.last_success_at
        for part in ("remaining_requests", "limit_tokens"):
            assert getattr(counts.limits, part) == getattr(other.limits, part, None)


def test_only_chosen_rows_count() -> None:
    """Samples that were rejected or set aside are in no metric."""
    samples = [Sample(target_id=7, round_at=AT, dispatched_at=AT, outcome=Outcome.OK, ttft_us=1)] * 3
    counted = count_probes(columns_of(samples).select(np.array([0, 2])))
    assert counted.target_ids.tolist() == [7]
    assert counted.counts[0, 0] == 2
    nothing = count_probes(columns_of(samples).select(np.array([], np.int64)))
    assert (len(nothing.target_ids), nothing.counts.sum()) == (0, 0)
