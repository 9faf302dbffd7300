"""Long-run variance of measurements in the order of their rounds: how much more their mean varies than if they were
independent.

The inflation of n values is f = ω/v: v is their variance and ω their long-run variance, n times the variance of their
mean; so n values are as good as n/f independent ones. Two estimates of f are made of the ranks of the values, which are
robust to outliers, and the one that makes the interval wider is used:

* Equal-weighted cosines: with B = 6 cosines c_j of 1 to B half periods across the series, ω is the mean of the squares
  of Σ c_j(t)·x(t)·√(2/n), and the interval uses Student's t with B degrees of freedom (U. K. Müller, J. Econometrics
  141 (2007) 1331-1352; E. Lazarus, D. J. Lewis, J. H. Stock and M. W. Watson, J. Bus. Econ. Stat. 36 (2018) 541-559).
  This sees slow drift below large independent noise. A series shorter than 24 rounds has a quarter as many cosines as
  rounds, and at least two.
* The correlation time, which is closer when neighbours are strongly correlated; only used if they are. If it is above 2
  in fewer than 100 rounds, four cosines are tried as well: the fifth and sixth are faster than such a correlation
  lasts, and make ω too small.

A window cannot show drift that is slower than itself. `with_history` adds the variance of the level of windows of this
length in earlier days, beyond the noise within them.

The correlation time of values with autocorrelations r_k is τ = 1 + 2·Σ r_k (G. V. Bayley and J. M. Hammersley, JRSS
Suppl. 8 (1946) 184-197). Each r_k is the mean of its n - k products; the sum ends before the first r_k <= 2/√n, from
which on they are noise (an initial-sequence rule; cf. C. J. Geyer, Statistical Science 7 (1992) 473-483). The r_k are
measured about the mean of the same values, which lowers each by (1 - r_k)·τ/n (F. H. C. Marriott and J. A. Pope,
Biometrika 41 (1954) 390-402). Corrected in all K of the sum, τ = (1 + 2S) / (1 - 2(K - S)/n), S = Σ r_k. In a short
series autocorrelation does not stand out from noise: with 24 rounds it takes a correlation of 0.4.

Values are in the order of their rounds, and missing rounds are skipped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from isochrone_collector.analysis.stats.arrays import Flags, Integers, Ragged, Reals, mean_ranks

# The correction at most doubles τ, however long the sum is.
_LEAST_DIVISOR = 0.5
_SHARE_LEFT = 0.7


def correlation_times(rows: Reals) -> Reals:
    """Return τ, at least 1, of each row of a matrix of at least one column."""
    return _times_of_ranks(mean_ranks(rows) - (rows.shape[1] + 1) / 2)


def _times_of_ranks(centred: Reals) -> Reals:
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
    return np.asarray((1 + 2 * likeness) / np.maximum(1 - 2 * (lags - likeness) / n, _LEAST_DIVISOR))


# Products with the cosines stay below the size from which OpenBLAS starts threads, which then wait busily.
_CELLS = 1 << 15
_UPPER = 0.975
_Z = float(ndtri(_UPPER))
_COSINES = 6
_LEAST_COSINES = 2
# In fewer rounds than these, strong correlation makes the fifth and sixth cosine too small.
_MANY_ROUNDS = 100
_COSINES_OF_CORRELATED = 4
_STRONG = 2.0
_ROUNDS_PER_COSINE = 4
# With drift of a memory of three hours, the variance of levels of 1 to 24 hours has half of the degrees of freedom that
# independent hours give it.
_INDEPENDENT_HOURS = 0.5
# The median of fewer rows says little about another one.
_MANY_ROWS = 20

LEAST_ROUNDS = 24
"""The rounds from which on a series shows its own correlation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceInflation:
    """The inflation of each row's variance, and its degrees of freedom: infinite for rows taken as independent."""

    ratio: Reals
    freedom: Reals

    @property
    def factor(self) -> Reals:
        """The factor of the half-widths of a 95 % interval for independent values."""
        quantiles = np.array([_student_quantile(one) for one in self.freedom.tolist()])
        return np.asarray(np.sqrt(self.ratio) * quantiles / _Z)

    def p_values(self, scores: Reals) -> Reals:
        """Return the two-sided p-values of standard scores (at least 0) of independent values."""
        narrowed = -scores / np.sqrt(self.ratio)
        finite = np.isfinite(self.freedom)
        known = np.where(finite, self.freedom, 1.0)
        return np.asarray(2 * np.where(finite, stdtr(known, narrowed), ndtr(narrowed)))

    def with_history(self, variances: Reals, history: "VarianceInflation") -> "VarianceInflation":
        """Return the wider of this inflation and that of `history`, per row, whose ratio is the variance of the level
        of such windows (NaN: unknown) in the unit of `variances`: those of the estimates, as of independent values.
        A week has few windows, so that some rows look calm by chance: each of 20 or more varies at least half-way as
        much as the median row (cf. G. K. Smyth, Stat. Appl. Genet. Mol. Biol. 3 (2004) 3).
        """
        slow = np.nan_to_num(np.divide(history.ratio, variances, out=np.zeros_like(variances), where=variances > 0))
        known = np.isfinite(history.ratio)
        if np.count_nonzero(known) >= _MANY_ROWS:
            slow = np.where(known, np.maximum(slow, (slow + np.median(slow[known])) / 2), slow)
        freedom = np.maximum(_INDEPENDENT_HOURS * history.freedom, 1.0)
        return self.wider(VarianceInflation(ratio=1 + slow, freedom=np.where(slow > 0, freedom, np.inf)))

    def of_windows(self, counts: Reals | Integers | int) -> "VarianceInflation":
        """Return the inflation of so many values per row by this history, with B. L. Welch's degrees of freedom."""
        slow = np.asarray(counts, np.float64) * np.nan_to_num(self.ratio)
        share = slow / (1 + slow)
        freedom = np.divide(self.freedom, share**2, out=np.full(len(slow), np.inf), where=share > 0)
        return VarianceInflation(ratio=1 + slow, freedom=freedom)

    def of_counts(self, counts: Integers) -> Reals:
        """Return the effective number of so many values per row whose order is unknown, if this is such a history."""
        return self.of_windows(counts).effective_n(counts)

    def wider(self, other: "VarianceInflation") -> "VarianceInflation":
        """Return, per row, the one with the larger factor."""
        return self.where(self.factor >= other.factor, other)

    def where(self, mask: Flags, other: "VarianceInflation") -> "VarianceInflation":
        """Return this inflation in the rows of a mask, and another one in the rest."""
        return VarianceInflation(
            ratio=np.where(mask, self.ratio, other.ratio), freedom=np.where(mask, self.freedom, other.freedom)
        )

    def at(self, places: Integers) -> "VarianceInflation":
        """Return these rows."""
        return VarianceInflation(ratio=self.ratio[places], freedom=self.freedom[places])

    def effective_n(self, counts: Reals | Integers | int) -> Reals:
        """Return how many independent values have as wide an interval as `counts` values per row: 1 to `counts`."""
        return np.asarray(np.minimum(np.maximum(counts / self.factor**2, 1.0), counts))


