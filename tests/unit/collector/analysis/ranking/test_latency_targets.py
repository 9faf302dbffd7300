"""Latency budgets: decided on the interval, with timeouts on whichever side they may be."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_collector.analysis.distribution import OutcomeCounts, Values
from isochrone_collector.analysis.ranking.latency_targets import USES, assess, eligible, needed
from isochrone_collector.analysis.ranking.leaderboard import Entry
from isochrone_wire.answers import Metric
from isochrone_wire.insights import Eligible, LatencyBudget

MS = 1000
USE = {use.name: use for use in USES}


def values(known: Sequence[float], limits: Sequence[float] = ()) -> Values:
    return Values(values=np.array(known, dtype=float), limits=np.array(limits, dtype=float))


def judged(use: str, found: Values, *, outcome_counts: OutcomeCounts | None = None) -> LatencyBudget:
    """The one line of a target with these values of the use's metric."""
    ending = outcome_counts or OutcomeCounts(ok=found.n)
    entry = Entry(
        region="us", target="t", provider="p", model="m", values={USE[use].metric: found}, outcome_counts=ending
    )
    [line] = assess([entry], [USE[use]])
    return line


def test_the_uses_are_the_published_ones() -> None:
    """Every published limit is there, in milliseconds, on the 95th percentile of TTFT or of the whole answer."""
    limits = {use.name: (use.metric.value, use.limit_us // MS) for use in USES}
    assert limits == {
        "edge": ("ttft", 100),
        "translation": ("ttft", 200),
        "voice": ("ttft", 300),
        "code": ("ttft", 500),
        "chat": ("ttft", 1000),
        "web": ("ttft", 3000),
        "inline": ("e2e", 500),
        "step": ("e2e", 5000),
        "agent": ("e2e", 30_000),
    }
    assert {use.share for use in USES} == {0.95}


@pytest.mark.parametrize(
    ("fast", "slow", "verdict"),
    [
        (59, 0, Eligible.YES),
        (58, 0, Eligible.UNKNOWN),
        (58, 1, Eligible.MAYBE),
        (0, 58, Eligible.UNKNOWN),
        (0, 59, Eligible.NO),
        (1000, 0, Eligible.YES),
        (960, 40, Eligible.MAYBE),
        (940, 60, Eligible.MAYBE),
        (970, 30, Eligible.YES),
        (930, 70, Eligible.NO),
    ],
)
def test_the_interval_decides(fast: int, slow: int, verdict: Eligible) -> None:
    """Yes needs the upper bound within the limit, no the lower one beyond; 59 samples make the first interval."""
    line = judged("voice", values([299.0 * MS] * fast + [301.0 * MS] * slow))
    assert line.eligible is verdict
    assert line.n == fast + slow


@given(
    st.lists(st.integers(min_value=1, max_value=600), min_size=0, max_size=150),
    st.lists(st.sampled_from([50, 300, 900]), max_size=20),
)
def test_counting_agrees_with_the_bounds(known: list[int], limits: list[int]) -> None:
    """Counting values within the limit says what comparing the interval's bounds says, where no timeout is in them."""
    found = values(known, limits)
    quantile = found.quantile(0.95)
    verdict = eligible(found, limit=300, share=0.95)
    if quantile is None or quantile.low is None or quantile.high is None:
        assert verdict is Eligible.UNKNOWN
    elif not limits:
        expected = Eligible.YES if quantile.high <= 300 else Eligible.NO if quantile.low > 300 else Eligible.MAYBE
        assert verdict is expected
    else:
        assert verdict is not Eligible.YES or quantile.high <= 300
        assert verdict is not Eligible.NO or quantile.low > 300 or min(limits) >= 300


def test_a_value_at_the_limit_is_within_it() -> None:
    """A use that can wait 300 ms can wait 300 ms."""
    assert judged("voice", values([300.0 * MS] * 60)).eligible is Eligible.YES


@pytest.mark.parametrize(
    ("timeout", "count", "verdict"),
    [
        (60_000 * MS, 59, Eligible.NO),
        (60_000 * MS, 3, Eligible.MAYBE),
        (300 * MS, 59, Eligible.NO),
        (200 * MS, 59, Eligible.MAYBE),
    ],
)
def test_timeouts_count(timeout: int, count: int, verdict: Eligible) -> None:
    """A timeout is too slow for every limit up to its own; whether it is for a larger one nobody knows."""
    assert judged("voice", values([100.0 * MS] * (60 if count < 59 else 0), [timeout] * count)).eligible is verdict


@pytest.mark.parametrize(
    ("found", "outcome_counts", "reason"),
    [
        (values([1.0] * 12), OutcomeCounts(ok=12), "12 of 59 samples"),
        (values([]), OutcomeCounts(failed=12), "0 of 59 samples; 12 of 12 probes failed"),
        (values([1.0] * 100), OutcomeCounts(ok=100), ""),
        (values([1.0] * 100), OutcomeCounts(ok=100, failed=5), ""),
        (values([1.0] * 100), OutcomeCounts(ok=100, failed=6), "6 of 106 probes failed and have no latency"),
        (values([1.0] * 95, [9e9] * 5), OutcomeCounts(ok=95, failed=5), ""),
        (values([9e9] * 100), OutcomeCounts(ok=100, failed=900), ""),
        (values([1.0] * 100), OutcomeCounts(ok=100, throttled=900, skipped=900), ""),
    ],
)
def test_failures_that_no_percentile_shows_are_told(found: Values, outcome_counts: OutcomeCounts, reason: str) -> None:
    """Too few samples, or more failures than may be slow, are said in words; throttled rounds are no failures."""
    assert judged("voice", found, outcome_counts=outcome_counts).reason == reason


def test_the_least_number_of_samples() -> None:
    """A 95 % interval takes 6 samples for a median, 59 for a p95 and 299 for a p99."""
    assert [needed(share) for share in (0.5, 0.95, 0.99)] == [6, 59, 299]


def test_a_line_for_each_entry_and_use() -> None:
    """Lines come by region, target and use; a metric without any value is unknown."""
    entries = [
        Entry(region=region, target=target, provider="p", model="m", values={Metric.TTFT: values([1.0] * 60)})
        for region, target in [("us", "b"), ("us", "a"), ("eu", "b")]
    ]
    lines = assess(entries, [USE["voice"], USE["inline"]])
    assert [(line.region, line.target, line.use, line.eligible.value) for line in lines] == [
        ("eu", "b", "voice", "yes"),
        ("eu", "b", "inline", "unknown"),
        ("us", "a", "voice", "yes"),
        ("us", "a", "inline", "unknown"),
        ("us", "b", "voice", "yes"),
        ("us", "b", "inline", "unknown"),
    ]
