"""Series of latencies on which statistics easily claim too much: rounds every five minutes, in milliseconds."""

import numpy as np

from isochrone_collector.analysis.stats.arrays import Reals

DAY = 288
_LEVEL_MS = 100.0


def noise(n: int) -> Reals:
    """Return independent noise of 1 ms."""
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
