"""Leaderboards: the targets ranked within each region.

The laws:

1. A quantity without a 95 % interval ranks behind all that have one, and an unknown quantity behind those.
2. Success ranks by the lower bound of its interval: 3 of 3 is not better than 998 of 1000.
3. A free target ranks first in tokens per dollar; a target without a price is unknown there.

Intervals are of the long-run level: see `analysis.stats.binomial` for series of requests, and `analysis.history` for
the past week. Values from summaries have no order: only the past week widens their intervals, and without it they have
none.

Price tiers are groups of comparable targets, by the price of a million output tokens. The boundaries are the commonly
published ones; `nearly free` is what published tables call free. A price at a boundary belongs to the more expensive
tier. A target without a price is `unpriced`, and is compared with no other tier.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from isochrone_collector.analysis.distribution import Distribution, OutcomeCounts, Values, quantiles_of
from isochrone_collector.analysis.goodput import effective_sizes
from isochrone_collector.analysis.history import NO_HISTORY, SUCCESS, History, Quantity, above_quantile
from isochrone_collector.analysis.stats.arrays import Flags, Reals
from isochrone_collector.analysis.stats.binomial import wilson
from isochrone_collector.analysis.stats.long_run_variance import VarianceInflation
from isochrone_wire.answers import Metric, Order, Proportion, Quantile
from isochrone_wire.insights import Standing, TierLine

Quantiles = Mapping[tuple[Metric, float], Quantile | None]
"""Quantiles of one target from one region, by metric and share."""

QUANTITIES: Mapping[str, tuple[Metric, float]] = {
    "ttft_p50_us": (Metric.TTFT, 0.5),
    "ttft_p95_us": (Metric.TTFT, 0.95),
    "ttft_p99_us": (Metric.TTFT, 0.99),
    "ttft_cold_p50_us": (Metric.TTFT_COLD, 0.5),
    "ttfat_p50_us": (Metric.TTFAT, 0.5),
    "e2e_p50_us": (Metric.E2E, 0.5),
    "tokens_per_second_p50": (Metric.TOKENS_PER_SECOND, 0.5),
}
"""The quantiles of a leaderboard by the fields of a standing; those of one metric follow each other."""

ASKED = tuple(QUANTITIES.values())
"""All quantiles of a leaderboard."""

NO_VALUES = Values()

# The fields of an entry that a standing repeats.
_COPIED = ("region", "target", "provider", "model", "usd_per_m_input", "usd_per_m_output", "newest_at")

# 0 with an interval, 1 with only a value, 2 with nothing; then the value, smallest first.
Place = tuple[int, float]
_NOWHERE: Place = (2, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One target in one region, at all hours of the day: its values by metric and its outcome counts, with the hours
    that its probes span. Prices are in US dollars per million tokens. `succeeded` has whether each probe succeeded that
    was sent and not throttled, in the order of their rounds; `None` in a summary, where the order is not known.
    """

    target_id: int = 0
    region: str
    target: str
    provider: str
    model: str
    values: Mapping[Metric, Distribution] = field(default_factory=dict)
    outcome_counts: OutcomeCounts = field(default_factory=OutcomeCounts)
    usd_per_m_input: float | None = None
    usd_per_m_output: float | None = None
    newest_at: int | None = None
    hours: float = 0.0
    succeeded: Flags | None = None
    hour: None = None

    @property
    def known(self) -> int:
        """The number of probes with a first token."""
        return self.values.get(Metric.TTFT, NO_VALUES).known


class _Measured(NamedTuple):
    """An entry with its quantiles and the share of its probes that succeeded."""

    entry: Entry
    quantiles: Quantiles
    success: Proportion | None


def quantiles(entries: Sequence[Entry], asked: Sequence[tuple[Metric, float]], history: History) -> list[Quantiles]:
    """Return quantiles of each entry, those of one metric in a row; `n_eff` is that of values that are not censored."""
    columns = {}
    known = _histories(entries, [above_quantile(metric, share) for metric, share in asked], history)
    for metric, shares in groupby(asked, key=itemgetter(0)):
        values = [one.values.get(metric, NO_VALUES) for one in entries]
        histories = {share: known[above_quantile(metric, share)] for _, share in shares}
        for share, found in quantiles_of(values, histories, of_known=True).items():
            columns[metric, share] = found
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def successes(entries: Sequence[Entry], history: History) -> list[Proportion | None]:
    """Return the share of the probes of each entry that succeeded; `None` without any."""
    known = _histories(entries, [SUCCESS], history)[SUCCESS]
    counts = [one.outcome_counts for one in entries]
    summarised = known.of_counts(np.array([own.sent for own in counts]))
    flags = [np.empty(0, np.bool_) if one.succeeded is None else one.succeeded for one in entries]
    sizes = np.where([one.succeeded is None for one in entries], summarised, effective_sizes(flags, known))
    return [wilson(own.ok, own.sent, n_eff=size) for own, size in zip(counts, sizes.tolist(), strict=True)]


def asked_for(order: Order, needed: Collection[str]) -> tuple[tuple[Metric, float], ...]:
    """Return the quantiles that an order and the `needed` fields of standings take; all if `needed` is empty."""
    if not needed or order is not Order.TTFT:
        return ASKED
    return tuple(own for name, own in QUANTITIES.items() if name in needed or own == (Metric.TTFT, 0.5))


