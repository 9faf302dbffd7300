"""What n measurements are worth when each resembles the one before.

The mean of n values with autocorrelations r_k varies τ times as much as that of n independent ones, τ = 1 + 2·Σ r_k;
so n of them are worth n_eff = n/τ (G. V. Bayley and J. M. Hammersley, JRSS Suppl. 8 (1946) 184-197). The r_k are those
of the ranks, which a single outlier cannot spoil, each from the mean of its n - k products; and the sum ends before the
first r_k <= 2/√n, from where on they are noise (an initial-sequence rule; cf. C. J. Geyer, Statistical Science 7 (1992)
473-483).

Two corrections keep intervals honest in short series:

* The r_k are measured about the mean of the same values, which takes (1 - r_k)·τ/n off each (F. H. C. Marriott and
  J. A. Pope, Biometrika 41 (1954) 390-402). Put back in all K of the sum, τ = (1 + 2S) / (1 - 2(K - S)/n), S = Σ r_k.
* A variance known from n_eff values calls for Student's t with n_eff - 1 degrees of freedom in the place of the normal
  distribution (F. W. Zwiers and H. von Storch, J. Climate 8 (1995) 336-351). Where no likeness is found there is
  nothing to correct: the exact distributions hold.

Values are taken in the order of their rounds, and a round that is missing is passed over: it is the neighbours in the
sample whose likeness matters to it.

The limit: in a short series likeness does not stand out from noise. Among 24 rounds it takes a correlation of 0.4, and
what is not seen is not corrected.
"""

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit
from scipy.stats import rankdata

from isochrone_collector.analysis.stats.ragged import Ragged, Reals

_CELLS = 1 << 17
_UPPER = 0.975
# However long the sum is, what is put back at most doubles it.
_LEAST_DIVISOR = 0.5


def correlation_time(values: Reals) -> float:
    """τ of one series, at least 1."""
    n = len(values)
    centred = rankdata(values) - (n + 1) / 2 if n else values
    total = float(centred @ centred)
    lags, likeness = 0, 0.0
    for lag in range(1, n if total else 1):
        correlation = float(centred[:-lag] @ centred[lag:]) / total * n / (n - lag)
        if correlation <= 2 / np.sqrt(n):
            break
        lags, likeness = lag, likeness + correlation
    return float(_time(likeness, lags, n)) if n else 1.0


def correlation_times(series: Ragged) -> Reals:
    """τ of each row."""
    taus: Reals = np.ones(len(series))
    for places, rows in series.portions(cells=_CELLS):
        taus[places] = _times(rows)
    return taus


def widening(taus: Reals | float, worth: Reals | float) -> Reals:
    """By how much the half-widths of a 95 % interval grow when its values, correlated over τ, are `worth` so many."""
    student = stdtrit(_freedom(worth), _UPPER) / ndtri(_UPPER)
    return np.asarray(np.where(np.asarray(taus) > 1, np.sqrt(taus) * student, 1.0))


def corrected_p_values(scores: Reals | float, taus: Reals | float, worth: Reals | float) -> Reals:
    """The two-sided p-values of standard scores (at least 0) of values that are correlated over τ and worth so many."""
    narrowed = -np.asarray(scores) / np.sqrt(taus)
    tails = np.where(np.asarray(taus) > 1, stdtr(_freedom(worth), narrowed), ndtr(narrowed))
    return np.asarray(2 * tails)


def _freedom(worth: Reals | float) -> Reals:
    return np.asarray(np.maximum(np.asarray(worth) - 1, 1.0))


def _times(rows: Reals) -> Reals:
    n = rows.shape[1]
    centred = rankdata(rows, axis=1) - (n + 1) / 2
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
