"""Latency targets: decided on the interval of goodput, with timeouts on whichever side they may be."""

from dataclasses import replace

import numpy as np
import pytest

from bench.truth import verdicts
from isochrone_collector.analysis.distribution import OutcomeCounts, Values
from isochrone_collector.analysis.goodput import Ending
from isochrone_collector.analysis.history import (
    HOURS,
    NO_HISTORY,
    SHARES,
    SUCCESS,
    History,
    Levels,
    Quantity,
    SeriesLevels,
    above_quantile,
)
from isochrone_collector.analysis.latency_targets import USES, MeasuredRequests, assess
from isochrone_collector.analysis.leaderboard import Entry
from isochrone_collector.analysis.stats.arrays import Reals
from isochrone_wire.answers import Metric
from isochrone_wire.insights import Eligible, LatencyBudget
from testdata.columns import present, requests_of, values_of
from testdata.series import DAY, SERIES

MS = 1000
# Summaries of so many hours take no request for another's neighbour.
LONG_AGO = float("inf")
USE = {use.name: use for use in USES}


def judged(use: str, found: Values, *, outcome_counts: OutcomeCounts | None = None) -> LatencyBudget:
    """The one line of a target with these values of the use's metric."""
    ending = outcome_counts or OutcomeCounts(ok=found.known, failed=found.n - found.known)
    entry = Entry(
        region="us",
        target="t",
        provider="p",
        model="m",
        values={USE[use].metric: found},
        outcome_counts=ending,
        hours=LONG_AGO,
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
    """Yes needs an interval from 95 % on, no one below; 59 samples make a verdict; a value at the limit is in time."""
    line = judged("voice", values_of([300.0 * MS] * fast + [301.0 * MS] * slow))
    assert line.eligible is verdict
    assert line.n == fast + slow


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
    assert judged("voice", values_of([100.0 * MS] * (60 if count < 59 else 0), [timeout] * count)).eligible is verdict


@pytest.mark.parametrize(
    ("found", "outcome_counts", "reason"),
    [
        (values_of([1.0] * 12), OutcomeCounts(ok=12), "12 of 59 samples"),
        (values_of([]), OutcomeCounts(failed=12), "12 of 59 samples; 12 of 12 requests failed"),
        (values_of([1.0] * 100), OutcomeCounts(ok=100), ""),
        (values_of([1.0] * 100), OutcomeCounts(ok=100, failed=5), ""),
        (values_of([1.0] * 100), OutcomeCounts(ok=100, failed=6), "6 of 106 requests failed"),
        (values_of([1.0] * 95, [9e9] * 5), OutcomeCounts(ok=95, failed=5), ""),
        (values_of([1.0] * 100), OutcomeCounts(ok=100, skipped=900), ""),
        (values_of([1.0] * 100), OutcomeCounts(ok=100, throttled=9), "9 of 109 requests were throttled"),
    ],
)
def test_failures_that_no_percentile_shows_are_told(found: Values, outcome_counts: OutcomeCounts, reason: str) -> None:
    """Too few samples, and more failures or refusals than may be slow, are said in words; skipped rounds are not."""
    assert judged("voice", found, outcome_counts=outcome_counts).reason == reason


def test_failures_of_every_kind_count_as_too_slow() -> None:
    """Who fails 41 % is not fast enough, however fast the others; summaries take as many off the fast ones."""
    line = judged("voice", values_of([100.0 * MS] * 59), outcome_counts=OutcomeCounts(ok=59, failed=41))
    assert (line.eligible, line.n, line.goodput and line.goodput.value) == (Eligible.NO, 100, 0.59)
    line = judged("voice", values_of([100.0 * MS] * 70), outcome_counts=OutcomeCounts(ok=60, failed=10))
    assert (line.n, line.goodput and line.goodput.value) == (70, 60 / 70)


def test_samples_and_summaries_agree() -> None:
    """Samples and summaries count the same; only samples show that failures come in a run and count as fewer."""
    ttft_us = np.array([100.0 * MS] * 80 + [900.0 * MS] * 10 + [np.nan] * 20)
    requests = requests_of(
        ttft_us.tolist(), [Ending.ANSWERED] * 90 + [Ending.FAILED] * 20, ceiling_us=[np.nan] * 100 + [6e7] * 10
    )
    [measured] = assess([MeasuredRequests(region="us", target="t", requests=requests)], [USE["voice"]])
    known = values_of([100.0 * MS] * 80 + [900.0 * MS] * 10, [6e7] * 10)
    summarised = judged("voice", known, outcome_counts=OutcomeCounts(ok=90, failed=20))
    assert (measured.n, present(measured.goodput).value) == (summarised.n, present(summarised.goodput).value)
    assert summarised.n_eff == 110
    assert present(measured.n_eff) < 20


def test_a_line_for_each_entry_and_use() -> None:
    """Lines come by region, target and use; a metric without any value is unknown."""
    entries = [
        Entry(
            region=region,
            target=target,
            provider="p",
            model="m",
            values={Metric.TTFT: values_of([1.0] * 60)},
            outcome_counts=OutcomeCounts(ok=60),
            hours=LONG_AGO,
        )
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


def levels(values: Reals, quantile: float) -> SeriesLevels:
    """The levels of target 1 in "us" in the past week."""
    return SeriesLevels(
        series={(1, "us"): 0},
        from_at=np.zeros(1, np.int64),
        levels=Levels(values=values[np.newaxis], noise=np.zeros(1)),
        quantile=np.array([quantile]),
    )


def bursts(quantiles_ms: tuple[float, ...], *, share: float = 0.5) -> History:
    """A week in which all slow requests came within a few hours, with these quantiles; all requests succeeded."""
    found: dict[Quantity, SeriesLevels] = {SUCCESS: levels(np.ones(HOURS), np.nan)}
    for own, value in zip(SHARES, quantiles_ms, strict=True):
        slow = np.arange(HOURS) % round(share / (1 - own)) == 0
        found[above_quantile(Metric.TTFT, own)] = levels(slow * share, value * MS)
    return History(levels=found)


def measured(
    ttft_ms: Reals, *, limit_ms: float = 300.0, every_s: int = 300, history: History = NO_HISTORY
) -> LatencyBudget:
    """The line of requests under a limit; those without a first token waited for a minute."""
    hung = np.isnan(ttft_ms)
    requests = requests_of(
        (ttft_ms * MS).tolist(),
        [Ending.FAILED if lost else Ending.ANSWERED for lost in hung.tolist()],
        ceiling_us=np.where(hung, 6e7, np.nan).tolist(),
        every_us=every_s * 1_000_000,
    )
    use = replace(USE["voice"], limit_us=round(limit_ms * MS))
    [line] = assess([MeasuredRequests(target_id=1, region="us", target="t", requests=requests)], [use], history)
    return line


@pytest.mark.parametrize(
    ("limit_ms", "verdict"),
    [(900.0, Eligible.YES), (450.0, Eligible.UNKNOWN), (350.0, Eligible.UNKNOWN)],
)
def test_the_history_of_a_quantile_counts_if_the_limit_is_near(limit_ms: float, verdict: Eligible) -> None:
    """Bursts of the week count for a limit among them, even if the window has none, and not for one far above."""
    history = bursts((100.0, 200.0, 300.0, 400.0), share=0.5)
    line = measured(np.linspace(90, 110, DAY), limit_ms=limit_ms, history=history)
    assert (line.goodput and line.goodput.value, line.eligible) == (1.0, verdict)


@pytest.mark.parametrize("every_s", [300, 1_200])
def test_a_perfect_week_takes_no_verdict_away(every_s: int) -> None:
    """72 of 72 requests are in time, as all of the week were: each is independent."""
    perfect = History(levels={SUCCESS: levels(np.ones(HOURS), np.nan)})
    line = measured(np.full(72, 100.0), every_s=every_s, history=perfect)
    assert (line.eligible, line.n_eff) == (Eligible.YES, 72)


@pytest.mark.parametrize(
    ("name", "limit_ms", "verdict"),
    [
        ("one round", 300, Eligible.UNKNOWN),
        ("23 rounds", 300, Eligible.UNKNOWN),
        ("constant", 100, Eligible.UNKNOWN),
        ("constant", 99, Eligible.NO),
        ("ties", 100, Eligible.NO),
        ("ties", 200, Eligible.UNKNOWN),
        ("a change five rounds ago", 150, Eligible.UNKNOWN),
        ("day and night", 128, Eligible.UNKNOWN),
        ("day and night", 140, Eligible.UNKNOWN),
        ("negative correlation", 100, Eligible.NO),
        ("half of the rounds censored", 300, Eligible.NO),
        ("all rounds censored", 300, Eligible.NO),
    ],
)
def test_bad_input_has_an_honest_verdict(name: str, limit_ms: float, verdict: Eligible) -> None:
    """Few independent requests are never certain to be in time, and the reason states how many there are."""
    line = measured(SERIES[name], limit_ms=limit_ms)
    assert line.eligible is verdict
    assert line.goodput is not None
    assert line.n_eff is not None
    assert 0 <= line.goodput.low <= line.goodput.value <= line.goodput.high <= 1
    assert 1 <= line.n_eff <= line.n
    if verdict is Eligible.UNKNOWN:
        assert line.reason.startswith((f"{line.n} samples ≈ {line.n_eff:.0f} independent", f"{line.n} of 59 samples"))


@pytest.mark.parametrize("n", [72, 288])
@pytest.mark.parametrize("name", verdicts.HIDDEN)
def test_a_clean_window_proves_nothing_if_failures_cluster(name: str, n: int) -> None:
    """Without history, targets that miss their objective in runs or under drift are called "yes" in at most 5 %."""
    assert verdicts.wrong_yes_of(name, 5, n=n, draws=200) <= 5


def test_many_independent_failures_of_the_fleet_prove_that_they_do_not_cluster() -> None:
    """Without history, targets of which 1 % fails independently are mostly called "yes" after 288 rounds."""
    assert verdicts.right_yes_without_week_pct(5, draws=100) > 70


def test_a_silent_region_has_no_line() -> None:
    """A region without any request is left out, and one whose requests were all skipped is unknown."""
    assert assess([], [USE["voice"]]) == ()
    skipped = requests_of([np.nan] * 5, [Ending.NONE] * 5)
    [line] = assess([MeasuredRequests(region="us", target="t", requests=skipped)], [USE["voice"]])
    assert (line.eligible, line.goodput, line.reason) == (Eligible.UNKNOWN, None, "0 of 59 samples")
