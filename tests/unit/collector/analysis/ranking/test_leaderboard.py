"""Leaderboards: ranked within a region, and honest about targets that did not answer."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from isochrone_collector.analysis.distribution import OutcomeCounts, Values, outcome_counts
from isochrone_collector.analysis.ranking.leaderboard import Entry, standings
from isochrone_wire.answers import Metric, Order

TEN = range(1, 11)


def values(known: Sequence[float], limits: Sequence[float] = ()) -> Values:
    return Values(values=np.array(known, dtype=float), limits=np.array(limits, dtype=float))


def entry(target: str, region: str = "us", ttft: Sequence[float] = (), **more: object) -> Entry:
    limits = more.pop("limits", ())
    speed = more.pop("speed", ())
    found = {Metric.TTFT: values(ttft, limits), Metric.TOKENS_PER_SECOND: values(speed)}  # type: ignore[arg-type]  # a test's shorthand
    return Entry(region=region, target=target, provider="sim", model=target, values=found, **more)  # type: ignore[arg-type]  # as above


def test_ranks_count_within_each_region() -> None:
    """Each region has its own order, from the smallest median up."""
    lines = standings(
        [
            entry("slow", ttft=[900.0]),
            entry("fast", ttft=[100.0]),
            entry("slow", "sg", ttft=[10.0]),
            entry("fast", "sg", ttft=[20.0]),
        ]
    )
    assert [(line.region, line.rank, line.target) for line in lines] == [
        ("sg", 1, "slow"),
        ("sg", 2, "fast"),
        ("us", 1, "fast"),
        ("us", 2, "slow"),
    ]


def test_a_target_that_never_answered_comes_last() -> None:
    """Without a first token there is no time to rank by, and no number is made up."""
    lines = standings(
        [entry("dead", limits=[60.0], outcome_counts=OutcomeCounts(failed=4)), entry("alive", ttft=[1e9])]
    )
    assert [line.target for line in lines] == ["alive", "dead"]
    assert (lines[1].n, lines[1].failed, lines[1].ttft_p50_us) == (0, 4, None)


def test_timeouts_raise_the_tail() -> None:
    """Probes that timed out count above all others in the quantiles, and not in n."""
    [line] = standings([entry("a", ttft=[100.0] * 9, limits=[5_000.0], outcome_counts=OutcomeCounts(ok=9, failed=1))])
    assert line.n == 9
    assert line.ttft_p50_us is not None
    assert line.ttft_p95_us is not None
    assert (line.ttft_p50_us.value, line.ttft_p95_us.value) == (100.0, 5_000.0)


def test_small_samples_show_no_bounds() -> None:
    """Five probes have a median and no interval; sixty have one for p95 too, and for p99 it takes 299."""
    [few] = standings([entry("a", ttft=[1.0, 2.0, 3.0, 4.0, 5.0], speed=[50.0])])
    [many] = standings([entry("a", ttft=list(map(float, range(60))))])
    [most] = standings([entry("a", ttft=list(map(float, range(299))))])
    assert few.ttft_p50_us is not None
    assert (few.ttft_p50_us.value, few.ttft_p50_us.low) == (3.0, None)
    assert few.tokens_per_second_p50 is not None
    assert few.tokens_per_second_p50.value == 50.0
    assert many.ttft_p95_us is not None
    assert many.ttft_p95_us.high is not None
    assert many.ttft_p99_us is not None
    assert many.ttft_p99_us.high is None
    assert most.ttft_p99_us is not None
    assert most.ttft_p99_us.high is not None


@pytest.mark.parametrize(
    ("order", "ranking"),
    [
        (Order.TTFT, "a b c new none"),
        (Order.TOKENS_PER_SECOND, "c b a new none"),
        (Order.TOKENS_PER_USD, "free a c b none"),
        (Order.PRICE, "free a c b new none"),
        (Order.SUCCESS, "b a new none"),
    ],
)
def test_each_order_ranks_by_its_own(order: Order, ranking: str) -> None:
    """What has no interval yet comes after what has one, and what is not known last; what is free comes first."""
    everybody = [
        entry(
            "a",
            ttft=[100.0] * 10,
            speed=[20.0] * 10,
            usd_per_m_output=0.2,
            outcome_counts=OutcomeCounts(ok=990, failed=10),
        ),
        entry("b", ttft=[200.0] * 10, speed=[30.0] * 10, usd_per_m_output=2.0, outcome_counts=OutcomeCounts(ok=1000)),
        entry("c", ttft=[300.0] * 10, speed=[90.0] * 10, usd_per_m_output=1.0),
        entry("free", ttft=[400.0] * 10, speed=[10.0] * 10, usd_per_m_output=0.0),
        entry("new", ttft=[1.0] * 3, speed=[999.0] * 3, usd_per_m_output=9.0, outcome_counts=OutcomeCounts(ok=3)),
        entry("none"),
    ]
    wanted = [item for item in everybody if item.target in ranking.split()]
    assert [line.target for line in standings(wanted, order)] == ranking.split()


@pytest.mark.parametrize(
    ("order", "metric"), [(Order.TTFT_COLD, Metric.TTFT_COLD), (Order.TTFAT, Metric.TTFAT), (Order.E2E, Metric.E2E)]
)
def test_other_latencies_rank_too(order: Order, metric: Metric) -> None:
    """A latency that is not TTFT ranks by its own median, whatever TTFT says."""

    def with_both(target: str, *, ttft: float, other: float) -> Entry:
        found: Mapping[Metric, Values] = {Metric.TTFT: values([ttft] * 6), metric: values([other] * 6)}
        return Entry(region="us", target=target, provider="p", model="m", values=found)

    lines = standings([with_both("a", ttft=1, other=9), with_both("b", ttft=5, other=2)], order)
    assert [line.target for line in lines] == ["b", "a"]


@pytest.mark.parametrize(
    ("usd", "ratio"),
    [(0.5, 80.0), (0.0, None), (None, None)],
)
def test_speed_for_money(usd: float | None, ratio: float | None) -> None:
    """Speed per dollar is the median speed by the price of a million output tokens, and nothing without a price."""
    [line] = standings([entry("a", speed=[40.0] * 6, usd_per_m_output=usd)])
    assert line.tokens_per_second_per_usd == ratio


def test_success_leaves_out_what_says_nothing() -> None:
    """Throttled and skipped rounds are counted, and are neither successes nor failures."""
    outcomes = {"ok": 90, "http_error": 4, "timed_out": 6, "throttled": 50, "skipped_budget": 7, "skipped_paused": 3}
    [line] = standings([entry("a", outcome_counts=outcome_counts(outcomes))])
    assert line.success is not None
    assert (line.success.value, line.success.n, line.failed) == (0.9, 100, 10)
    assert 0.82 < line.success.low < 0.9 < line.success.high < 0.95
    assert (line.throttled, line.skipped) == (50, 10)


def test_no_trial_no_success() -> None:
    """Where every round was throttled, nothing is known of success."""
    [line] = standings([entry("a", outcome_counts=outcome_counts({"throttled": 9}))])
    assert line.success is None