def independent(rows: int) -> VarianceInflation:
    """Return the inflation of rows whose values are taken as independent."""
    return VarianceInflation(ratio=np.ones(rows), freedom=np.full(rows, np.inf))


def stacked(parts: Sequence[VarianceInflation]) -> VarianceInflation:
    """Return the rows of all parts, at least one."""
    return VarianceInflation(
        ratio=np.concatenate([part.ratio for part in parts]), freedom=np.concatenate([part.freedom for part in parts])
    )


def inflation(series: Ragged, *, cosines: int = _COSINES) -> VarianceInflation:
    """Return the inflation of each row; 1 for an empty or constant one.

    More than six `cosines` are right for the mean of a part of the row: what is slower than the part is left out. Fewer
    see more of a strong correlation, at the price of wider intervals.
    """
    found = independent(len(series))
    for places, rows in series.portions(cells=_CELLS):
        own = _of_centred(mean_ranks(rows) - (rows.shape[1] + 1) / 2, cosines)
        found.ratio[places], found.freedom[places] = own.ratio, own.freedom
    return found


def inflation_of_flags(flags: Flags | Reals, history: VarianceInflation | None = None) -> VarianceInflation:
    """Return the inflation of each row of a matrix of flags, true ones as 1, in the order of their rounds.

    `history.ratio` is the variance of the level of such windows in units of the variance of one flag, NaN where it is
    unknown. Where it is known, the wider of both counts; fewer than 24 flags, and a single one that differs, show no
    correlation, so that only history counts. Where it is unknown, the inflation is at least 1: few flags that look more
    regular than independent ones are chance.
    """
    n = flags.shape[1]
    count = flags.sum(axis=1)
    rare = np.minimum(count, n - count)
    least = VarianceInflation(ratio=np.ones(len(flags)), freedom=np.where(rare > 0, float(_terms(n, _COSINES)), np.inf))
    if history is None and not (rare > 1).any():
        return least
    own = _of_centred(flags - count[:, np.newaxis] / n, _COSINES)
    alone = own.wider(least).where(rare > 1, least)
    if history is None:
        return alone
    past = history.of_windows(n)
    shows_memory = (rare > 1) & (n >= LEAST_ROUNDS)
    return own.wider(past).where(shows_memory, past).where(np.isfinite(history.ratio), alone)


