"""Which samples were told already, when a stream of them is taken up again. Pure.

A collector that is asked to go on from an instant repeats what is of that instant or later, because it cannot know what
of that arrived. So what arrived since is remembered, by its hash, and left out when it comes again.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from isochrone_wire.answers import StoredSample


class Deduplication:
    """What was told, back to the instant from which the stream would be taken up again; `instant` gives a sample's, in
    microseconds since the epoch.
    """

    def __init__(self, instant: Callable[[StoredSample], int]) -> None:
        self._instant = instant
        self._told: list[tuple[int, int]] = []
        self._expected: Counter[int] = Counter()

    def note(self, samples: Iterable[StoredSample]) -> None:
        """These have been told."""
        self._told += [(self._instant(row), _identity(row)) for row in samples]

    def expect_again(self) -> None:
        """The stream is about to be taken up again: everything remembered may come once more."""
        self._expected = Counter(identity for _, identity in self._told)

    def untold(self, samples: Iterable[StoredSample]) -> tuple[StoredSample, ...]:
        """Those that have not been told; they are noted."""
        fresh = tuple(row for row in samples if not self._comes_again(row))
        self.note(fresh)
        return fresh

    def forget_before(self, at: int) -> None:
        """Nothing of an instant before `at` will come again."""
        self._told = [told for told in self._told if told[0] >= at]

    def _comes_again(self, row: StoredSample) -> bool:
        identity = _identity(row)
        if not self._expected[identity]:
            return False
        self._expected[identity] -= 1
        return True


def _identity(row: StoredSample) -> int:
    # Without the target's name, which changes when a plan gives it to another target.
    return hash((row.vantage, row.received_at, row.sample))
