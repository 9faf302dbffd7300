"""Simulated series of round values, as m rows of n rounds, every five minutes. Every series has mean 0 and variance 1.

Real traffic is each request's own noise, often with heavy tails, on a level that drifts slowly.
"""

from collections.abc import Callable

import numpy as np

from isochrone_collector.analysis.stats.arrays import Ragged, Reals

Series = Callable[[np.random.Generator, int, int], Reals]

ROUNDS_PER_HOUR = 12
_WARM_UP = 400


def autoregressive(chance: np.random.Generator, rows: int, n: int, correlation: float) -> Reals:
    """Return stationary series in which neighbours correlate by `correlation`."""
    return chained(chance.standard_normal((rows, _WARM_UP + n)), correlation, axis=1)[:, _WARM_UP:]


def chained(noise: Reals, correlation: float, *, axis: int) -> Reals:
    """Return noise with that correlation of neighbours along an axis. Its first values have not yet the variance 1."""
    from scipy.signal import lfilter  # its import takes a second, which each worker of the tests would spend

    return np.asarray(lfilter([np.sqrt(1 - correlation**2)], [1, -correlation], noise, axis=axis))


def independent(chance: np.random.Generator, rows: int, n: int) -> Reals:
    return chance.standard_normal((rows, n))


def heavy_tailed(chance: np.random.Generator, rows: int, n: int) -> Reals:
    """Return differences of two independent log-normal values with deviation 1 on the log scale, scaled."""
    both = chance.lognormal(0.0, 1.0, (2, rows, n))
    return np.asarray((both[1] - both[0]) / np.sqrt(2 * np.e * (np.e - 1)))


def correlated(correlation: float) -> Series:
    """Return the series with that correlation of neighbours."""
    return lambda chance, rows, n: autoregressive(chance, rows, n, correlation)


def drifting(share: float = 0.2, correlation: float = 0.97) -> Series:
    """Return series of which a share of the variance is drift, by default of three hours, and the rest noise."""

    def made(chance: np.random.Generator, rows: int, n: int) -> Reals:
        drift = autoregressive(chance, rows, n, correlation)
        return np.asarray(np.sqrt(1 - share) * independent(chance, rows, n) + np.sqrt(share) * drift)

    return made


SERIES: dict[str, Series] = {
    "independent normal": independent,
    "independent log-normal": heavy_tailed,
    "AR(.5)": correlated(0.5),
    "AR(.8)": correlated(0.8),
    "80 % noise, 20 % drift": drifting(),
}


def episodic(share: float, rounds: float) -> Series:
    """Return series of which a share of the rounds, in episodes of a mean length, is six deviations above the rest."""

    def made(chance: np.random.Generator, rows: int, n: int) -> Reals:
        ends = 1 / rounds
        begins = ends * share / (1 - share)
        changes = chance.random((n, rows))
        slow = np.empty((n, rows), np.bool_)
        now = chance.random(rows) < share
        for place, own in enumerate(changes):
            slow[place] = now = np.where(now, own >= ends, own < begins)
        values = independent(chance, rows, n) + 6 * (slow.T - share)
        return np.asarray(values / np.sqrt(1 + 36 * share * (1 - share)))

    return made


TAILS: dict[str, Series] = {
    **SERIES,
    "AR(.97)": correlated(0.97),
    "50 % drift": drifting(0.5),
    "episodes of 1 h, 10 %": episodic(0.1, 12),
    "episodes of 1 h, 6 %": episodic(0.06, 12),
    "episodes of 4 h, 6 %": episodic(0.06, 48),
}
"""The series of the tails: also those whose slowest rounds come in episodes, which a window may miss."""


def ragged_of(values: Reals) -> Ragged:
    rows, n = values.shape
    return Ragged(values=values.ravel(), offsets=np.arange(rows + 1) * n)
