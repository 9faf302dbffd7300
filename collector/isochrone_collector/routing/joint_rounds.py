"""Joint rounds: rounds in which one vantage probed several members at the same instant.

Only these show whether members stall together, so hedges and races are computed from nothing else. The members of a
route have the same rounds (`isochrone_wire.rounds`), except those of agents of earlier versions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from isochrone_collector.analysis.histogram import values_of
from isochrone_collector.analysis.stats.arrays import Integers, Reals


@dataclass(frozen=True, slots=True, kw_only=True)
class JointRounds:
    """One row per round and vantage, oldest first: its instant, and the histogram bucket of each member's TTFT, `None`
    without one. A timeout has the bucket of its limit, or of the member's largest value if that is larger.
    """

    round_at: tuple[int, ...] = ()
    ttft: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)

    def of(self, *members: str) -> tuple[Integers, Reals]:
        """Return the rows with a value of every one of `members`: the instants, and a column of TTFTs in microseconds
        for each member.
        """
        nothing = (None,) * len(self.round_at)
        buckets = np.array([self.ttft.get(member, nothing) for member in members], np.float64).T
        complete = ~np.isnan(buckets).any(axis=1)
        return np.array(self.round_at, np.int64)[complete], values_of(buckets[complete].astype(np.int64))
