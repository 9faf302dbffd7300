"""Latency targets: the latency that a use tolerates, and whether a target meets it from one region.

The uses and their limits are the commonly published ones; each limit applies to 95 % of all planned requests. The
decision rests on the goodput, the share of them that is answered within the limit, with its interval: `yes` if the
whole interval is at least that share, `no` if it is below, `maybe` if it contains the share. See `analysis.goodput` for
what counts as a request.

The percentile beside it is that of the requests with a latency. The reason has the failed and throttled ones.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from isochrone_collector.analysis.distribution import Distribution, hours_of, quantiles_of
from isochrone_collector.analysis.goodput import (
    Limits,
    RequestCounts,
    Requests,
    lasting_sizes,
    needed,
    summarised_requests,
)
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
from isochrone_collector.analysis.leaderboard import NO_VALUES, Entry, histories_of
from isochrone_collector.analysis.stats.arrays import Integers
from isochrone_collector.analysis.stats.long_run_variance import VarianceInflation
from isochrone_wire.answers import Metric, Quantile
from isochrone_wire.insights import Eligible, LatencyBudget

_MS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A use: the latency that a `share` of requests must keep, of an answer of this length and at this speed if set."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRequests:
    """The requests of one target from one region, in order, of the whole day or an hour (UTC); price in US dollars."""

    target_id: int = 0
    region: str
    target: str
    requests: Requests
    usd_per_m_output: float | None = None
    hour: int | None = None


TargetRequests = MeasuredRequests | Entry
"""Requests from samples or, as an entry, from summaries: see `summarised_requests`."""


def _values(one: TargetRequests, metric: Metric) -> Distribution:
    return one.values.get(metric, NO_VALUES) if isinstance(one, Entry) else one.requests.values(metric)


def _counts(one: TargetRequests, use: Use, history: VarianceInflation, n_eff: float | None) -> RequestCounts:
    """Count the requests that are fast enough; the answer length and the speed of a use do not apply to summaries."""
    if not isinstance(one, Entry):
        limits_us, min_speed = {use.metric: use.limit_us}, use.min_speed or 0.0
        return one.requests.judged(limits_us, min_speed=min_speed, n_eff=n_eff)
    found = summarised_requests(_values(one, use.metric), one.outcome_counts, use.limit_us)
    return replace(found, n_eff=float(history.of_counts(np.array([found.planned]))[0]))


def _hours(one: TargetRequests) -> float:
    """Return the hours that requests span; NaN for those of an hour of the day, of which the week has seven."""
    if isinstance(one, Entry):
        return one.hours
    return hours_of(one.requests.round_at) if one.hour is None else np.nan


def quantities(uses: Iterable[Use]) -> tuple[Quantity, ...]:
    """Return the quantities whose history widens the intervals of these uses."""
    metrics = dict.fromkeys(use.metric for use in uses)
    return (SUCCESS, *(above_quantile(metric, share) for metric in metrics for share in SHARES))


def assess(
    found: Iterable[TargetRequests], uses: Sequence[Use], history: History = NO_HISTORY
) -> tuple[LatencyBudget, ...]:
    """Return one line per target, region, hour and use, ordered by region, target, hour and use."""
    ordered = sorted(found, key=lambda one: (one.region, one.target, one.hour or 0))
    keys = [(one.target_id, one.region) for one in ordered]
    known = histories_of(
        quantities(uses),
        history,
        keys=keys,
        hours=np.array([_hours(one) for one in ordered]),
        is_summary=np.array([isinstance(one, Entry) for one in ordered], np.bool_),
    )
    shares: dict[Metric, list[float]] = {}
    for use in uses:
        shares.setdefault(use.metric, []).append(use.share)
    quantiles = {
        (metric, share): own
        for metric in shares
        for share, own in quantiles_of(
            [_values(one, metric) for one in ordered],
            {share: known[above_quantile(metric, SHARES[nearest_share(share)])] for share in shares[metric]},
        ).items()
    }
    histories = [in_time(use.metric, _near(ordered, keys, use, history), known) for use in uses]
    sizes = _sizes(ordered, uses, histories)
    return tuple(
        _assessed(one, use, quantiles[use.metric, use.share][row], own.at(np.array([row])), n_eff[row])
        for row, one in enumerate(ordered)
        for use, own, n_eff in zip(uses, histories, sizes, strict=True)
    )


def _sizes(
    found: Sequence[TargetRequests], uses: Sequence[Use], histories: Sequence[VarianceInflation]
) -> list[list[float | None]]:
    """Return the effective number of the requests of each row, by use; `None` for summaries."""
    places = [place for place, one in enumerate(found) if not isinstance(one, Entry)]
    rows = [one.requests for one in found if not isinstance(one, Entry)]
    limits = [Limits(us={use.metric: use.limit_us}, min_speed=use.min_speed or 0.0, share=use.share) for use in uses]
    sizes = lasting_sizes(rows, limits, [history.at(np.array(places, np.int64)) for history in histories])
    by_place = [dict(zip(places, own.tolist(), strict=True)) for own in sizes]
    return [[own.get(place) for place in range(len(found))] for own in by_place]


def _near(found: Sequence[TargetRequests], keys: Sequence[tuple[int, str]], use: Use, history: History) -> Integers:
    """Return the quantile of the week near the limit; for other answer lengths, that near the share in time."""
    if use.answer_tokens is None or use.metric is not Metric.E2E:
        return history.nearest(use.metric, keys, float(use.limit_us))
    values = [_values(one, use.metric) for one in found]
    return np.array([nearest_share(own.up_to(use.limit_us) / max(own.n, 1)) for own in values], np.int64)


def _assessed(
    one: TargetRequests,
    use: Use,
    quantile: Quantile | None,
    history: VarianceInflation,
    n_eff: float | None,
) -> LatencyBudget:
    counts = _counts(one, use, history, n_eff)
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
