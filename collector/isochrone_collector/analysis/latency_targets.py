"""Latency targets: the latency that a use tolerates, and whether a target meets it from one region.

The uses and their limits are the commonly published ones; each limit applies to 95 % of all planned requests. The
decision rests on the goodput, the share of them that is answered within the limit, with its interval: `yes` if the
whole interval is at least that share, `no` if it is below, `maybe` if it contains the share. See `analysis.goodput` for
what counts as a request.

The percentile beside it is that of the requests with a latency. If the goodput is low because requests failed or were
throttled, the percentile does not show it, and the reason does.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from isochrone_collector.analysis.distribution import Distribution, Values, hours_of, quantiles_of
from isochrone_collector.analysis.goodput import RequestCounts, Requests, needed, summarised_requests
from isochrone_collector.analysis.history import (
    NO_HISTORY,
    SHARES,
    SUCCESS,
    History,
    Quantity,
    above_quantile,
    in_time,
    nearest_share,
)
from isochrone_collector.analysis.leaderboard import Entry, Ranked, keys_of, memories
from isochrone_collector.analysis.stats.arrays import Integers
from isochrone_collector.analysis.stats.long_run_variance import VarianceInflation
from isochrone_wire.answers import Metric, Quantile
from isochrone_wire.insights import Eligible, LatencyBudget

_MS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A use of a model, and the latency that a `share` of its requests must not exceed. If they are set, the latency is
    that of an answer of `answer_tokens`, and its speed must be `min_speed` tokens per second.
    """

    name: str
    meaning: str
    metric: Metric
    limit_us: int
    share: float = 0.95
    answer_tokens: int | None = None
    min_speed: float | None = None


USES = (
    Use(name="edge", meaning="edge and IoT", metric=Metric.TTFT, limit_us=100 * _MS),
    Use(name="translation", meaning="real-time translation", metric=Metric.TTFT, limit_us=200 * _MS),
    Use(name="voice", meaning="voice agent", metric=Metric.TTFT, limit_us=300 * _MS),
    Use(name="code", meaning="code completion", metric=Metric.TTFT, limit_us=500 * _MS),
    Use(name="chat", meaning="chat, first token", metric=Metric.TTFT, limit_us=1_000 * _MS),
    Use(name="web", meaning="web chatbot with tolerant users", metric=Metric.TTFT, limit_us=3_000 * _MS),
    Use(name="inline", meaning="inline suggestion", metric=Metric.E2E, limit_us=500 * _MS),
    Use(name="step", meaning="single-step task", metric=Metric.E2E, limit_us=5_000 * _MS),
    Use(name="agent", meaning="multi-step agent task", metric=Metric.E2E, limit_us=30_000 * _MS),
)


