"""Cells, footnotes and errors that several pages share.

A quantile without an interval is not shown: it has too few independent samples.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from isochrone_client.errors import InsufficientError, NoSamplesError
from isochrone_client.formats import UNKNOWN, Amount, amount_interval, between, number
from isochrone_wire.answers import Quantile, Window

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


_SO_FAR = " so far; "


def without_size(reason: str) -> str:
    """The reason of a decision without the size that its row shows, so that rows can share it."""
    return reason.rpartition(_SO_FAR)[2]


class Footnotes:
    """Remarks, numbered in the order of their first use. An empty remark has no mark."""

    def __init__(self, remarks: Iterable[str]) -> None:
        self._number_of = {
            remark: number for number, remark in enumerate(dict.fromkeys(filter(None, remarks)), start=1)
        }

    def marked(self, text: str, remark: str) -> str:
        """The text with the mark of its remark: `undecided [1]`."""
        return f"{text} [{self._number_of[remark]}]" if remark else text

    @property
    def notes(self) -> tuple[str, ...]:
        """The remarks with their marks, to follow the table."""
        return tuple(f"[{number}] {remark}" for remark, number in self._number_of.items())


def no_samples(window: Window) -> NoSamplesError:
    """The error for a window without samples."""
    return NoSamplesError(f"no samples between {between(window)}", window=window)


def no_price() -> InsufficientError:
    """The error for a plan without prices."""
    return InsufficientError("no target has a price", hint="set `price` of the targets in the plan")


def too_few_for_a_median(most: int) -> InsufficientError:
    """The error if no target has a median; `most` is the largest number of samples of a target."""
    return InsufficientError(
        f"no target has enough independent samples for a median: {most} of 16 needed, or of 6 with a week of history",
        hint="wait for more rounds, or see `isochrone samples` for why probes fail",
    )
