"""Effective sample size of autocorrelated measurements.

The mean of n values with autocorrelations r_k varies τ times as much as that of n independent ones, τ = 1 + 2·Σ r_k; so
their effective sample size is n_eff = n/τ (G. V. Bayley and J. M. Hammersley, JRSS Suppl. 8 (1946) 184-197). The r_k
are those of the ranks, which are robust to outliers, each from the mean of its n - k products; the sum ends before the
first r_k <= 2/√n, from which on they are noise (an initial-sequence rule; cf. C. J. Geyer, Statistical Science 7 (1992)
473-483).

Two corrections keep intervals honest in short series:

* The r_k are measured about the mean of the same values, which lowers each by (1 - r_k)·τ/n (F. H. C. Marriott and
  J. A. Pope, Biometrika 41 (1954) 390-402). Corrected in all K of the sum, τ = (1 + 2S) / (1 - 2(K - S)/n), S = Σ r_k.
* A variance estimated from n_eff values needs Student's t with n_eff - 1 degrees of freedom instead of the normal
  distribution (F. W. Zwiers and H. von Storch, J. Climate 8 (1995) 336-351). Without autocorrelation there is nothing
  to correct, and the exact distributions apply.

Values are in the order of their rounds, and missing rounds are skipped: the correlation that matters is that between
neighbours in the sample.

The limit: in a short series autocorrelation does not stand out from noise. With 24 rounds it takes a correlation of
0.4; smaller ones are not detected and not corrected.
"""

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from isochrone_collector.analysis.stats.ragged import Ragged, Reals
from isochrone_collector.analysis.stats.ranks import mean_ranks

_CELLS = 1 << 17
_UPPER = 0.975
# The correction at most doubles τ, however long the sum is.
_LEAST_DIVISOR = 0.5


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


def correlation_times(series: Ragged) -> Reals:
    """Return τ of each row."""
    taus: Reals = np.ones(len(series))
    for places, rows in series.portions(cells=_CELLS):
        taus[places] = _times(rows)
    return taus


def widening(taus: Reals | float, worth: Reals | float) -> Reals:
    """Return the factor of the half-widths of a 95 % interval whose values have correlation time τ and size n_eff."""
    student = stdtrit(_freedom(worth), _UPPER) / ndtri(_UPPER)
    return np.asarray(np.where(np.asarray(taus) > 1, np.sqrt(taus) * student, 1.0))


def corrected_p_values(scores: Reals | float, taus: Reals | float, worth: Reals | float) -> Reals:
    """Return the two-sided p-values of standard scores (at least 0) of values with correlation time τ and n_eff."""
    narrowed = -np.asarray(scores) / np.sqrt(taus)
    tails = np.where(np.asarray(taus) > 1, stdtr(_freedom(worth), narrowed), ndtr(narrowed))
    return np.asarray(2 * tails)


def _freedom(worth: Reals | float) -> Reals:
    return np.asarray(np.maximum(np.asarray(worth) - 1, 1.0))


def _times(rows: Reals) -> Reals:
    n = rows.shape[1]
    centred = mean_ranks(rows) - (n + 1) / 2
    totals = np.einsum("ij,ij->i", centred, centred)
    lags, likeness = np.zeros(len(rows)), np.zeros(len(rows))
    going = np.flatnonzero(totals)
    for lag in range(1, n):
        left = centred[going]
        correlations = np.einsum("ij,ij->i", left[:, :-lag], left[:, lag:]) / totals[going] * n / (n - lag)
        above = correlations > 2 / np.sqrt(n)
        going = going[above]
        if not len(going):
            break
        lags[going] = lag
        likeness[going] += correlations[above]
    return _time(likeness, lags, n)


def _time(likeness: Reals | float, lags: Reals | int, n: int) -> Reals:
    divisor = np.maximum(1 - 2 * (np.asarray(lags) - likeness) / n, _LEAST_DIVISOR)
    return np.asarray((1 + 2 * np.asarray(likeness)) / divisor)
