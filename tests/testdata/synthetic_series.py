"""Synthetic series of round medians: log-normal, optionally autocorrelated noise with a daily pattern."""

from dataclasses import dataclass
from math import pi, sqrt

import numpy as np

from isochrone_collector.analysis.stats.arrays import Integers, Reals
from isochrone_wire.model import DAY_US

START_AT = 1_794_960_000_000_000  # a midnight
_USUAL_US = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesModel:
    """The model of a series: interval of rounds in seconds, standard deviation of the logarithm of the noise,
    first-order autocorrelation of the noise, and amplitude of the daily pattern.
    """

    every_s: int = 300
    sigma: float = 0.1
    autocorrelation: float = 0.0
    daily_amplitude: float = 0.2

    def rounds(self, days: float) -> Integers:
        """Return the rounds of `days` days."""
        return START_AT + np.arange(int(days * 86_400 / self.every_s), dtype=np.int64) * self.every_s * 1_000_000

    def values(self, rounds: Integers, seed: int) -> Reals:
        """Return the medians of these rounds, reproducible by seed."""
        hours = (rounds % DAY_US) / DAY_US * 2 * pi
        day = self.daily_amplitude * (np.sin(hours) + np.sin(2 * hours + 1) / 3)
        shocks = np.random.default_rng(seed).standard_normal(len(rounds)) * sqrt(1 - self.autocorrelation**2)
        if len(shocks):
            shocks[0] /= sqrt(1 - self.autocorrelation**2)
        from scipy.signal import lfilter  # takes longer than all else that a test worker imports for these series

        noise: Reals = lfilter([1.0], [1.0, -self.autocorrelation], shocks)
        values: Reals = _USUAL_US * np.exp(day + self.sigma * noise)
        return values
