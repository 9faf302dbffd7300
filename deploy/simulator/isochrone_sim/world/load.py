"""The load of a provider: a smooth function of absolute time, the same for all clients and regions.

The laws:

1. Load is common to all regions: it moves the medians, and cancels in a paired difference.
2. It stays within 1 ± amplitude, and depends on seed, name and instant only.
3. It is slow: at the default amplitude of 12 % it changes by less than 0.5 % per second, so two probes that are 20 ms
   apart see the same load to within 0.1 ms per second of latency.
"""

from math import pi, sin

from isochrone_sim.world.randomness import uniform

_GRID_US = 5_000_000
# (share of the amplitude, period in seconds); primes, so that the pattern does not repeat within days.
_WAVES = ((0.25, 83), (0.33, 601), (0.395, 3607))
_NOISE_SHARE = 0.025


def load_factor(name: str, at: int, *, seed: int, amplitude: float) -> float:
    """Return the load factor of `name` at the wall-clock instant `at` (microseconds since the epoch), within 1 ±
    `amplitude`.
    """
    waves = sum(share * _wave(name, at, seed, period) for share, period in _WAVES)
    return 1.0 + amplitude * (waves + _NOISE_SHARE * _noise(name, at, seed))


def _wave(name: str, at: int, seed: int, period: int) -> float:
    phase = uniform(seed, name, "phase", period)
    # Integer arithmetic removes whole periods: a float of microseconds since 1970 is too coarse for a phase.
    turned = at % (period * 1_000_000) / (period * 1_000_000)
    return sin(2 * pi * (turned + phase))


def _noise(name: str, at: int, seed: int) -> float:
    cell, within = divmod(at, _GRID_US)
    here, there = (2 * uniform(seed, name, "noise", cell + step) - 1 for step in (0, 1))
    share = within / _GRID_US
    return here + (there - here) * share * share * (3 - 2 * share)
