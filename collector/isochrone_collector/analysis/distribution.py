"""Distributions: the values of one metric, whatever is left of them, as far as answers need to know them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from isochrone_collector.analysis.stats.quantile import quantile
from isochrone_wire.answers import Quantile
from isochrone_wire.model import Outcome

Reals = NDArray[np.float64]


def _nothing() -> Reals:
    return np.empty(0)


class Distribution(Protocol):
    """Values in microseconds, or tokens per second. Those of probes that ran into a limit are only known to exceed it:
    they are censored, and stand above all others.
    """

    @property
    def known(self) -> int:
        """How many values there are that are no limits."""

    @property
    def n(self) -> int:
        """How many there are in all."""

    def quantile(self, share: float) -> Quantile | None:
        """The quantile `share` (0 < share < 1) with its 95 % interval; `None` of nothing."""

    def within(self, limit: float) -> tuple[int, int]:
        """How many values are surely not above `limit`, and how many may not be."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Values:
    """A distribution of which every value is there."""

    values: Reals = field(default_factory=_nothing)
    limits: Reals = field(default_factory=_nothing)

    @property
    def known(self) -> int:
        """How many values there are that are no limits."""
        return len(self.values)

    @property
    def n(self) -> int:
        """How many there are in all."""
        return len(self.values) + len(self.limits)

    def quantile(self, share: float) -> Quantile | None:
        """The quantile `share` with its 95 % interval; `None` of nothing."""
        # Stubs ask for a sequence; every estimator makes an array of what it is given.
        return quantile(self.values, share, censored=self.limits)  # type: ignore[arg-type]  # see above

    def within(self, limit: float) -> tuple[int, int]:
        """How many values are surely not above `limit`, and how many may not be: one that exceeds a smaller limit."""
        sure = int(np.count_nonzero(self.values <= limit))
        return sure, sure + int(np.count_nonzero(self.limits < limit))


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeCounts:
    """How many probes ended well, failed, were throttled, or were never sent."""

    ok: int = 0
    failed: int = 0
    throttled: int = 0
    skipped: int = 0

    @property
    def sent(self) -> int:
        """The trials of which `ok` are the successes: a throttled request says nothing of how well others fare."""
        return self.ok + self.failed

    def __add__(self, other: "OutcomeCounts") -> "OutcomeCounts":
        return OutcomeCounts(
            ok=self.ok + other.ok,
            failed=self.failed + other.failed,
            throttled=self.throttled + other.throttled,
            skipped=self.skipped + other.skipped,
        )


def outcome_counts(outcomes: Mapping[str, int]) -> OutcomeCounts:
    """The counts of `outcomes`, by what they mean."""
    skipped = sum(count for name, count in outcomes.items() if name.startswith("skipped_"))
    ok, throttled = outcomes.get(Outcome.OK, 0), outcomes.get(Outcome.THROTTLED, 0)
    failed = sum(outcomes.values()) - ok - throttled - skipped
    return OutcomeCounts(ok=ok, failed=failed, throttled=throttled, skipped=skipped)