class TargetRequests(Ranked, Protocol):
    """The requests of one target from one region, with what a verdict on them takes."""

    @property
    def target(self) -> str:
        """The name of the target."""

    @property
    def usd_per_m_output(self) -> float | None:
        """The price of a million output tokens in US dollars."""

    def values(self, metric: Metric) -> Distribution:
        """Return the distribution of TTFT or of the time to the last token."""

    def counts(self, use: Use, history: VarianceInflation) -> RequestCounts:
        """Count the requests that are fast enough for a use; `history` is that of `inflation_of_flags`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRequests:
    """Requests from samples, in the order of their rounds."""

    target_id: int = 0
    region: str
    target: str
    requests: Requests
    usd_per_m_output: float | None = None
    hour: int | None = None
    is_summary: bool = False

    @property
    def hours(self) -> float:
        """The hours that the requests span."""
        return hours_of(self.requests.round_at)

    def values(self, metric: Metric) -> Distribution:
        """Return the distribution of TTFT or of the time to the last token."""
        return self.requests.values(metric)

    def counts(self, use: Use, history: VarianceInflation) -> RequestCounts:
        """Count the requests that are fast enough for a use; `history` is that of `inflation_of_flags`."""
        return self.requests.judged({use.metric: use.limit_us}, min_speed=use.min_speed or 0.0, history=history)


@dataclass(frozen=True, slots=True)
class SummarisedRequests:
    """Requests from summaries: see `summarised_requests`."""

    entry: Entry
    hour: None = None
    is_summary: bool = True

    @property
    def target_id(self) -> int:
        """The id of the target."""
        return self.entry.target_id

    @property
    def hours(self) -> float:
        """The hours that the requests span."""
        return self.entry.hours

    @property
    def region(self) -> str:
        """The region of the vantages."""
        return self.entry.region

    @property
    def target(self) -> str:
        """The name of the target."""
        return self.entry.target

    @property
    def usd_per_m_output(self) -> float | None:
        """The price of a million output tokens in US dollars."""
        return self.entry.usd_per_m_output

    def values(self, metric: Metric) -> Distribution:
        """Return the distribution of TTFT or of the time to the last token."""
        return self.entry.values.get(metric, Values())

    def counts(self, use: Use, history: VarianceInflation) -> RequestCounts:
        """Count the requests that are fast enough for a use; its answer length and speed do not apply."""
        found = summarised_requests(self.values(use.metric), self.entry.outcome_counts, use.limit_us)
        return replace(found, n_eff=float(history.of_counts(np.array([found.planned]))[0]))


def quantities(uses: Iterable[Use]) -> tuple[Quantity, ...]:
    """Return the quantities whose history widens the intervals of these uses."""
    metrics = dict.fromkeys(use.metric for use in uses)
    return (SUCCESS, *(above_quantile(metric, share) for metric in metrics for share in SHARES))


def assess(
    found: Iterable[TargetRequests], uses: Sequence[Use], history: History = NO_HISTORY
) -> tuple[LatencyBudget, ...]:
    """Return one line per target, region, hour and use, ordered by region, target, hour and use."""
    ordered = sorted(found, key=lambda one: (one.region, one.target, one.hour or 0))
    known = memories(ordered, quantities(uses), history)
    quantiles = {
        (metric, share): own
        for metric, shares in _shares(uses).items()
        for share, own in quantiles_of(
            [one.values(metric) for one in ordered],
            {share: known[above_quantile(metric, SHARES[nearest_share(share)])] for share in shares},
        ).items()
    }
    histories = [in_time(use.metric, _near(ordered, use, history), known) for use in uses]
    return tuple(
        _assessed(one, use, quantiles[use.metric, use.share][row], told.at(np.array([row])))
        for row, one in enumerate(ordered)
        for use, told in zip(uses, histories, strict=True)
    )


def _shares(uses: Iterable[Use]) -> dict[Metric, list[float]]:
    """Return the shares of the uses of each metric."""
    found: dict[Metric, list[float]] = {}
    for use in uses:
        found.setdefault(use.metric, []).append(use.share)
    return found


def _near(found: Sequence[TargetRequests], use: Use, history: History) -> Integers:
    """Return the quantile of the week that is near the limit, as `History.nearest` does. The week has no answers of
    another length: for these it is the one nearest to the share in time in the window, if that is not all or nothing.
    """
    if use.answer_tokens is None or use.metric is not Metric.E2E:
        return history.nearest(use.metric, keys_of(found), float(use.limit_us))
    values = [one.values(use.metric) for one in found]
    return np.array([nearest_share(own.within(use.limit_us)[0] / max(own.n, 1)) for own in values], np.int64)


def _assessed(one: TargetRequests, use: Use, quantile: Quantile | None, history: VarianceInflation) -> LatencyBudget:
    counts = one.counts(use, history)
    verdict = counts.meets(use.share)
    return LatencyBudget(
        use=use.name,
        metric=use.metric,
        share=use.share,
        limit_us=use.limit_us,
        region=one.region,
        target=one.target,
        eligible=verdict,
        quantile=quantile,
        n=counts.planned,
        reason=_reason(counts, use, verdict),
        usd_per_m_output=one.usd_per_m_output,
        goodput=counts.goodput,
        n_eff=counts.n_eff or None,
        hour=one.hour,
        answer_tokens=use.answer_tokens if use.metric is Metric.E2E else None,
        min_tokens_per_second=use.min_speed,
    )


def _reason(counts: RequestCounts, use: Use, verdict: Eligible) -> str:
    parts = [
        f"{many} of {counts.planned} requests {what}"
        for many, what in ((counts.failed, "failed"), (counts.throttled, "were throttled"))
        if many > (0 if verdict is Eligible.UNKNOWN else (1 - use.share) * counts.planned)
    ]
    if verdict is Eligible.UNKNOWN:
        parts.insert(0, _shortage(counts, use))
    return "; ".join(parts)


def _shortage(counts: RequestCounts, use: Use) -> str:
    if counts.planned < needed(use.share):
        return f"{counts.planned} of {needed(use.share)} samples"
    return f"{counts.planned} samples ≈ {counts.n_eff:.0f} independent, of {needed(use.share)}"
