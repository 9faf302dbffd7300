"""Memory of a ranked series: how much more a count of its requests varies than one of independent requests, as far as
the past week shows it.
"""

from collections.abc import Sequence
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


def memory(ranked: Sequence[Ranked], quantity: Quantity, history: History) -> Inflation:
    """Return the history of a quantity per series, as `inflation_of_flags` takes it; unknown for an hour of the day,
    because the week has seven of it. If that of a summary is unknown, all requests of an hour count as one.
    """
    hours = np.array([one.hours for one in ranked])
    found = history.of(quantity, keys_of(ranked), hours)
    whole = np.array([one.hour is None for one in ranked], np.bool_)
    known = Inflation(ratio=np.where(whole, found.ratio, np.nan), freedom=found.freedom)
    guessed = np.array([one.is_summary for one in ranked], np.bool_) & np.isnan(known.ratio)
    return Inflation(ratio=1 / np.maximum(hours, 1.0), freedom=np.full(len(ranked), np.inf)).where(guessed, known)


def keys_of(ranked: Sequence[Ranked]) -> list[tuple[int, str]]:
    """Return the target's id and the region of each series."""
    return [(one.target_id, one.region) for one in ranked]
