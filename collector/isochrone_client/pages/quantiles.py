"""Quantiles for people. One without an interval is not said: there are too few samples for it."""

from collections.abc import Callable
from typing import TypeVar

from isochrone_client.formats import UNKNOWN, interval
from isochrone_wire.answers import Quantile

Row = TypeVar("Row")
QuantileOf = Callable[[Row], Quantile | None]


def is_shown(quantile: Quantile | None) -> bool:
    """Whether a quantile is known well enough to be said."""
    return quantile is not None and quantile.low is not None and quantile.high is not None


def value_of(quantile: Quantile | None) -> float | None:
    """Its value where it is said."""
    return quantile.value if quantile is not None and is_shown(quantile) else None


def _same(value: float | None) -> float | None:
    return value


def interval_of(quantile: Quantile | None, scaled: Callable[[float | None], float | None] = _same) -> str:
    """Its interval, `scaled` to the unit of the column."""
    return interval(scaled(quantile.low), scaled(quantile.high)) if quantile is not None else UNKNOWN
