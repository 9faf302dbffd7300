"""How busy a provider is: a smooth function of absolute time, the same for whoever asks from wherever.

The laws:

1. Load is common to all regions: it moves the medians, and cancels in a paired difference.
2. It never leaves 1 ± amplitude, and follows from seed, name and instant alone.
3. It is slow: at the usual amplitude of 12 % it changes by less than 0.5 % per second, so two probes that are 20 ms
   apart see the same to within 0.1 ms per second of latency.
"""

from math import pi, sin

from isochrone_sim.world.randomness import unit

_GRID_US = 5_000_000
# (share of the amplitude, period in seconds); primes, so that the pattern does not repeat within days.
_WAVES = ((0.25, 83), (0.33, 601), (0.395, 3607))
_NOISE_SHARE = 0.025


def load_factor(name: str, at: int, *, seed: int, amplitude: float) -> float:
    """The factor on `name` at the wall instant `at` (microseconds since the epoch), within 1 ± `amplitude`."""
    waves = sum(share * _wave(name, at, seed, period) for share, period in _WAVES)
    return 1.0 + amplitude * (waves + _NOISE_SHARE * _noise(name, at, seed))


def _wave(name: str, at: int, seed: int, period: int) -> float:
    phase = unit(seed, name, "phase", period)
    # Whole periods are taken off in integers: a float of microseconds since 1970 is too coarse for a phase.
    turned = at % (period * 1_000_000) / (period * 1_000_000)
    return sin(2 * pi * (turned + phase))


def _noise(name: str, at: int, seed: int) -> float:
    cell, within = divmod(at, _GRID_US)
    here, there = (2 * unit(seed, name, "noise", cell + step) - 1 for step in (0, 1))
    share = within / _GRID_US
    return here + (there - here) * share * share * (3 - 2 * share)
