"""Quantiles and effective numbers for people. A quantile without an interval is not shown: it has too few independent
samples.
"""

from collections.abc import Callable
from typing import TypeVar

from isochrone_client.formats import UNKNOWN, Amount, amount_interval, number
from isochrone_wire.answers import Quantile

Row = TypeVar("Row")
QuantileOf = Callable[[Row], Quantile | None]
TOO_FEW_FOR_MEDIAN = f"{UNKNOWN}: too few independent samples for a 95 % interval: a median needs 6"
TOO_FEW = f"{TOO_FEW_FOR_MEDIAN}, a p95 59"
"""The note below a table with quantiles that are not shown."""


def worth(n: int, n_eff: float | None) -> str:
    """The number of samples or rounds, and how many independent ones have as wide an interval: `60 ≈ 12`."""
    independent = str(n) if n_eff is None else number(n_eff, decimals=0)
    return str(n) if independent == str(n) else f"{n} ≈ {independent}"


def is_shown(quantile: Quantile | None) -> bool:
    """True if the quantile has an interval."""
    return quantile is not None and quantile.low is not None and quantile.high is not None


def value_of(quantile: Quantile | None) -> float | None:
    """The value of a quantile that is shown, otherwise `None`."""
    return quantile.value if quantile is not None and is_shown(quantile) else None


def _unscaled(value: float | None) -> float | None:
    return value


def interval_of(quantile: Quantile | None, scale: Callable[[float | None], float | None] = _unscaled) -> str | Amount:
    """The interval of the quantile; `scale` converts its bounds to the unit of the column."""
    return amount_interval(scale(quantile.low), scale(quantile.high)) if quantile is not None else UNKNOWN
