"""Series of latencies: those on which statistics easily claim too much, in milliseconds, and log-normal ones."""

from dataclasses import dataclass
from math import pi, sqrt

import numpy as np

from isochrone_collector.analysis.stats.arrays import Integers, Reals
from isochrone_wire.model import DAY_US

DAY = 288
_LEVEL_MS = 100.0


def noise(n: int) -> Reals:
    return np.random.default_rng(2).standard_normal(n)


def steps(n: int) -> Reals:
    """Return a level that doubled five rounds ago."""
    return np.where(np.arange(n) < n - 5, _LEVEL_MS, 2 * _LEVEL_MS) + noise(n)


def swinging(n: int) -> Reals:
    """Return a level that rises and falls by 30 % every day."""
    return _LEVEL_MS * (1 + 0.3 * np.sin(2 * np.pi * np.arange(n) / DAY)) + noise(n)


def alternating(n: int) -> Reals:
    """Return values of which each is on the other side of the median than the last: a negative correlation."""
    return _LEVEL_MS + np.where(np.arange(n) % 2, 10.0, -10.0) + noise(n)


def half_censored(n: int) -> Reals:
    """Return values of which every other one is missing, because the request hung."""
    return np.where(np.arange(n) % 2, np.nan, _LEVEL_MS + noise(n))


SERIES: dict[str, Reals] = {
    "none": np.empty(0),
    "one round": np.full(1, _LEVEL_MS),
    "23 rounds": _LEVEL_MS + noise(23),
    "constant": np.full(DAY, _LEVEL_MS),
    "ties": np.repeat([_LEVEL_MS, 2 * _LEVEL_MS], DAY // 2),
    "a change five rounds ago": steps(DAY),
    "day and night": swinging(2 * DAY),
    "negative correlation": alternating(DAY),
    "half of the rounds censored": half_censored(DAY),
    "all rounds censored": np.full(DAY, np.nan),
}
"""The series by name; NaN for a request without a first token."""


START_AT = 1_794_960_000_000_000  # a midnight
_USUAL_US = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesModel:
    """A model of round medians: log-normal, optionally autocorrelated noise with a daily pattern."""

    every_s: int = 300
    sigma: float = 0.1  # of the logarithm of the noise
    autocorrelation: float = 0.0  # of the noise, of first order
    daily_amplitude: float = 0.2

    def rounds(self, days: float) -> Integers:
        return START_AT + np.arange(int(days * 86_400 / self.every_s), dtype=np.int64) * self.every_s * 1_000_000

    def values(self, rounds: Integers, seed: int) -> Reals:
        hours = (rounds % DAY_US) / DAY_US * 2 * pi
        day = self.daily_amplitude * (np.sin(hours) + np.sin(2 * hours + 1) / 3)
        shocks = np.random.default_rng(seed).standard_normal(len(rounds)) * sqrt(1 - self.autocorrelation**2)
        if len(shocks):
            shocks[0] /= sqrt(1 - self.autocorrelation**2)
        from scipy.signal import lfilter  # takes longer than all else that a test worker imports for these series

        noise: Reals = lfilter([1.0], [1.0, -self.autocorrelation], shocks)
        values: Reals = _USUAL_US * np.exp(day + self.sigma * noise)
        return values
