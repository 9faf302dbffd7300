"""Location and significance of a change point in a stretch of values: one step of E-divisive.

The energy distance of the values before and after a place τ among n is

    E(τ) = 2·mean|X - Y| - mean|X - X'| - mean|Y - Y'|

over pairs across and within the two sides; the estimated change is at the greatest τ(n - τ)/n · E(τ), and its
significance is that of a permutation test (D. S. Matteson and N. A. James, A Nonparametric Approach for Multiple Change
Point Analysis of Multivariate Data, JASA 109 (2014) 334-345, arXiv:1306.4933; with exponent 1, and the end of the
stretch in place of their κ). The test assumes exchangeable values under no change. Autocorrelation makes its p-value
too small, so it must not be the only criterion of an alarm.

The permutations come from a generator with a fixed seed: the same values always give the same result.
"""

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

PERMUTATIONS = 499
_SEED = 20141306


def likeliest(values: Reals, *, least: int) -> int | None:
    """Return the place, from 0, where the second of two parts of at least `least` values begins, divided where their
    scaled energy distance is greatest; `None` with fewer than 2·`least` values.
    """
    if len(values) < 2 * least:
        return None
    return least + int(np.argmax(_scores(_distances(values), least)))


def significance(values: Reals, *, least: int, enough: float = 1.0) -> float:
    """Return the p-value of the likeliest division of at least 2·`least` values; 1 if it certainly exceeds `enough`."""
    distances = _distances(values)
    greatest = _scores(distances, least).max()
    shuffled = np.random.default_rng(_SEED)
    p_value = 1 / (1 + PERMUTATIONS)
    for _ in range(PERMUTATIONS):
        order = shuffled.permutation(len(values))
        if _scores(distances[np.ix_(order, order)], least).max() >= greatest:
            p_value += 1 / (1 + PERMUTATIONS)
            if p_value > enough:
                return 1.0
    return p_value


def _distances(values: Reals) -> Reals:
    distances: Reals = np.abs(np.subtract.outer(values, values))
    return distances


def _scores(distances: Reals, least: int) -> Reals:
    """Return the scaled energy distance of each place from `least` to n - `least`."""
    n = len(distances)
    # Sums of the distances among the first τ values, and between them and all.
    among_first = np.concatenate(([0.0], np.cumsum(2 * np.tril(distances).sum(axis=1))))
    of_first = np.concatenate(([0.0], np.cumsum(distances.sum(axis=1))))
    first = np.arange(least, n - least + 1)
    rest = n - first
    within_first = among_first[first]
    across = of_first[first] - within_first
    within_rest = of_first[n] - 2 * across - within_first
    energy = 2 * across / (first * rest) - within_first / first**2 - within_rest / rest**2
    scaled: Reals = first * rest / n * energy
    return scaled
