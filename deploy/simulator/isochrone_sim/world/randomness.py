"""Chance that comes out the same every time: everything random in the world is drawn from names and contents."""

from hashlib import blake2b
from math import exp
from random import Random

_SKEW = 0.6
# The spread of exp(0.6 Z) - 1 for a standard normal Z: sqrt((e^0.36 - 1) e^0.36).
_SPREAD = 0.788


def unit(*words: object) -> float:
    """A number in [0, 1) that follows from `words` alone."""
    return _number(":".join(map(str, words)).encode()) / 2**64


def generator(*words: object, content: bytes = b"") -> Random:
    """A generator whose draws follow from `words` and `content` alone."""
    seed = _number(":".join(map(str, words)).encode() + b"\0" + content)
    return Random(seed)  # noqa: S311  # a simulated world wants repeatable chance, not secrets


def skewed(draw: Random, deviation: float) -> float:
    """One draw with median 0, standard deviation `deviation` and a tail to the right, as latency has: a shifted
    log-normal. In the unit of `deviation`.
    """
    return deviation / _SPREAD * (exp(_SKEW * draw.gauss(0.0, 1.0)) - 1.0)


def _number(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
