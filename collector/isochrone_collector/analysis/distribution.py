"""Distributions of one metric, from raw values or from histograms, and the outcomes of probes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from isochrone_collector.analysis.histogram import Histogram
from isochrone_collector.analysis.stats.arrays import Flags, Integers, Reals, ragged
from isochrone_collector.analysis.stats.binomial import quantiles
from isochrone_collector.analysis.stats.long_run_variance import VarianceInflation
from isochrone_wire.answers import Quantile
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import Outcome


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Values:
    """All values in the order of their rounds; where `censored`, the limit that was hit, ranking above all values."""

    values: Reals = field(default_factory=lambda: np.empty(0))
    censored: Flags = field(default_factory=lambda: np.empty(0, np.bool_))

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

    def quantile(self, share: float, history: VarianceInflation | None = None) -> Quantile | None:
        """Return the quantile `share` with its 95 % interval; `None` without values."""
        return quantiles(ragged([self.values]), {share: history}, self.censored)[share].listed()[0]

    def within(self, limit: float) -> tuple[int, int]:
        """Return how many values are certainly at most `limit`, and how many possibly: those censored below it too."""
        sure = int(np.count_nonzero((self.values <= limit) & ~self.censored))
        return sure, sure + int(np.count_nonzero((self.values < limit) & self.censored))

    def up_to(self, limit: float) -> int:
        """Return how many values are certainly at most `limit`."""
        return self.within(limit)[0]


Distribution = Values | Histogram
"""All values of one metric in microseconds, or tokens per second, or a summary of them."""


def quantiles_of(
    found: Sequence[Distribution], histories: Mapping[float, VarianceInflation | None], *, of_known: bool = False
) -> dict[float, list[Quantile | None]]:
    """Return quantiles of each distribution by their shares. `histories` has that of each share, with a row for each
    distribution, or `None`. With `of_known` the effective number is that of the values that are not censored, to be
    shown beside their number; `None` if all are censored.
    """
    values = [one for one in found if isinstance(one, Values)]
    if values and len(values) == len(found):
        series, censored = ragged([one.values for one in values]), np.concatenate([one.censored for one in values])
        estimates = {share: own.listed() for share, own in quantiles(series, histories, censored).items()}
    else:
        estimates = {
            share: [one.quantile(share, history and history.at(np.array([row]))) for row, one in enumerate(found)]
            for share, history in histories.items()
        }
    if not of_known:
        return estimates
    counts = [(one.known, one.n) for one in found]
    return {
        share: [_among(quantile, *both) for quantile, both in zip(own, counts, strict=True)]
        for share, own in estimates.items()
    }


def _among(quantile: Quantile | None, known: int, n: int) -> Quantile | None:
    if quantile is None or quantile.n_eff is None or known == n:
        return quantile if known else None
    return replace(quantile, n_eff=quantile.n_eff * known / n) if known else None


def hours_of(rounds_at: Integers) -> float:
    """Return the hours that rounds in their order span, with one gap more than there are between them."""
    return float(hours_between(rounds_at[:1], rounds_at[-1:], np.array([len(rounds_at)]))[0]) if len(rounds_at) else 0.0


def hours_between(oldest_at: Integers, newest_at: Integers, rounds: Integers) -> Reals:
    """Return, per series, the hours that so many rounds span, as `hours_of` does."""
    between = (newest_at - oldest_at) / HOUR_US * rounds
    return np.divide(between, rounds - 1, out=np.zeros(len(rounds)), where=rounds > 1)


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
        return OutcomeCounts(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)})


def outcome_counts(outcomes: Mapping[str, int]) -> OutcomeCounts:
    """Group the counts of `outcomes`, by outcome name."""
    skipped = sum(count for name, count in outcomes.items() if name.startswith("skipped_"))
    ok, throttled = outcomes.get(Outcome.OK, 0), outcomes.get(Outcome.THROTTLED, 0)
    failed = sum(outcomes.values()) - ok - throttled - skipped
    return OutcomeCounts(ok=ok, failed=failed, throttled=throttled, skipped=skipped)
