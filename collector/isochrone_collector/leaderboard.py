"""Leaderboards: the targets as each region sees them, by median time to the first token."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from isochrone_collector.stats.quantile import quantile
from isochrone_wire.answers import Quantile, Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One target as seen from one region: the values of every probe.

    `censored_us` are the limits of those that timed out without a first token; `failed` counts probes that were sent,
    were not throttled and did not end well.
    """

    region: str
    target: str
    provider: str
    model: str
    ttft_us: Sequence[float] = ()
    censored_us: Sequence[float] = ()
    tokens_per_second: Sequence[float] = ()
    failed: int = 0
    usd_per_m_output: float | None = None
    newest_at: int | None = None


def standings(entries: Iterable[Entry]) -> tuple[Standing, ...]:
    """Ranked lines, regions in order of their names. Without a first token a target comes last in its region."""
    ordered = sorted((_standing(entry) for entry in entries), key=_order)
    return tuple(
        replace(standing, rank=rank)
        for _, group in groupby(ordered, key=attrgetter("region"))
        for rank, standing in enumerate(group, start=1)
    )


def _order(standing: Standing) -> tuple[str, bool, float, str]:
    median_us = standing.ttft_p50_us.value if standing.ttft_p50_us else None
    return (standing.region, median_us is None, median_us or 0.0, standing.target)


def _ttft(entry: Entry, share: float) -> Quantile | None:
    return quantile(entry.ttft_us, share, censored=entry.censored_us) if entry.ttft_us else None


def _standing(entry: Entry) -> Standing:
    return Standing(
        region=entry.region,
        rank=0,
        target=entry.target,
        provider=entry.provider,
        model=entry.model,
        n=len(entry.ttft_us),
        failed=entry.failed,
        ttft_p50_us=_ttft(entry, 0.5),
        ttft_p95_us=_ttft(entry, 0.95),
        tokens_per_second_p50=quantile(entry.tokens_per_second, 0.5),
        usd_per_m_output=entry.usd_per_m_output,
        newest_at=entry.newest_at,
    )
