"""Series of round medians as targets make them: log-normal noise that may remember, on a daily rhythm."""

from dataclasses import dataclass
from math import pi, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from isochrone_wire.model import DAY_US

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]

START_AT = 1_794_960_000_000_000  # a midnight
_USUAL_US = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Nature:
    """What a series is like: rounds every so many seconds, the standard deviation of the logarithm of its noise, how
    much each round's resembles the one before, and how far the day swings it.
    """

    every_s: int = 300
    sigma: float = 0.1
    memory: float = 0.0
    swing: float = 0.2

    def rounds(self, days: float) -> Integers:
        """The rounds of so many days."""
        return START_AT + np.arange(int(days * 86_400 / self.every_s), dtype=np.int64) * self.every_s * 1_000_000

    def values(self, rounds: Integers, seed: int) -> Reals:
        """The medians of these rounds, the same for the same seed."""
        hours = (rounds % DAY_US) / DAY_US * 2 * pi
        day = self.swing * (np.sin(hours) + np.sin(2 * hours + 1) / 3)
        shocks = np.random.default_rng(seed).standard_normal(len(rounds)) * sqrt(1 - self.memory**2)
        if len(shocks):
            shocks[0] /= sqrt(1 - self.memory**2)
        noise: Reals = lfilter([1.0], [1.0, -self.memory], shocks)
        values: Reals = _USUAL_US * np.exp(day + self.sigma * noise)
        return values
