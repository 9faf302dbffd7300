"""Correlation time of autocorrelated measurements.

The mean of n values with autocorrelations r_k varies τ times as much as that of n independent ones, τ = 1 + 2·Σ r_k
(G. V. Bayley and J. M. Hammersley, JRSS Suppl. 8 (1946) 184-197). The r_k are those of the ranks, which are robust to
outliers, each from the mean of its n - k products; the sum ends before the first r_k <= 2/√n, from which on they are
noise (an initial-sequence rule; cf. C. J. Geyer, Statistical Science 7 (1992) 473-483).

The r_k are measured about the mean of the same values, which lowers each by (1 - r_k)·τ/n (F. H. C. Marriott and J. A.
Pope, Biometrika 41 (1954) 390-402). Corrected in all K of the sum, τ = (1 + 2S) / (1 - 2(K - S)/n), S = Σ r_k.

Values are in the order of their rounds, and missing rounds are skipped: the correlation that matters is that between
neighbours in the sample.

The limit: in a short series autocorrelation does not stand out from noise. With 24 rounds it takes a correlation of
0.4; smaller ones are not detected, nor is slow drift below large noise. `long_run_variance` covers both.
"""

import numpy as np

from isochrone_collector.analysis.stats.ragged import Reals
from isochrone_collector.analysis.stats.ranks import mean_ranks

# The correction at most doubles τ, however long the sum is.
_LEAST_DIVISOR = 0.5
_SHARE_LEFT = 0.7


def correlation_time(values: Reals) -> float:
    """Return τ of one series, at least 1."""
    n = len(values)
    centred = mean_ranks(values[np.newaxis])[0] - (n + 1) / 2 if n else values
    total = float(centred @ centred)
    lags, likeness = 0, 0.0
    for lag in range(1, n if total else 1):
        correlation = float(centred[:-lag] @ centred[lag:]) / total * n / (n - lag)
        if correlation <= 2 / np.sqrt(n):
            break
        lags, likeness = lag, likeness + correlation
    return float(_time(likeness, lags, n)) if n else 1.0


def times_of_ranks(centred: Reals) -> Reals:
    """Return τ of each row of a matrix of ranks minus their mean."""
    n = centred.shape[1]
    totals = np.einsum("ij,ij->i", centred, centred)
    lags, likeness = np.zeros(len(centred)), np.zeros(len(centred))
    rows = np.flatnonzero(totals)
    left, going = centred[rows], np.ones(len(rows), np.bool_)
    for lag in range(1, n):
        correlations = np.einsum("ij,ij->i", left[:, :-lag], left[:, lag:]) / totals[rows] * n / (n - lag)
        going &= correlations > 2 / np.sqrt(n)
        if not going.any():
            break
        lags[rows[going]] = lag
        likeness[rows[going]] += correlations[going]
        # To copy the rest at every lag takes longer than to multiply.
        if np.count_nonzero(going) < _SHARE_LEFT * len(going):
            rows, left, going = rows[going], left[going], going[going]
    return _time(likeness, lags, n)


def _time(likeness: Reals | float, lags: Reals | int, n: int) -> Reals:
    divisor = np.maximum(1 - 2 * (np.asarray(lags) - likeness) / n, _LEAST_DIVISOR)
    return np.asarray((1 + 2 * np.asarray(likeness)) / divisor)