def standings(
    entries: Sequence[Entry],
    order: Order = Order.TTFT,
    history: History = NO_HISTORY,
    asked: Sequence[tuple[Metric, float]] = ASKED,
) -> tuple[Standing, ...]:
    """Rank entries within each region by name; ties go to the smaller median TTFT. `asked` is from `asked_for`."""
    place = _PLACE_BY[order]

    def key(one: _Measured) -> tuple[str, Place, Place, str]:
        return (one.entry.region, place(one), place_of(one.quantiles[Metric.TTFT, 0.5]), one.entry.target)

    found = zip(entries, quantiles(entries, asked, history), successes(entries, history), strict=True)
    ordered = sorted((_Measured(*one) for one in found), key=key)
    return tuple(
        _standing(one, rank)
        for _, group in groupby(ordered, key=lambda one: one.entry.region)
        for rank, one in enumerate(group, start=1)
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


def _standing(one: _Measured, rank: int) -> Standing:
    entry, found, success = one
    measured: dict[str, Any] = {name: found.get(asked) for name, asked in QUANTITIES.items()}
    return Standing(
        rank=rank,
        n=entry.known,
        success=success,
        tokens_per_second_per_usd=per_usd(measured["tokens_per_second_p50"], entry.usd_per_m_output),
        **{name: getattr(entry, name) for name in _COPIED},
        **{name: getattr(entry.outcome_counts, name) for name in ("failed", "throttled", "skipped")},
        **measured,
    )


def _speed_for_money(one: _Measured) -> Place:
    speed, usd = one.quantiles[Metric.TOKENS_PER_SECOND, 0.5], one.entry.usd_per_m_output
    if speed is None or usd is None:
        return _NOWHERE
    certainty, _ = place_of(speed)
    return (certainty, -speed.value / usd if usd else -inf)


def _price(one: _Measured) -> Place:
    usd = one.entry.usd_per_m_output
    return _NOWHERE if usd is None else (0, usd)


def _success(one: _Measured) -> Place:
    return _NOWHERE if one.success is None else (0, -one.success.low)


def _median_of(metric: Metric, *, sign: int = 1) -> Callable[[_Measured], Place]:
    return lambda one: place_of(one.quantiles[metric, 0.5], sign=sign)


_PLACE_BY: dict[Order, Callable[[_Measured], Place]] = {
    Order.TTFT: _median_of(Metric.TTFT),
    Order.TTFT_COLD: _median_of(Metric.TTFT_COLD),
    Order.TTFAT: _median_of(Metric.TTFAT),
    Order.E2E: _median_of(Metric.E2E),
    Order.TOKENS_PER_SECOND: _median_of(Metric.TOKENS_PER_SECOND, sign=-1),
    Order.TOKENS_PER_USD: _speed_for_money,
    Order.PRICE: _price,
    Order.SUCCESS: _success,
}


def _histories(
    entries: Sequence[Entry], quantities: Iterable[Quantity], history: History
) -> dict[Quantity, VarianceInflation]:
    return histories_of(
        quantities,
        history,
        keys=[(one.target_id, one.region) for one in entries],
        hours=np.array([one.hours for one in entries]),
        is_summary=np.array([one.succeeded is None for one in entries], np.bool_),
    )


def histories_of(
    quantities: Iterable[Quantity],
    history: History,
    *,
    keys: Sequence[tuple[int, str]],
    hours: Reals,
    is_summary: Flags,
) -> dict[Quantity, VarianceInflation]:
    """Return the history of each quantity per series, as `inflation_of_flags` takes it, by the target's id, the region
    and the hours that the requests span; unknown where these are NaN. If that of a summary is unknown, all requests of
    an hour count as one.
    """
    guess = VarianceInflation(ratio=1 / np.maximum(hours, 1.0), freedom=np.full(len(hours), np.inf))
    found = {quantity: history.of(quantity, keys, hours) for quantity in quantities}
    return {quantity: guess.where(is_summary & np.isnan(known.ratio), known) for quantity, known in found.items()}


TIER_QUANTILES = ((Metric.TTFT, 0.5), (Metric.TOKENS_PER_SECOND, 0.5))
"""The quantiles of a tier's lines."""

FREE, UNPRICED = "free", "unpriced"
TIERS = {"nearly free": 0.15, "sweet spot": 0.30, "quality first": 0.80, "premium": inf}
"""The tiers of prices below a bound, in US dollars per million output tokens, each from the bound of the one before."""

_TIER_ORDER = {name: place for place, name in enumerate((FREE, *TIERS, UNPRICED))}


def tier_of(usd_per_m_output: float | None) -> str:
    """Return the name of a price's tier."""
    if usd_per_m_output is None:
        return UNPRICED
    if usd_per_m_output <= 0:
        return FREE
    return next(name for name, below_usd in TIERS.items() if usd_per_m_output < below_usd)


def tier_lines(entries: Sequence[Entry], history: History = NO_HISTORY) -> tuple[TierLine, ...]:
    """Return the lines by tier, cheapest first, then by region, ranked by median TTFT."""

    def place(line: TierLine) -> tuple[int, str, Place, str]:
        return _TIER_ORDER[line.tier], line.region, place_of(line.ttft_p50_us), line.target

    found = zip(entries, quantiles(entries, TIER_QUANTILES, history), strict=True)
    lines = sorted(
        (
            TierLine(
                tier=tier_of(entry.usd_per_m_output),
                region=entry.region,
                rank=0,
                target=entry.target,
                usd_per_m_output=entry.usd_per_m_output,
                ttft_p50_us=own[Metric.TTFT, 0.5],
                tokens_per_second_p50=own[Metric.TOKENS_PER_SECOND, 0.5],
                tokens_per_second_per_usd=per_usd(own[Metric.TOKENS_PER_SECOND, 0.5], entry.usd_per_m_output),
                n=entry.known,
            )
            for entry, own in found
        ),
        key=place,
    )
    return tuple(
        replace(line, rank=rank)
        for _, group in groupby(lines, key=lambda line: (line.tier, line.region))
        for rank, line in enumerate(group, start=1)
    )
