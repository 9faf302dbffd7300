"""Quantiles of independent values, by sorting them: what the product's are compared with."""

from collections.abc import Sequence
from math import ceil

import numpy as np

from isochrone_collector.analysis.stats.binomial import interval_ranks
from isochrone_wire.answers import Quantile


def independent_quantile(values: Sequence[float], share: float, *, censored: Sequence[float] = ()) -> Quantile | None:
    """Return the quantile `share` of independent values with its 95 % interval; limits rank above all values."""
    known, limits = np.sort(np.asarray(values, dtype=float)), np.sort(np.asarray(censored, dtype=float))
    ordered = np.concatenate([known, np.maximum(limits, known[-1]) if len(known) else limits]).tolist()
    n = len(ordered)
    if not n:
        return None
    value, ranks = ordered[min(n, max(1, ceil(share * n - 1e-12 * n))) - 1], interval_ranks(n, share)
    return (
        Quantile(value=value, low=ordered[ranks[0] - 1], high=ordered[ranks[1] - 1]) if ranks else Quantile(value=value)
    )
