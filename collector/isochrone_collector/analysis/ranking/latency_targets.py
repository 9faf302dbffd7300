"""Latency targets: the latency that a use tolerates, and whether a target meets it from one region.

The uses and their limits are the commonly published ones; each limit applies to the 95th percentile. The decision rests
on the interval of that quantile, which runs between two order statistics X(l) and X(u) (see `stats.quantile`): `yes` if
X(u) is within the limit, `no` if X(l) exceeds it, `maybe` if the limit lies between. X(u) is within the limit exactly
if u values are, so counting is enough. A timeout at a limit below that of the use counts neither towards `yes` nor
towards `no`.

A probe that failed otherwise has no latency and is not part of a percentile. If the share of such failures exceeds the
share of requests that may be slow, the reason mentions it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count

from isochrone_collector.analysis.distribution import Distribution, Values
from isochrone_collector.analysis.ranking.leaderboard import Entry
from isochrone_collector.analysis.stats.quantile import interval_ranks
from isochrone_wire.answers import Metric
from isochrone_wire.insights import Eligible, LatencyBudget

_MS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A use of a model, and the latency that a `share` of its requests must not exceed."""

    name: str
    meaning: str
    metric: Metric
    limit_us: int
    share: float = 0.95


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


def assess(entries: Iterable[Entry], uses: Sequence[Use]) -> tuple[LatencyBudget, ...]:
    """Return one line per entry and use, ordered by region, target and use."""
    ordered = sorted(entries, key=lambda entry: (entry.region, entry.target))
    return tuple(_assessed(entry, use) for entry in ordered for use in uses)


def eligible(values: Distribution, *, limit: float, share: float) -> Eligible:
    """Decide whether the quantile `share` of the distribution is within the limit."""
    ranks = interval_ranks(values.n, share)
    if ranks is None:
        return Eligible.UNKNOWN
    surely, perhaps = values.within(limit)
    if surely >= ranks[1]:
        return Eligible.YES
    return Eligible.NO if perhaps < ranks[0] else Eligible.MAYBE


@cache
def needed(share: float) -> int:
    """Return the number of values from which the quantile `share` has a 95 % interval: 59 for 0.95."""
    return next(n for n in count(1) if interval_ranks(n, share) is not None)


def _assessed(entry: Entry, use: Use) -> LatencyBudget:
    values = entry.values.get(use.metric, Values())
    verdict = eligible(values, limit=use.limit_us, share=use.share)
    return LatencyBudget(
        use=use.name,
        metric=use.metric,
        share=use.share,
        limit_us=use.limit_us,
        region=entry.region,
        target=entry.target,
        eligible=verdict,
        quantile=values.quantile(use.share),
        n=values.n,
        reason=_reason(entry, use, values.n, verdict),
        usd_per_m_output=entry.usd_per_m_output,
    )


def _reason(entry: Entry, use: Use, n: int, verdict: Eligible) -> str:
    sent = entry.outcome_counts.sent
    left_out = max(0, sent - n)
    if verdict is Eligible.UNKNOWN:
        failed = f"; {left_out} of {sent} probes failed" if left_out else ""
        return f"{n} of {needed(use.share)} samples{failed}"
    if verdict is not Eligible.NO and left_out > (1 - use.share) * sent:
        return f"{left_out} of {sent} probes failed and have no latency"
    return ""
