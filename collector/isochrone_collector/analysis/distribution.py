"""Distributions of one metric, from raw values or from histograms, behind one protocol."""

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
    """Values in microseconds, or tokens per second. Values of probes that hit a limit are censored: known only to
    exceed the limit, and ranked above all others.
    """

    @property
    def known(self) -> int:
        """The number of values that are not censored."""

    @property
    def n(self) -> int:
        """The number of values, censored ones included."""

    def quantile(self, share: float) -> Quantile | None:
        """Return the quantile `share` (0 < share < 1) with its 95 % interval; `None` without values."""

    def within(self, limit: float) -> tuple[int, int]:
        """Return how many values are certainly at most `limit`, and how many possibly are."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Values:
    """A distribution given by all its values."""

    values: Reals = field(default_factory=_nothing)
    limits: Reals = field(default_factory=_nothing)

    @property
    def known(self) -> int:
        """The number of values that are not censored."""
        return len(self.values)

    @property
    def n(self) -> int:
        """The number of values, censored ones included."""
        return len(self.values) + len(self.limits)

    def quantile(self, share: float) -> Quantile | None:
        """Return the quantile `share` with its 95 % interval; `None` without values."""
        # The annotation is a sequence; every estimator converts its argument to an array.
        return quantile(self.values, share, censored=self.limits)  # type: ignore[arg-type]  # see above

    def within(self, limit: float) -> tuple[int, int]:
        """Return how many values are certainly at most `limit`, and how many possibly: those censored below it too."""
        sure = int(np.count_nonzero(self.values <= limit))
        return sure, sure + int(np.count_nonzero(self.limits < limit))


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeCounts:
    """Counts of probes that succeeded, failed, were throttled, or were never sent."""

    ok: int = 0
    failed: int = 0
    throttled: int = 0
    skipped: int = 0

    @property
    def sent(self) -> int:
        """The trials of the success rate. Throttled requests are left out: they do not reflect the target's health."""
        return self.ok + self.failed

    def __add__(self, other: "OutcomeCounts") -> "OutcomeCounts":
        return OutcomeCounts(
            ok=self.ok + other.ok,
            failed=self.failed + other.failed,
            throttled=self.throttled + other.throttled,
            skipped=self.skipped + other.skipped,
        )


def outcome_counts(outcomes: Mapping[str, int]) -> OutcomeCounts:
    """Group the counts of `outcomes`, by outcome name."""
    skipped = sum(count for name, count in outcomes.items() if name.startswith("skipped_"))
    ok, throttled = outcomes.get(Outcome.OK, 0), outcomes.get(Outcome.THROTTLED, 0)
    failed = sum(outcomes.values()) - ok - throttled - skipped
    return OutcomeCounts(ok=ok, failed=failed, throttled=throttled, skipped=skipped)
