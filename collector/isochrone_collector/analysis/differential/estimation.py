"""Estimates of all pairs of an answer at once: the shift between region and baseline, and its network part.

With at least six shared rounds, the sides are compared round by round. With fewer, but six on each side, the two
samples are compared unpaired (`paired` is false): what both sides have in common is then not removed.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import isnan
from typing import Any

import numpy as np

from isochrone_collector.analysis.differential.panel import Pairs, Panel
from isochrone_collector.analysis.stats.arrays import Ragged, Reals, mean_ranks
from isochrone_collector.analysis.stats.long_run_variance import LEAST_ROUNDS, VarianceInflation, inflation
from isochrone_collector.analysis.stats.memory import unseen_inflation
from isochrone_collector.analysis.stats.shifts import MIN_N, Shift, paired_estimates, paired_shifts, unpaired_shift

_CELLS = 1 << 17
# To start a thread takes as long as to estimate so many rounds.
_FEW_ROUNDS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One pair's figures, named as in `Differential`. `p_value` is two-sided, of no shift; `freedom` are
    the degrees of freedom of the interval; `prob_superiority` is the
    share of rounds (unpaired: of pairs of rounds) in which the region's value is the greater, ties counting half.
    `correlation` is Spearman's, of both sides' values in the same round: what pairing removes.
    """

    shift: Shift
    n: int
    n_eff: float
    paired: bool
    p_value: float | None
    prob_superiority: float
    baseline_median: float
    region_median: float
    newest_at: int
    network_shift: float | None = None
    server_shift: float | None = None
    correlation: float | None = None
    has_history: bool = False
    freedom: float = np.inf


def estimates(
    pairs: Pairs, *, with_network: bool, decorrelation_rounds: Reals, history: VarianceInflation | None
) -> list[Estimate | None]:
    """Estimate each pair; `None` without data. `with_network` also estimates the network and server parts.

    `decorrelation_rounds` of each pair count as one independent round, NaN if unknown; pairs with few rounds use them.
    `history` is that of `VarianceInflation.with_history`.
    """
    differences = pairs.rows(pairs.panel.value[pairs.region] - pairs.panel.value[pairs.baseline])
    told = np.isfinite(decorrelation_rounds) & (differences.counts < LEAST_ROUNDS)
    known = VarianceInflation(ratio=np.maximum(decorrelation_rounds, 1.0), freedom=np.full(len(pairs), np.inf))
    own = inflation(differences)
    # Drift of latencies makes no timeouts.
    lost = 2 * np.maximum(pairs.baseline_lost, pairs.region_lost) > pairs.n_shared
    own = own.where(lost, with_unseen(own, differences, history, are_pairs=True))
    inflated = known.where(told, own)
    found = _paired(pairs, differences, inflated, with_network=with_network, history=history)
    enough = (pairs.baseline_span.counts >= MIN_N) & (pairs.region_span.counts >= MIN_N)
    for place in np.flatnonzero(enough & (pairs.n_shared < MIN_N)).tolist():
        found[place] = _unpaired(pairs, place)
    return found


def with_unseen(
    own: VarianceInflation, series: Ragged, history: VarianceInflation | None, *, are_pairs: bool = False
) -> VarianceInflation:
    """Return the inflation of rows, without history at least that by the memory of all rows."""
    if history is not None and np.isfinite(history.ratio).all():
        return own
    unseen = own.wider(unseen_inflation(series, are_pairs=are_pairs))
    return unseen if history is None else own.where(np.isfinite(history.ratio), unseen)