def of_cosines(series: Ragged, cosines: int) -> VarianceInflation:
    """Return the inflation of each row of values, not of their ranks, by so many cosines alone."""
    found = independent(len(series))
    for places, rows in series.portions(cells=_CELLS):
        own = _by_cosines(rows - rows.mean(axis=1, keepdims=True), cosines)
        found.ratio[places], found.freedom[places] = own.ratio, own.freedom
    return found


def of_correlation(times: Reals, counts: Reals | Integers) -> VarianceInflation:
    """Return the inflation of rows of `counts` values by their correlation times alone."""
    freedom = np.where(times > 1, np.maximum(counts / times - 1, 1.0), np.inf)
    return VarianceInflation(ratio=times, freedom=freedom)


def _of_centred(centred: Reals, cosines: int) -> VarianceInflation:
    by_cosines, times = _by_cosines(centred, cosines), _times_of_ranks(centred)
    n, strongly = centred.shape[1], times > _STRONG
    wider = by_cosines.wider(of_correlation(times, np.full(len(times), n)))
    if cosines == _COSINES and n < _MANY_ROUNDS and strongly.any():
        wider = wider.wider(_by_cosines(centred, _COSINES_OF_CORRELATED)).where(strongly, wider)
    return wider.where(times > 1, by_cosines)


def _by_cosines(centred: Reals, cosines: int) -> VarianceInflation:
    weights = (centred @ cosines_of(centred.shape[1], cosines)) ** 2
    variances = (centred**2).mean(axis=1)
    varies = variances > 0
    ratio = np.divide(weights.mean(axis=1), variances, out=np.ones(len(centred)), where=varies)
    return VarianceInflation(ratio=ratio, freedom=np.where(varies, weights.shape[1], np.inf))


# Few, because each may have a megabyte.
@lru_cache(maxsize=64)
def cosines_of(n: int, most: int) -> Reals:
    """Return the cosines for n rounds, an n by B matrix, B at most `most` and a quarter of the rounds."""
    terms = np.arange(1, _terms(n, most) + 1)
    return np.asarray(np.sqrt(2 / n) * np.cos(np.pi / n * np.outer(np.arange(n) + 0.5, terms)))


def _terms(n: int, most: int) -> int:
    return min(most, max(_LEAST_COSINES, n // _ROUNDS_PER_COSINE))


@lru_cache(maxsize=4096)
def _student_quantile(freedom: float) -> float:
    # Many rows have the same degrees of freedom, and each quantile takes microseconds.
    return float(stdtrit(freedom, _UPPER)) if freedom < np.inf else _Z
