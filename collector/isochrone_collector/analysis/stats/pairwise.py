"""Order statistics of the sums of all pairs, without listing all sums.

Two arrays of 10 000 numbers have a hundred million sums a_i + b_j. With both sorted, one binary search per a_i counts
the sums up to a value, and two list the sums between two values. The wanted sum is first bracketed by two values,
guessed from a coarse sample of both arrays and verified by counting; the bracket is halved until it holds few sums, and
these are partitioned. Of a few sums, all are.
"""

from dataclasses import dataclass
from math import inf

import numpy as np

from isochrone_collector.analysis.stats.ragged import Integers, Reals

MAX_LISTED = 1 << 17
"""The maximum number of sums listed at once: one megabyte."""

# So few sums are listed faster than they are bracketed.
_FEW = 1 << 14

_COARSE = 64
# Tolerance of the guess from the coarse sample, as a share of all sums.
_SLACK = 0.012
# More halvings than a double has bits.
_BISECTIONS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSums:
    """The sums a_i + b_j of two sorted arrays; `from_j` is the first j that each a_i is paired with."""

    a: Reals
    b: Reals
    from_j: Integers

    def select(self, rank: int) -> float:
        """Return the sum of a rank, from 1, among all sums in order."""
        low, high = (-inf, inf) if self.total <= min(_FEW, MAX_LISTED) else self._guess(rank)
        for _ in range(_BISECTIONS):
            if int((self._until(high) - self._until(low)).sum()) <= MAX_LISTED:
                return self._listed(low, high, rank - self._up_to(low))
            middle = (low + high) / 2
            low, high = (low, middle) if self._up_to(middle) >= rank else (middle, high)
        # The remaining sums are equal.
        return self._largest(high)

    @property
    def total(self) -> int:
        """The number of sums."""
        return int((len(self.b) - self.from_j).sum())

    def _until(self, value: float) -> Integers:
        """Return, for each a_i, the j before which its sums are at most the value."""
        return np.maximum(np.searchsorted(self.b, value - self.a, side="right"), self.from_j)

    def _up_to(self, value: float) -> int:
        return int((self._until(value) - self.from_j).sum())

    def _guess(self, rank: int) -> tuple[float, float]:
        """Return two values; fewer than `rank` sums are up to the first, at least `rank` up to the second."""
        sums = np.sort((_coarse(self.a)[:, None] + _coarse(self.b)).ravel())
        place, slack = len(sums) * rank / self.total, _SLACK * len(sums)
        low = float(sums[max(0, int(place - slack))])
        high = float(sums[min(len(sums) - 1, int(place + slack))])
        # Outside all sums by more than rounding.
        beyond = 1.0 + float(np.abs(self.a).max() + np.abs(self.b).max())
        if self._up_to(low) >= rank:
            low = float(self.a[0] + self.b[0]) - beyond
        if self._up_to(high) < rank:
            high = float(self.a[-1] + self.b[-1]) + beyond
        return low, high

    def _listed(self, low: float, high: float, rank: int) -> float:
        """Return the sum of a rank, from 1, among those above `low` and up to `high`."""
        starts, counts = self._until(low), self._until(high) - self._until(low)
        i = np.repeat(np.arange(len(self.a)), counts)
        j = np.arange(len(i)) - np.repeat(np.cumsum(counts) - counts - starts, counts)
        return float(np.partition(self.a[i] + self.b[j], rank - 1)[rank - 1])

    def _largest(self, value: float) -> float:
        """Return the largest sum that is at most the value."""
        ends = self._until(value)
        i = np.flatnonzero(ends > self.from_j)
        return float((self.a[i] + self.b[ends[i] - 1]).max())


def _coarse(ordered: Reals) -> Reals:
    return ordered[np.linspace(0, len(ordered) - 1, min(_COARSE, len(ordered))).astype(np.int64)]
