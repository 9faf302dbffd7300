"""Memory of many series at once: how much more their means vary than a window can show.

A window shows drift that is slower than itself only as a part of a wave. Its low cosines tell drift from noise, but
those of one window are few; those of all series of a table are many. So one model is fitted to all: a share s of the
variance of a round is an autoregression of first order whose correlation falls to 1/e within L rounds, and the rest is
independent. The variances of the mean and of the cosines of such a series are exact, for a grid of s and L.

* The likelihood of a row is that of its cosines as independent normal values (P. Whittle, Arkiv för Matematik 2 (1953)
  423-434) of unknown scale: -½·Σ log E_k - (n-1)/2 · log Σ P_k/E_k. The first cosines count one by one, the others
  together. They do not depend on the level: true differences between series do not count as drift.
* The likelihoods of all rows are multiplied, and weigh the grid by Bayes's theorem. Before any round is seen, memories
  of a few rounds have 20 % and longer ones 5 %, but 25 % in windows of fewer than 100 rounds, where one series does not
  show them; the rest is white noise. Of one series, only many rounds say more: of fewer than 20 pairs with fewer than
  200 rounds, 95 % (n below 84) to 40 % have drift of 5 to 40 % with a memory of 60 rounds or more, so that one pair
  alone differs if it does under the drift that is plausible.
* What a mean may deviate by is then the mixture of normal distributions over the grid. It is stated as Student's t with
  the same 97.5 % and 99.95 % quantiles.

The cosines are those of ranks, as in `long_run_variance`.
"""

from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from isochrone_collector.analysis.stats.arrays import Ragged, Reals, mean_ranks
from isochrone_collector.analysis.stats.long_run_variance import (
    LEAST_ROUNDS,
    VarianceInflation,
    cosines_of,
    independent,
)

_CELLS = 1 << 17
# A product with all models stays below 2^18 multiplications: from there on OpenBLAS starts threads, which then wait
# busily and double the processor time.
_PRODUCT_CELLS = 1 << 13
_COSINES = 12
_ROUNDS = np.array([0.7, 1.4, 4.5, 10, 20, 33, 60, 120, 250, 600])
_SHARES = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1])
_IS_LONG = _ROUNDS >= 10  # noqa: PLR2004  # less is seen in any window that may be decided on
_FEW_ROUNDS = 100
_LONG, _LONG_OF_FEW, _SHORT = 0.05, 0.25, 0.2
_FEW_PAIRS, _FEW_ROUNDS_OF_PAIRS, _PLAUSIBLE, _PLAUSIBLE_ROUNDS = 20, 200, 0.95, 80
_IS_PLAUSIBLE = np.outer((_SHARES >= 0.05) & (_SHARES <= 0.4), _ROUNDS >= 60)  # noqa: PLR2004  # what few do not show
# Models of less weight change no quantile.
_NEGLIGIBLE = 1e-5
_TAIL, _FAR_TAIL = 0.025, 0.0005
_FREEDOM = np.array([*np.linspace(1, 10, 361), *np.geomspace(10, 1e6, 400)[1:]])
_NEAR = stdtrit(_FREEDOM, 1 - _TAIL)
_FAR_RATIO = stdtrit(_FREEDOM, 1 - _FAR_TAIL) / _NEAR
_STEPS = 6
_ROOT = np.sqrt(2 * np.pi)
_ANGLES = 513


