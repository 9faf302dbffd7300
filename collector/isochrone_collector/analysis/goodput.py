"""Goodput: the share of all planned requests that are answered within a limit.

The laws:

1. A request is planned if an agent sent it, or could not send it because the previous one was still waiting for its
   answer. Rounds that no agent probed for another reason are not requests.
2. Only a request that succeeded within the limit counts. Failures of every kind, refusals and timeouts do not.
3. A request that was given up before the limit asked for is `possible`: it widens the interval upwards.
4. A request that succeeded, but whose duration is not valid, is left out: see `docs/statistics.md`.

The interval is Wilson's for the effective number of independent requests. At its ends it is the exact one, with the
whole error on the only side that can err: 59 of 59 are at least 95 %, because 0.95^59 < 0.05.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count

import numpy as np

from isochrone_collector.analysis.probes import Flags
from isochrone_collector.analysis.stats.long_run_variance import Inflation, inflation_of_flags
from isochrone_collector.analysis.stats.proportion import wilson
from isochrone_collector.analysis.stats.ragged import Reals, ragged
from isochrone_wire.answers import Proportion
from isochrone_wire.insights import Eligible

_ERROR = 0.05
_CELLS = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """Counts of the `planned` requests: `good` are certainly answered in time, `possible` certainly or possibly.
    `n_eff` is their effective number. `failed` and `throttled` name the reasons, where it is not the latency.
    """

    planned: int = 0
    good: int = 0
    possible: int = 0
    n_eff: float = 0.0
    failed: int = 0
    throttled: int = 0

    @property
    def goodput(self) -> Proportion | None:
        """The share of planned requests answered in time, with its 95 % interval; `None` without requests."""
        if not self.planned:
            return None
        least = share_interval(self.good, self.planned, n_eff=self.n_eff)
        most = share_interval(self.possible, self.planned, n_eff=self.n_eff)
        return replace(least, high=most.high)

    def meets(self, share: float) -> Eligible:
        """Decide whether at least `share` of the requests are answered in time."""
        found = self.goodput
        return Eligible.UNKNOWN if found is None else verdict(found, share, n_eff=self.n_eff)


def verdict(found: Proportion, share: float, *, n_eff: float) -> Eligible:
    """Decide whether the goodput of requests, worth `n_eff` independent ones, is at least `share`, on its interval;
    unknown while `share` would be uncertain even if all of them were in time.
    """
    if found.n < needed(share):
        return Eligible.UNKNOWN
    if found.high < share:
        return Eligible.NO
    # Few independent requests can be certainly too slow, but not certainly in time.
    if n_eff < needed(share):
        return Eligible.UNKNOWN
    return Eligible.YES if found.low >= share else Eligible.MAYBE


def share_interval(good: int, n: int, *, n_eff: float) -> Proportion:
    """Return the share of `good` in `n` requests (at least 1), with the 95 % interval of `n_eff` independent ones."""
    found = wilson(good, n, n_eff=n_eff)
    assert found is not None, "n is positive"
    end = _ERROR ** (1 / n_eff)
    return replace(found, low=end if good == n else found.low, high=1 - end if good == 0 else found.high)


@cache
def needed(share: float) -> int:
    """Return the number of requests from which `share` can be certain, if all are answered in time: 59 for 0.95."""
    return next(n for n in count(1) if share_interval(n, n, n_eff=n).low >= share)


def effective_sizes(rows: Sequence[Flags], history: Inflation | None = None) -> Reals:
    """Return the number of independent requests that tell as much as those of each row, which are in the order of their
    rounds: failures come in runs. `history` is that of `inflation_of_flags`.
    """
    series = ragged([row.astype(np.float64) for row in rows])
    found = np.zeros(len(rows))
    for places, own in series.portions(cells=_CELLS):
        n = own.shape[1]
        found[places] = inflation_of_flags(own, history and history.at(places)).worth(n)
    return found


def count_requests(
    good: Flags, possible: Flags, *, failed: int, throttled: int, history: Inflation | None = None
) -> RequestCounts:
    """Count planned requests, given in the order of their rounds; `history` is that of `inflation_of_flags`."""
    return RequestCounts(
        planned=len(good),
        good=int(np.count_nonzero(good)),
        possible=int(np.count_nonzero(possible)),
        n_eff=float(effective_sizes([good], history)[0]),
        failed=failed,
        throttled=throttled,
    )
