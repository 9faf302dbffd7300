"""Leaderboards: the targets ranked within each region.

The laws:

1. A quantity without a 95 % interval ranks behind all that have one, and an unknown quantity behind those.
2. Success ranks by the lower bound of its interval: 3 of 3 is not better than 998 of 1000.
3. A free target ranks first in tokens per dollar; a target without a price is unknown there.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf
from operator import attrgetter

from isochrone_collector.analysis.distribution import Distribution, OutcomeCounts
from isochrone_collector.analysis.stats.proportion import wilson
from isochrone_wire.answers import Metric, Order, Quantile, Standing

# 0 with an interval, 1 with only a value, 2 with nothing; then the value, smallest first.
Place = tuple[int, float]
_NOWHERE: Place = (2, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One target in one region: its values by metric and its outcome counts. Prices are in US dollars per million
    tokens.
    """

    region: str
    target: str
    provider: str
    model: str
    values: Mapping[Metric, Distribution] = field(default_factory=dict)
    outcome_counts: OutcomeCounts = field(default_factory=OutcomeCounts)
    usd_per_m_input: float | None = None
    usd_per_m_output: float | None = None
    newest_at: int | None = None

    def quantile(self, metric: Metric, share: float) -> Quantile | None:
        """Return a quantile of one metric; `None` if all values are censored."""
        values = self.values.get(metric)
        return values.quantile(share) if values is not None and values.known else None

    @property
    def known(self) -> int:
        """The number of probes with a first token."""
        values = self.values.get(Metric.TTFT)
        return values.known if values is not None else 0


def standings(entries: Iterable[Entry], order: Order = Order.TTFT) -> tuple[Standing, ...]:
    """Rank entries within each region, regions by name; ties go to the smaller median TTFT, then to the name."""
    place = _PLACE_BY[order]

    def key(standing: Standing) -> tuple[str, Place, Place, str]:
        return (standing.region, place(standing), place_of(standing.ttft_p50_us), standing.target)

    ordered = sorted((_standing(entry) for entry in entries), key=key)
    return tuple(
        replace(standing, rank=rank)
        for _, group in groupby(ordered, key=attrgetter("region"))
        for rank, standing in enumerate(group, start=1)
    )


def place_of(quantile: Quantile | None, *, sign: int = 1) -> Place:
    """Return the sort key of a quantile: smallest first, or with the `sign` -1 largest first."""
    if quantile is None:
        return _NOWHERE
    has_interval = quantile.low is not None and quantile.high is not None
    return (0 if has_interval else 1, sign * quantile.value)


def per_usd(speed: Quantile | None, usd_per_m_output: float | None) -> float | None:
    """Return tokens per second per US dollar per million output tokens; `None` if they are free or unpriced."""
    return speed.value / usd_per_m_output if speed is not None and usd_per_m_output else None


def _standing(entry: Entry) -> Standing:
    speed = entry.quantile(Metric.TOKENS_PER_SECOND, 0.5)
    return Standing(
        region=entry.region,
        rank=0,
        target=entry.target,
        provider=entry.provider,
        model=entry.model,
        n=entry.known,
        failed=entry.outcome_counts.failed,
        throttled=entry.outcome_counts.throttled,
        skipped=entry.outcome_counts.skipped,
        ttft_p50_us=entry.quantile(Metric.TTFT, 0.5),
        ttft_p95_us=entry.quantile(Metric.TTFT, 0.95),
        ttft_p99_us=entry.quantile(Metric.TTFT, 0.99),
        ttft_cold_p50_us=entry.quantile(Metric.TTFT_COLD, 0.5),
        ttfat_p50_us=entry.quantile(Metric.TTFAT, 0.5),
        e2e_p50_us=entry.quantile(Metric.E2E, 0.5),
        tokens_per_second_p50=speed,
        success=wilson(entry.outcome_counts.ok, entry.outcome_counts.sent),
        usd_per_m_input=entry.usd_per_m_input,
        usd_per_m_output=entry.usd_per_m_output,
        tokens_per_second_per_usd=per_usd(speed, entry.usd_per_m_output),
        newest_at=entry.newest_at,
    )


def _speed_for_money(standing: Standing) -> Place:
    speed, usd = standing.tokens_per_second_p50, standing.usd_per_m_output
    if speed is None or usd is None:
        return _NOWHERE
    certainty, _ = place_of(speed)
    return (certainty, -speed.value / usd if usd else -inf)


def _price(standing: Standing) -> Place:
    return _NOWHERE if standing.usd_per_m_output is None else (0, standing.usd_per_m_output)


def _success(standing: Standing) -> Place:
    return _NOWHERE if standing.success is None else (0, -standing.success.low)


_PLACE_BY: dict[Order, Callable[[Standing], Place]] = {
    Order.TTFT: lambda standing: place_of(standing.ttft_p50_us),
    Order.TTFT_COLD: lambda standing: place_of(standing.ttft_cold_p50_us),
    Order.TTFAT: lambda standing: place_of(standing.ttfat_p50_us),
    Order.E2E: lambda standing: place_of(standing.e2e_p50_us),
    Order.TOKENS_PER_SECOND: lambda standing: place_of(standing.tokens_per_second_p50, sign=-1),
    Order.TOKENS_PER_USD: _speed_for_money,
    Order.PRICE: _price,
    Order.SUCCESS: _success,
}
