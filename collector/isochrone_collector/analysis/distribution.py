"""Distributions of one metric, from raw values or from histograms, behind one protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from isochrone_collector.analysis.stats.long_run_variance import Inflation
from isochrone_collector.analysis.stats.quantile import quantiles
from isochrone_collector.analysis.stats.ragged import ragged
from isochrone_wire.answers import Quantile
from isochrone_wire.model import SECOND_US, Outcome

Reals = NDArray[np.float64]
Flags = NDArray[np.bool_]

_HOUR_US = 3600 * SECOND_US


def _nothing() -> Reals:
    return np.empty(0)


def _no_flags() -> Flags:
    return np.empty(0, np.bool_)


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

    def quantile(self, share: float, history: Inflation | None = None) -> Quantile | None:
        """Return the quantile `share` (0 < share < 1) with its 95 % interval; `None` without values. `history` is that
        of `inflation_of_flags`, of one row.
        """

    def within(self, limit: float) -> tuple[int, int]:
        """Return how many values are certainly at most `limit`, and how many possibly are."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Values:
    """A distribution given by all its values in the order of their rounds; where `censored`, the limit."""

    values: Reals = field(default_factory=_nothing)
    censored: Flags = field(default_factory=_no_flags)

    @classmethod
    def uncensored(cls, values: Reals) -> "Values":
        """Return values of which none is a limit."""
        return cls(values=values, censored=np.zeros(len(values), np.bool_))

    @property
    def known(self) -> int:
        """The number of values that are not censored."""
        return len(self.values) - int(np.count_nonzero(self.censored))

    @property
    def n(self) -> int:
        """The number of values, censored ones included."""
        return len(self.values)

    def quantile(self, share: float, history: Inflation | None = None) -> Quantile | None:
        """Return the quantile `share` with its 95 % interval; `None` without values."""
        return quantiles_of([self], share, history)[0]

    def within(self, limit: float) -> tuple[int, int]:
        """Return how many values are certainly at most `limit`, and how many possibly: those censored below it too."""
        sure = int(np.count_nonzero((self.values <= limit) & ~self.censored))
        return sure, sure + int(np.count_nonzero((self.values < limit) & self.censored))


def quantiles_of(
    found: Sequence[Distribution], share: float, history: Inflation | None = None
) -> list[Quantile | None]:
    """Return the quantile of each distribution, as `Distribution.quantile` does; `history` has a row for each."""
    values = [one for one in found if isinstance(one, Values)]
    if len(values) < len(found):
        return [one.quantile(share, history and history.at(np.array([row]))) for row, one in enumerate(found)]
    series, censored = ragged([one.values for one in values]), [one.censored for one in values]
    return quantiles(series, share, censored=np.concatenate(censored) if censored else None, history=history).listed()


def among_known(quantile: Quantile | None, values: Distribution) -> Quantile | None:
    """Return a quantile whose effective number is that of the values that are not censored, to be shown beside their
    number; `None` if all are censored.
    """
    known = values.known
    if quantile is None or not known:
        return None
    if quantile.n_eff is None or known == values.n:
        return quantile
    return replace(quantile, n_eff=quantile.n_eff * known / values.n)


def hours_of(rounds_at: NDArray[np.int64]) -> float:
    """Return the hours that rounds in their order span, with one gap more than there are between them."""
    n = len(rounds_at)
    return int(rounds_at[-1] - rounds_at[0]) / _HOUR_US * n / (n - 1) if n > 1 else 0.0


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