def _paired(
    pairs: Pairs,
    differences: Ragged,
    inflated: VarianceInflation,
    *,
    with_network: bool,
    history: VarianceInflation | None,
) -> list[Estimate | None]:
    panel = pairs.panel
    baseline, region = panel.value[pairs.baseline], panel.value[pairs.region]
    # All spend most of their time in numpy's sorting, which releases the GIL.
    with ThreadPoolExecutor(max_workers=1) as pool:
        begin = partial(_begin, pool if len(differences.values) > _FEW_ROUNDS else None)
        parts = begin(_parts, pairs) if with_network else None
        alike = begin(_correlations, pairs.rows(baseline), pairs.rows(region))
        shifts, counts = paired_shifts(differences, known=inflated, history=history), differences.counts
        network, server = parts() if parts else np.full((2, len(pairs)), np.nan)
    last = np.maximum(differences.offsets[1:] - 1, 0)
    wins = np.concatenate([np.zeros(1), np.cumsum((np.sign(differences.values) + 1) / 2)])
    columns = {
        "n": counts,
        "has_history": np.zeros(len(pairs), dtype=bool) if history is None else np.isfinite(history.ratio),
        "n_eff": shifts.n_eff,
        "p_value": shifts.p_value,
        "freedom": shifts.freedom,
        "prob_superiority": np.diff(wins[differences.offsets]) / np.maximum(counts, 1),
        "baseline_median": medians(pairs.rows(baseline)),
        "region_median": medians(pairs.rows(region)),
        "correlation": alike(),
        "newest_at": panel.round_at[pairs.region][last] if len(pairs.pair) else last,
        "network_shift": network,
        "server_shift": server,
    }
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    named: Iterator[dict[str, Any]] = (
        {name: None if isnan(value) else value for name, value in zip(columns, row, strict=True)} for row in rows
    )
    return [
        Estimate(shift=shift, paired=True, **row) if shift else None
        for shift, row in zip(shifts.listed(), named, strict=True)
    ]


def _begin(pool: Executor | None, compute: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:  # noqa: ANN401  # of any kind
    """Begin to compute in a pool, and return what waits for the result; without a pool, that computes it."""
    return partial(compute, *arguments) if pool is None else pool.submit(compute, *arguments).result


def _parts(pairs: Pairs) -> tuple[Reals, Reals]:
    """Return the shifts of the network part and of the rest, over the rounds in which both sides know it."""
    panel = pairs.panel
    base, other = pairs.baseline, pairs.region
    network = panel.network[other] - panel.network[base]
    known = ~(panel.censored[other] | panel.censored[base] | np.isnan(network))
    whole = panel.value[other] - panel.value[base]
    parts = (pairs.rows(part[known], known) for part in (network, whole - network))
    network_shift, server_shift = (paired_estimates(part) for part in parts)
    return network_shift, server_shift


def _unpaired(pairs: Pairs, place: int) -> Estimate | None:
    """Estimate a pair without shared rounds; `None` if a side timed out and is not known to be worse."""
    panel = pairs.panel
    base, other = pairs.sides(place)
    if not (_is_beyond(panel, base, other) and _is_beyond(panel, other, base)):
        return None
    found = unpaired_shift(panel.value[base], panel.value[other])
    if found is None:
        return None
    return Estimate(
        shift=found.shift,
        n=0,
        n_eff=found.n_eff,
        paired=False,
        p_value=found.p_value,
        prob_superiority=found.prob_superiority,
        baseline_median=float(np.median(panel.value[base])),
        region_median=float(np.median(panel.value[other])),
        newest_at=int(max(panel.round_at[base][-1], panel.round_at[other][-1])),
    )


def _is_beyond(panel: Panel, side: slice, others: slice) -> bool:
    """Return whether every limit that a side hit exceeds all values of the other side."""
    limits = panel.value[side][panel.censored[side]]
    return bool(limits.min(initial=np.inf) > panel.value[others].max())


def _correlations(baseline: Ragged, region: Ragged) -> Reals:
    """Return Spearman's rank correlation of two values per round in each row; NaN if one is constant, or below six."""
    found = np.full(len(baseline), np.nan)
    portions = zip(baseline.portions(cells=_CELLS), region.portions(cells=_CELLS), strict=True)
    for (places, values), (_, others) in portions:
        n = values.shape[1]
        if n >= MIN_N:
            one, other = (mean_ranks(rows) - (n + 1) / 2 for rows in (values, others))
            together, *squares = (np.einsum("ij,ij->i", *both) for both in ((one, other), (one, one), (other, other)))
            size = np.sqrt(squares[0] * squares[1])
            found[places] = np.divide(together, size, out=np.full(len(size), np.nan), where=size > 0)
    return found


def medians(rows: Ragged) -> Reals:
    """Return the median of each row; NaN for an empty one."""
    found = np.full(len(rows), np.nan)
    for places, matrix in rows.portions(cells=_CELLS):
        ordered, n = np.sort(matrix, axis=1), matrix.shape[1]
        found[places] = (ordered[:, (n - 1) // 2] + ordered[:, n // 2]) / 2
    return found
