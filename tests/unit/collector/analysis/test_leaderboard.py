"""Leaderboards: ranked within a region, and honest about targets that did not answer."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from isochrone_collector.analysis import histogram
from isochrone_collector.analysis.distribution import OutcomeCounts, Values, outcome_counts
from isochrone_collector.analysis.history import (
    HOURS,
    NO_HISTORY,
    SUCCESS,
    History,
    Levels,
    Quantity,
    SeriesLevels,
    above_quantile,
)
from isochrone_collector.analysis.leaderboard import Entry, standings, tier_lines, tier_of
from isochrone_wire.answers import Metric, Order
from testdata.columns import present, values_of
from testdata.series import SERIES

TEN = range(1, 11)


def entry(target: str, region: str = "us", ttft: Sequence[float] = (), **more: object) -> Entry:
    """An entry from samples; its probes succeed and fail in turn."""
    limits = more.pop("limits", ())
    speed = more.pop("speed", ())
    found = {Metric.TTFT: values_of(ttft, limits), Metric.TOKENS_PER_SECOND: values_of(speed)}  # type: ignore[arg-type]  # a test's shorthand
    counts = more.get("outcome_counts", OutcomeCounts())
    assert isinstance(counts, OutcomeCounts)
    succeeded = np.random.default_rng(1).permutation(np.arange(counts.sent) < counts.ok)
    return Entry(region=region, target=target, provider="sim", model=target, values=found, succeeded=succeeded, **more)  # type: ignore[arg-type]  # as above


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


def ranks(entries: Sequence[Entry], order: Order = Order.TTFT, history: History = NO_HISTORY) -> dict[str, str]:
    lines = standings(entries, order, history)
    assert [line.rank for line in lines] == list(range(1, len(lines) + 1))
    assert all(present(line.rank_low) <= line.rank <= present(line.rank_high) for line in lines)
    return {line.target: f"{line.rank_low}-{line.rank_high}" for line in lines}


def latencies(median: float, seed: int, *, n: int = 200) -> list[float]:
    return list(median + 20 * np.random.default_rng(seed).standard_normal(n))


def test_neighbours_that_the_data_do_not_order_share_their_ranks() -> None:
    """Neighbours that the data do not order share ranks; without an interval they share those that are left."""
    near = [entry(name, ttft=latencies(100 + seed, seed)) for seed, name in enumerate("abc")]
    assert ranks([*near, entry("far", ttft=latencies(300, 9))]) == {"a": "1-3", "b": "1-3", "c": "1-3", "far": "4-4"}
    two = [entry("a", ttft=latencies(100, 1)), entry("b", ttft=latencies(108, 2))]
    assert ranks(two) == {"a": "1-1", "b": "2-2"}
    assert ranks([*two, *(entry(f"far {n}", ttft=latencies(300, n)) for n in range(40))])["a"] == "1-2"
    few = [entry("young", ttft=[1.0] * 3), entry("new", ttft=[2.0])]
    found = ranks([entry("a", ttft=latencies(100, 1)), *few, entry("dead"), entry("gone")])
    assert found == {"a": "1-1", "young": "2-3", "new": "2-3", "dead": "4-5", "gone": "4-5"}


def test_prices_are_exact() -> None:
    """Targets of one price share a rank, the faster first; no other gives as many tokens as a free one."""
    dear, slow, fast = (
        entry(name, ttft=[ttft] * 6, usd_per_m_output=usd)
        for name, ttft, usd in (("dear", 1.0, 2.0), ("slow", 9.0, 0.5), ("fast", 5.0, 0.5))
    )
    assert ranks([dear, slow, fast], Order.PRICE) == {"fast": "1-2", "slow": "1-2", "dear": "3-3"}
    entries = [
        entry(name, speed=latencies(median, seed), usd_per_m_output=usd)
        for seed, (name, median, usd) in enumerate(
            [("a", 500, 0.5), ("b", 500, 1.0), ("gift", 90, 0.0), ("boon", 80, 0.0)]
        )
    ]
    assert ranks(entries, Order.TOKENS_PER_USD) == {"boon": "1-2", "gift": "1-2", "a": "3-3", "b": "4-4"}


def test_more_speed_and_more_success_rank_first() -> None:
    """Where more is better the greatest value is first; 3 of 3 may be the best, though it comes last."""
    speeds = [entry(name, speed=latencies(median, 3)) for name, median in (("slow", 300), ("fast", 500), ("mean", 302))]
    assert ranks(speeds, Order.TOKENS_PER_SECOND) == {"fast": "1-1", "mean": "2-3", "slow": "2-3"}
    counts = {"good": (998, 2), "bad": (800, 200), "young": (3, 0)}
    entries = [entry(name, outcome_counts=OutcomeCounts(ok=ok, failed=failed)) for name, (ok, failed) in counts.items()]
    assert ranks(entries, Order.SUCCESS) == {"good": "1-2", "bad": "2-3", "young": "1-3"}


@pytest.mark.parametrize(
    ("order", "metric", "name"),
    [(Order.TTFT, Metric.TTFT, "ttft"), (Order.TOKENS_PER_SECOND, Metric.TOKENS_PER_SECOND, "speed")],
)
def test_drift_that_all_rows_show_widens_ranks_without_a_week(order: Order, metric: Metric, name: str) -> None:
    """Slow waves in some rows are expected in calm ones too, unless a calm week says that there are none."""

    def of(target: str, values: Sequence[float]) -> Entry:
        return entry(target, **{name: values})  # type: ignore[arg-type]  # either of two names

    wave, sign = 60 * np.sin(np.arange(200) / 30), -1 if metric.more_is_better else 1
    calm = [of("a", latencies(1000, 1)), of("b", latencies(1000 + 25 * sign, 2))]
    waving = [of(f"w{n}", list(wave * (-1) ** n + latencies(1000 + 400 * sign, n))) for n in range(10)]
    calm_week = week_of((0.5, 0.5), above_quantile(metric, 0.5))
    assert ranks(calm, order) == {"a": "1-1", "b": "2-2"}
    assert ranks([*calm, *waving], order)["a"] == "1-2"
    assert ranks([*calm, *waving], order, calm_week)["a"] == "1-1"
    near = [of("a", latencies(1000, 1)), of("b", latencies(1000 + sign, 2))]
    assert ranks([*near, *waving], order, calm_week)["a"] == "1-2"


def test_runs_of_failures_widen_ranks_without_a_week() -> None:
    """If failures of other targets come in runs, one without any may have missed its own."""
    clean = entry("clean", outcome_counts=OutcomeCounts(ok=300))
    some = entry("some", outcome_counts=OutcomeCounts(ok=285, failed=15))
    runs = [
        replace(entry(f"r{n}", outcome_counts=OutcomeCounts(ok=200, failed=100)), succeeded=np.arange(300) % 100 >= 33)
        for n in range(8)
    ]
    assert ranks([clean, some], Order.SUCCESS) == {"clean": "1-1", "some": "2-2"}
    assert ranks([clean, some, *runs], Order.SUCCESS)["clean"] == "1-10"


def test_a_target_that_never_answered_comes_last() -> None:
    """Without a first token there is no time to rank by; timeouts rank above all others, and are not in n."""
    lines = standings(
        [entry("dead", limits=[60.0], outcome_counts=OutcomeCounts(failed=4)), entry("alive", ttft=[1e9])]
    )
    assert [line.target for line in lines] == ["alive", "dead"]
    assert (lines[1].n, lines[1].failed, lines[1].ttft_p50_us) == (0, 4, None)
    [line] = standings([entry("a", ttft=[100.0] * 9, limits=[5_000.0], outcome_counts=OutcomeCounts(ok=9, failed=1))])
    assert line.n == 9
    assert (present(line.ttft_p50_us).value, present(line.ttft_p95_us).value) == (100.0, 5_000.0)


def steady(n: int) -> list[float]:
    return [float(value) + 1 for value in np.argsort(np.random.default_rng(0).permutation(n))]


def test_small_samples_show_no_bounds() -> None:
    """Five probes have a median and no interval; above it, any number has only a lower bound without a week."""
    [few] = standings([entry("a", ttft=[1.0, 2.0, 3.0, 4.0, 5.0], speed=[50.0])])
    [many] = standings([entry("a", ttft=steady(130))])
    assert (present(few.ttft_p50_us).value, present(few.ttft_p50_us).low) == (3.0, None)
    assert present(few.tokens_per_second_p50).value == 50.0
    assert present(many.ttft_p50_us).high is not None
    for quantile in (present(many.ttft_p95_us), present(many.ttft_p99_us)):
        assert present(quantile.low) < quantile.value
        assert quantile.high is None


def week_of(levels: Sequence[float], quantity: Quantity) -> History:
    """The past week of target 0 in "us": these levels in turn, each for a day, but for the last hours."""
    values = np.resize(np.repeat(levels, 24), HOURS).astype(float)
    own = Levels(values=values[np.newaxis], noise=np.zeros(1))
    return History(levels={quantity: SeriesLevels(series={(0, "us"): 0}, from_at=np.zeros(1, np.int64), levels=own)})


def test_the_past_week_widens_an_interval() -> None:
    """The past week widens an interval; timeouts rank in the median, and are no independent first tokens."""
    history = week_of((0.2, 0.8), above_quantile(Metric.TTFT, 0.5))
    here, there = entry("a", ttft=steady(288), hours=24.0), entry("a", "sg", ttft=steady(288), hours=24.0)
    by_region = {line.region: line.ttft_p50_us for line in standings([here, there], history=history)}
    assert by_region["us"] is not None
    assert present(by_region["us"].n_eff) < 6
    assert by_region["us"].low is None
    assert present(by_region["sg"]).low is not None
    [line] = standings([entry("a", ttft=SERIES["negative correlation"][:40].tolist(), limits=[6e7] * 19)])
    assert line.n == 40
    assert present(present(line.ttft_p50_us).n_eff) <= 40 / 1.5


def test_failures_in_a_run_widen_success() -> None:
    """Thirty failures in a row are one outage; a week with outages says so of a day without any."""
    counts, outage = OutcomeCounts(ok=270, failed=30), np.arange(300) >= 30
    spread = np.random.default_rng(2).permutation(outage)
    runs, alone = (
        standings([replace(entry("a", ttft=steady(300), outcome_counts=counts), succeeded=flags)])[0].success
        for flags in (outage, spread)
    )
    assert runs is not None
    assert alone is not None
    assert (runs.value, alone.value, runs.n, alone.n) == (0.9, 0.9, 300, 300)
    assert runs.high - runs.low > 3 * (alone.high - alone.low)
    assert present(runs.n_eff) < 10
    well = entry("a", ttft=steady(288), outcome_counts=OutcomeCounts(ok=288), hours=24.0)
    [told] = standings([well], history=week_of((1.0, 1.0, 0.7), SUCCESS))
    assert told.success is not None
    assert (told.success.value, told.success.high) == (1.0, 1.0)
    assert told.success.low < 0.75


def test_summaries_do_not_know_the_order_of_their_requests() -> None:
    """Without a history, all requests of an hour count as one: a day with one a second is worth 24."""
    content = histogram.pack(np.random.default_rng(4).lognormal(12, 0.3, 86_400))
    summary = histogram.merge([content], [b""], [0], of=1).group(0)
    counts = OutcomeCounts(ok=86_000, failed=400)
    day = replace(entry("a", outcome_counts=counts), values={Metric.TTFT: summary}, succeeded=None, hours=24.0)
    [line] = standings([day])
    assert present(line.ttft_p50_us).n_eff == pytest.approx(24, abs=0.1)
    assert present(line.success).n_eff == pytest.approx(24, abs=0.1)
    assert present(line.ttft_p50_us).low is not None
    assert present(line.ttft_p95_us).high is None
    calm = week_of((0.5, 0.51), above_quantile(Metric.TTFT, 0.5))
    [told] = standings([day], history=calm)
    assert present(present(told.ttft_p50_us).n_eff) > 1_000


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
        found = {Metric.TTFT: values_of([ttft] * 6), metric: values_of([other] * 6)}
        return Entry(region="us", target=target, provider="p", model="m", values=found, succeeded=np.ones(6, bool))

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
    assert 0.75 < line.success.low < 0.9 < line.success.high < 0.96
    assert (line.throttled, line.skipped) == (50, 10)
    [none] = standings([entry("a", outcome_counts=outcome_counts({"throttled": 9}))])
    assert none.success is None


@pytest.mark.parametrize(
    ("usd", "tier"),
    [
        (None, "unpriced"),
        (0.0, "free"),
        (1e-9, "nearly free"),
        (0.01, "nearly free"),
        (0.1499, "nearly free"),
        (0.15, "sweet spot"),
        (0.2999, "sweet spot"),
        (0.30, "quality first"),
        (0.7999, "quality first"),
        (0.80, "premium"),
        (75.0, "premium"),
    ],
)
def test_every_price_has_one_tier(usd: float | None, tier: str) -> None:
    """A price at a boundary belongs to the dearer tier; only nothing is free, and no price is no tier of others."""
    assert tier_of(usd) == tier


def priced(target: str, usd: float | None, *, ttft: float = 1.0, speed: float = 50.0, region: str = "us") -> Entry:
    found = {
        Metric.TTFT: Values.uncensored(np.full(6, ttft)),
        Metric.TOKENS_PER_SECOND: Values.uncensored(np.full(6, speed)),
    }
    return Entry(
        region=region,
        target=target,
        provider="p",
        model="m",
        values=found,
        usd_per_m_output=usd,
        succeeded=np.ones(6, bool),
    )


def test_targets_are_ranked_within_their_tier_and_region() -> None:
    """The cheapest tier comes first; in it each region has its own order, by median TTFT."""
    lines = tier_lines(
        [
            priced("dear", 3.0, ttft=1),
            priced("slow", 0.2, ttft=9),
            priced("fast", 0.25, ttft=5),
            priced("slow", 0.2, ttft=1, region="eu"),
            priced("fast", 0.25, ttft=5, region="eu"),
            priced("unknown", None),
            priced("gift", 0.0),
        ]
    )
    assert [(line.tier, line.region, line.rank, line.target) for line in lines] == [
        ("free", "us", 1, "gift"),
        ("sweet spot", "eu", 1, "slow"),
        ("sweet spot", "eu", 2, "fast"),
        ("sweet spot", "us", 1, "fast"),
        ("sweet spot", "us", 2, "slow"),
        ("premium", "us", 1, "dear"),
        ("unpriced", "us", 1, "unknown"),
    ]


def test_a_line_says_what_a_dollar_gives() -> None:
    """Speed and speed per dollar stand in the line; what costs nothing has no ratio."""
    [gift, paid] = tier_lines([priced("paid", 0.5, speed=40.0), priced("gift", 0.0)])
    assert (present(paid.tokens_per_second_p50).value, paid.tokens_per_second_per_usd, paid.n) == (40.0, 80.0, 6)
    assert gift.tokens_per_second_per_usd is None