def unseen_inflation(series: Ragged, *, are_pairs: bool = False) -> VarianceInflation:
    """Return the inflation of each row by the memory that all rows show; 1 below 24 rounds, and for constant rows."""
    found = independent(len(series))
    weights, per_row = _posterior(series, are_few_pairs=are_pairs and len(series) < _FEW_PAIRS)
    kept = weights > _NEGLIGIBLE
    places = np.flatnonzero(series.counts >= LEAST_ROUNDS)
    for part in np.array_split(places, 1 + len(places) * int(kept.sum()) // _CELLS):
        own = _as_student(weights[kept] / weights[kept].sum(), per_row[np.ix_(part, kept)])
        found.ratio[part], found.freedom[part] = own.ratio, own.freedom
    return found


def model_weights(series: Ragged) -> Reals:
    """Return the weight of each model by the memory that all rows show, for `unseen_inflation_of_flags`."""
    return _posterior(series)[0]


def unseen_inflation_of_flags(weights: Reals, n: int, share: float) -> VarianceInflation:
    """Return the inflation of n flags "above the quantile `share`" of values with these weights of models, as one row.

    Ranks carry their memory to a limit by the Gaussian copula: at a correlation r of the normal scores, flags correlate
    by the integral of exp(-h²/(1+t)) / (2π·√(1-t²)) over t from 0 to r, divided by p·(1-p), with h the normal quantile
    of p (R. L. Plackett, Biometrika 41 (1954) 351-360).
    """
    return _as_student(weights, _flag_variances(n, share)[None]) if n > 1 else independent(1)


@lru_cache(maxsize=512)
def _flag_variances(n: int, share: float) -> Reals:
    angles = np.linspace(0, np.pi / 2, _ANGLES)
    density = np.exp(-(ndtri(share) ** 2) / (1 + np.sin(angles))) / (2 * np.pi * share * (1 - share))
    flags = np.append(0, np.cumsum((density[1:] + density[:-1]) / 2)) * angles[1]
    lags = np.arange(1, n)
    scores = _SHARES[:, None, None] * np.exp(-lags / _ROUNDS[:, None])
    correlations = np.interp(np.arcsin(scores.reshape(-1, n - 1)), angles, flags)
    return np.append(1.0, 1 + 2 * correlations @ (1 - lags / n))


def _posterior(series: Ragged, *, are_few_pairs: bool = False) -> tuple[Reals, Reals]:
    """Return the weight of each model, and the inflation of each row by each model."""
    log_weights = np.log(_prior(int(series.counts.max(initial=0)), are_few_pairs=are_few_pairs))
    per_row = np.ones((len(series), len(log_weights)))
    for places, rows in series.portions(cells=_PRODUCT_CELLS):
        if rows.shape[1] >= LEAST_ROUNDS:
            likelihoods, per_row[places] = _fitted(rows)
            log_weights = log_weights + likelihoods
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum(), per_row


@lru_cache(maxsize=512)
def _prior(n: int, *, are_few_pairs: bool) -> Reals:
    """Return the weight of each model before any of at most n rounds is seen."""
    long = _LONG_OF_FEW if n < _FEW_ROUNDS else _LONG
    by_memory = np.where(_IS_LONG, long / _IS_LONG.sum(), _SHORT / (~_IS_LONG).sum())
    usual = np.append(1 - long - _SHORT, np.tile(by_memory / len(_SHARES), len(_SHARES)))
    plausible = np.append(0, _IS_PLAUSIBLE.ravel() / _IS_PLAUSIBLE.sum())
    share = min(_PLAUSIBLE, _PLAUSIBLE_ROUNDS / max(n, 1)) if are_few_pairs and n < _FEW_ROUNDS_OF_PAIRS else 0
    return np.asarray((1 - share) * usual + share * plausible)


def _fitted(rows: Reals) -> tuple[Reals, Reals]:
    """Return the sum of the rows' log-likelihoods by model, and the inflation of each row by each model."""
    n = rows.shape[1]
    ranks = mean_ranks(rows) - (n + 1) / 2
    variances = (ranks**2).mean(axis=1, keepdims=True)
    shown = (ranks @ cosines_of(n, _COSINES)) ** 2 * (n - 1) / n
    powers = np.divide(shown, variances, out=np.ones_like(shown), where=variances > 0)
    expected = spectra(n)
    mean, low, rest = expected[:, 0], expected[:, 1:-1], expected[:, -1]
    others = np.maximum(n - 1 - powers.sum(axis=1), 0.0)
    scales = (powers @ (1 / low).T + np.outer(others, 1 / rest)) / (n - 1)
    logs = np.log(low).sum(axis=1) + (n - 1 - low.shape[1]) * np.log(rest) + (n - 1) * np.log(scales)
    varies = variances[:, 0] > 0
    return -logs[varies].sum(axis=0) / 2, np.where(varies[:, None], mean * scales, 1.0)


# Few, because windows have a few lengths at a time.
@lru_cache(maxsize=512)
def spectra(n: int) -> Reals:
    """Return, by model, the variances of n rounds' mean (times n), of their first cosines, and of each other cosine, in
    units of the variance of a round: a matrix of models by cosines + 2. The first model is white noise.
    """
    cosines = cosines_of(n, _COSINES).shape[1]
    lags, terms = np.arange(1, n), np.pi / n * np.arange(1, cosines + 1)
    angles = lags[:, None] * terms
    products = (1 - lags[:, None] / n) * np.cos(angles) - np.sin(angles) / (n * np.sin(terms))
    correlations = np.exp(-lags / _ROUNDS[:, None])
    mean = 1 + 2 * correlations @ (1 - lags / n)
    low = 1 + 2 * correlations @ products
    rest = (n - mean - low.sum(axis=1)) / (n - 1 - cosines)
    drift = np.column_stack([mean, low, rest])
    mixed = 1 - _SHARES[:, None, None] + _SHARES[:, None, None] * drift
    return np.concatenate([np.ones((1, drift.shape[1])), mixed.reshape(-1, drift.shape[1])])


def _as_student(weights: Reals, variances: Reals) -> VarianceInflation:
    """Return Student's t with the quantiles of mixtures of normal distributions, of models' variances by row."""
    near, far = (_quantile(weights, variances, tail) for tail in (_TAIL, _FAR_TAIL))
    freedom, student = (np.interp(-far / near, -_FAR_RATIO, one) for one in (_FREEDOM, _NEAR))
    return VarianceInflation(ratio=(near / student) ** 2, freedom=freedom)


def _quantile(weights: Reals, variances: Reals, tail: float) -> Reals:
    """Return the upper quantiles by Newton's steps: from below, as tails are convex, and from that of one model on."""
    deviations = np.sqrt(variances)
    found = (deviations * -ndtri(tail / np.maximum(weights, 2 * tail))).max(axis=1)
    densities = weights / (deviations * _ROOT)
    for _ in range(_STEPS):
        scores = found[:, None] / deviations
        beyond = np.einsum("ij,j->i", ndtr(-scores), weights) - tail
        found = found + beyond / np.einsum("ij,ij->i", np.exp(scores * scores / -2), densities)
    return np.asarray(found)
