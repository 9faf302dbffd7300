"""Leaderboards: the targets ranked within each region.

The laws:

1. A quantity without a 95 % interval ranks behind all that have one, and an unknown quantity behind those.
2. Success ranks by the lower bound of its interval: 3 of 3 is not better than 998 of 1000.
3. A free target ranks first in tokens per dollar; a target without a price is unknown there.
4. A rank is the place among the values. It is certain only as far as the intervals tell others apart: a target is
   between the number of those certainly before it and of those certainly behind it (M. Mogstad, J. P. Romano, A. M.
   Shaikh and D. Wilhelm, Review of Economic Studies 91 (2024) 476-518). The interval of a difference has the half-width
   √((v - l)² + (u - w)²), with l the lower bound of the greater value v and u the upper one of the smaller w (G. Y. Zou
   and A. Donner, Statistics in Medicine 27 (2008) 1693-1702; of shares, R. G. Newcombe's), times Bonferroni's factor
   for n - 1 comparisons. Without a week of history it is wider by the drift or the runs of failures that all rows show
   together (`stats.memory`, `goodput.unseen_memory`). What targets have in common makes it too wide, never too narrow.
   Targets that law 1 puts behind others share the ranks that are left.

Intervals are of the long-run level: see `analysis.stats.binomial` for series of requests, and `analysis.history` for
the past week. Values from summaries have no order: only the past week widens their intervals, and without it they have
none.

Price tiers are groups of comparable targets, by the price of a million output tokens. The boundaries are the commonly
published ones; `nearly free` is what published tables call free. A price at a boundary belongs to the more expensive
tier. A target without a price is `unpriced`, and is compared with no other tier.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, starmap
from math import floor, inf, log2, sqrt
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.special import ndtri

from isochrone_collector.analysis.distribution import Distribution, OutcomeCounts, Values, quantiles_of
from isochrone_collector.analysis.goodput import effective_sizes, unseen_memory
from isochrone_collector.analysis.history import NO_HISTORY, SUCCESS, History, Quantity, above_quantile
from isochrone_collector.analysis.stats.arrays import Flags, Integers, Reals, ragged
from isochrone_collector.analysis.stats.binomial import wilson
from isochrone_collector.analysis.stats.long_run_variance import LEAST_ROUNDS, VarianceInflation
from isochrone_collector.analysis.stats.memory import model_weights, unseen_inflation_of_flags
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

_Row = TypeVar("_Row")
_TAIL = 0.025
_CELLS = 1 << 17
# Below all that tokens cost, and small enough to be squared.
_FREE = -1e100
# So many rows show what memory all have.
_MOST_ROWS = 64
_PER_DOUBLING = 4

# The fields of an entry that a standing repeats.
_COPIED = ("region", "target", "provider", "model", "usd_per_m_input", "usd_per_m_output", "newest_at", "left_out")


class Ranked(NamedTuple):
    """What a target is ranked by, smallest first: `certainty` is 0 with an interval, 1 with only a value, 2 with
    nothing; `key` is the value or what counts in its place. Without an interval no two values differ for certain.
    """

    certainty: int
    key: float = 0.0
    value: float = 0.0
    low: float = 0.0
    high: float = 0.0

    @property
    def place(self) -> tuple[int, float]:
        """The sort key."""
        return self.certainty, self.key

    def widened(self, factor: float) -> "Ranked":
        """Return it with both half-widths multiplied, unless the value is exact."""
        if not self.low < self.high:
            return self
        below, above = self.value - self.low, self.high - self.value
        return self._replace(low=self.value - factor * below, high=self.value + factor * above)


_NOWHERE = Ranked(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One target in one region, at all hours of the day: its values by metric and its outcome counts, with the hours
    that its probes span. Prices are in US dollars per million tokens. `succeeded` has whether each probe succeeded that
    was sent and not throttled, in the order of their rounds; `None` in a summary, where the order is not known.
    `left_out` is the share of those that succeeded that are not compared.
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
    left_out: float | None = None
    hour: None = None

    @property
    def known(self) -> int:
        """The number of probes with a first token."""
        return self.values.get(Metric.TTFT, NO_VALUES).known


class _Measured(NamedTuple):
    """An entry with its quantiles and the share of its probes that succeeded. `wider` is the factor of the half-widths
    that rank.
    """

    entry: Entry
    quantiles: Quantiles
    success: Proportion | None
    wider: float = 1.0


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
    ranked_by = _RANKED_BY[order]

    def key(one: _Measured) -> tuple[Any, ...]:
        ttft = ranked(one.quantiles[Metric.TTFT, 0.5])
        return (one.entry.region, ranked_by(one).place, ttft.place, one.entry.target)

    known, success = quantiles(entries, asked, history), successes(entries, history)
    wider = _unseen_runs(entries, success, history)
    if (metric := _METRICS.get(order)) is not None:
        wider = _unseen_drift(entries, metric, [own[metric, 0.5] for own in known], history)
    ordered = sorted(starmap(_Measured, zip(entries, known, success, wider, strict=True)), key=key)
    return tuple(
        _standing(one, rank, low, high)
        for _, group in groupby(ordered, key=lambda one: one.entry.region)
        for rank, (one, low, high) in enumerate(
            _with_bounds(group, lambda one: ranked_by(one).widened(one.wider)), start=1
        )
    )


def _unseen_drift(
    entries: Sequence[Entry], metric: Metric, medians: Sequence[Quantile | None], history: History
) -> list[float]:
    """Return the factor by which drift that all rows show together widens the interval of each median."""
    values = [one.values.get(metric, NO_VALUES) for one in entries]
    shown = [own.values[-_about(own.n) :] for own in values if isinstance(own, Values) and own.n >= LEAST_ROUNDS]
    weights = model_weights(ragged(shown[:: 1 + len(shown) // _MOST_ROWS]))
    by_count = {n: unseen_inflation_of_flags(weights, n, 0.5) for n in {_about(own.n) for own in values}}
    found = [float(by_count[_about(own.n)].factor[0]) for own in values]
    n_eff = [own.n_eff if own and own.n_eff else 1.0 for own in medians]
    shown_by = [sqrt(max(own.known, 1) / n) for own, n in zip(values, n_eff, strict=True)]
    return _without_week(entries, above_quantile(metric, 0.5), history, found, shown_by)


def _unseen_runs(entries: Sequence[Entry], success: Sequence[Proportion | None], history: History) -> list[float]:
    """Return the factor by which runs of failures that all rows show widen the interval of each share of successes."""
    flags = [np.empty(0, np.bool_) if one.succeeded is None else one.succeeded for one in entries]
    shown_by = [sqrt(own.n / own.n_eff) if own and own.n_eff else 1.0 for own in success]
    return _without_week(entries, SUCCESS, history, unseen_memory(flags, []).factor.tolist(), shown_by)


def _without_week(
    entries: Sequence[Entry], quantity: Quantity, history: History, unseen: Sequence[float], shown: Sequence[float]
) -> list[float]:
    known = np.isfinite(_histories(entries, [quantity], history)[quantity].ratio).tolist()
    return [1.0 if has else max(1.0, one / own) for has, one, own in zip(known, unseen, shown, strict=True)]


def _about(n: int) -> int:
    """Return a number of rounds a little below n, of which there are few: models are computed for each."""
    return int(2 ** (floor(_PER_DOUBLING * log2(n)) / _PER_DOUBLING)) if n else 0


def ranked(quantile: Quantile | None, *, factor: float = 1.0) -> Ranked:
    """Return what ranks by a quantile times a factor: smallest first, largest first with a negative one."""
    if quantile is None:
        return _NOWHERE
    value = factor * quantile.value
    if quantile.low is None or quantile.high is None:
        return Ranked(1, value)
    return Ranked(0, value, value, *sorted((factor * quantile.low, factor * quantile.high)))


def _with_bounds(rows: Iterable[_Row], of: Callable[[_Row], Ranked]) -> Iterator[tuple[_Row, int, int]]:
    """Yield rows, which are in order, with the best and the worst rank that each may have."""
    first = 1
    for _, group in groupby(rows, key=lambda row: of(row).certainty):
        own = list(group)
        before, behind = _certain([of(row) for row in own])
        last = first + len(own) - 1
        yield from zip(own, (first + before).tolist(), (last - behind).tolist(), strict=True)
        first = last + 1


def _certain(rows: Sequence[Ranked]) -> tuple[Integers, Integers]:
    """Return how many rows are certainly before, and how many certainly behind each one."""
    # Infinities have no difference.
    value, low, high = np.nan_to_num(np.array([(one.value, one.low, one.high) for one in rows]), neginf=_FREE).T
    factor = ndtri(1 - _TAIL / max(1, len(rows) - 1)) / ndtri(1 - _TAIL)
    below, above = (factor * (value - low)) ** 2, (factor * (high - value)) ** 2
    before, behind = np.zeros((2, len(rows)), np.int64)
    for places in np.array_split(np.arange(len(rows)), 1 + len(rows) ** 2 // _CELLS):
        gaps = np.maximum(value[places, None] - value, 0.0)
        is_before = gaps * gaps > below[places, None] + above
        before[places], behind = is_before.sum(axis=1), behind + is_before.sum(axis=0)
    return before, behind


def per_usd(speed: Quantile | None, usd_per_m_output: float | None) -> float | None:
    """Return tokens per second per US dollar per million output tokens; `None` if they are free or unpriced."""
    return speed.value / usd_per_m_output if speed is not None and usd_per_m_output else None


def _standing(one: _Measured, rank: int, rank_low: int, rank_high: int) -> Standing:
    entry, found, success, _ = one
    measured: dict[str, Any] = {name: found.get(asked) for name, asked in QUANTITIES.items()}
    return Standing(
        rank=rank,
        rank_low=rank_low,
        rank_high=rank_high,
        n=entry.known,
        success=success,
        tokens_per_second_per_usd=per_usd(measured["tokens_per_second_p50"], entry.usd_per_m_output),
        **{name: getattr(entry, name) for name in _COPIED},
        **{name: getattr(entry.outcome_counts, name) for name in ("failed", "throttled", "skipped")},
        **measured,
    )


def _speed_for_money(one: _Measured) -> Ranked:
    speed, usd = one.quantiles[Metric.TOKENS_PER_SECOND, 0.5], one.entry.usd_per_m_output
    if usd is None:
        return _NOWHERE
    found = ranked(speed, factor=-1 / usd if usd else -1.0)
    return found if usd or speed is None else Ranked(found.certainty, -inf, -inf, -inf, -inf)


def _price(one: _Measured) -> Ranked:
    usd = one.entry.usd_per_m_output
    return _NOWHERE if usd is None else Ranked(0, usd, usd, usd, usd)


def _success(one: _Measured) -> Ranked:
    found = one.success
    return _NOWHERE if found is None else Ranked(0, -found.low, -found.value, -found.high, -found.low)


def _median_of(metric: Metric, *, factor: float = 1.0) -> Callable[[_Measured], Ranked]:
    return lambda one: ranked(one.quantiles[metric, 0.5], factor=factor)


_METRICS = {
    Order.TTFT: Metric.TTFT,
    Order.TTFT_COLD: Metric.TTFT_COLD,
    Order.TTFAT: Metric.TTFAT,
    Order.E2E: Metric.E2E,
    Order.TOKENS_PER_SECOND: Metric.TOKENS_PER_SECOND,
    Order.TOKENS_PER_USD: Metric.TOKENS_PER_SECOND,
}
_RANKED_BY: dict[Order, Callable[[_Measured], Ranked]] = {
    Order.TTFT: _median_of(Metric.TTFT),
    Order.TTFT_COLD: _median_of(Metric.TTFT_COLD),
    Order.TTFAT: _median_of(Metric.TTFAT),
    Order.E2E: _median_of(Metric.E2E),
    Order.TOKENS_PER_SECOND: _median_of(Metric.TOKENS_PER_SECOND, factor=-1.0),
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

    def place(line: TierLine) -> tuple[Any, ...]:
        return _TIER_ORDER[line.tier], line.region, ranked(line.ttft_p50_us).place, line.target

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
        replace(line, rank=rank, rank_low=low, rank_high=high)
        for _, group in groupby(lines, key=lambda line: (line.tier, line.region))
        for rank, (line, low, high) in enumerate(_with_bounds(group, lambda line: ranked(line.ttft_p50_us)), start=1)
    )
