"""Reproducible randomness: every random number is derived from names and contents."""

from hashlib import blake2b
from math import exp
from random import Random

_SKEW = 0.6
# The spread of exp(0.6 Z) - 1 for a standard normal Z: sqrt((e^0.36 - 1) e^0.36).
_SPREAD = 0.788


def uniform(*words: object) -> float:
    """Return a number in [0, 1) that depends on `words` only."""
    return _number(":".join(map(str, words)).encode()) / 2**64


def generator(*words: object, content: bytes = b"") -> Random:
    """Return a generator whose numbers depend on `words` and `content` only."""
    seed = _number(":".join(map(str, words)).encode() + b"\0" + content)
    return Random(seed)  # noqa: S311  # reproducible on purpose; not for secrets


def skewed(rng: Random, deviation: float) -> float:
    """Return a random number with median 0, standard deviation `deviation` and a right tail, like latency: a shifted
    log-normal distribution, in the unit of `deviation`.
    """
    return deviation / _SPREAD * (exp(_SKEW * rng.gauss(0.0, 1.0)) - 1.0)


def _number(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
