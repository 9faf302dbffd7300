"""Memory of a ranked series: how much more a count of its requests varies than one of independent requests, as far as
the past week shows it.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from isochrone_collector.analysis.history import History, Quantity
from isochrone_collector.analysis.stats.long_run_variance import Inflation


class Ranked(Protocol):
    """The requests of one target from one region, at all hours of the day or in one of them (UTC)."""

    @property
    def target_id(self) -> int:
        """The id of the target."""

    @property
    def region(self) -> str:
        """The region of the vantages."""

    @property
    def hours(self) -> float:
        """The hours that the requests span."""

    @property
    def hour(self) -> int | None:
        """The hour of the day, `None` for all."""

    @property
    def is_summary(self) -> bool:
        """Whether the order of the requests is not known."""


def memories(ranked: Sequence[Ranked], quantities: Iterable[Quantity], history: History) -> dict[Quantity, Inflation]:
    """Return the history of each quantity per series, as `inflation_of_flags` takes it; unknown for an hour of the day,
    because the week has seven of it. If that of a summary is unknown, all requests of an hour count as one.
    """
    keys, hours = keys_of(ranked), np.array([one.hours for one in ranked])
    whole = np.array([one.hour is None for one in ranked], np.bool_)
    summarised = np.array([one.is_summary for one in ranked], np.bool_)
    guess = Inflation(ratio=1 / np.maximum(hours, 1.0), freedom=np.full(len(ranked), np.inf))
    found = {}
    for quantity in quantities:
        measured = history.of(quantity, keys, hours)
        known = Inflation(ratio=np.where(whole, measured.ratio, np.nan), freedom=measured.freedom)
        found[quantity] = guess.where(summarised & np.isnan(known.ratio), known)
    return found


def keys_of(ranked: Sequence[Ranked]) -> list[tuple[int, str]]:
    """Return the target's id and the region of each series."""
    return [(one.target_id, one.region) for one in ranked]
