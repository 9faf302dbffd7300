"""Deduplication of samples when a stream of them is resumed. Pure.

A collector that resumes a stream at an instant sends every sample of that instant or later, because it does not know
which of them arrived. The client therefore keeps a hash of each sample it received since and drops the repeats.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from isochrone_wire.answers import StoredSample


class Deduplication:
    """The samples received, back to the instant at which the stream would resume; `instant` returns the instant of a
    sample in microseconds since the epoch.
    """

    def __init__(self, instant: Callable[[StoredSample], int]) -> None:
        self._instant = instant
        self._received: list[tuple[int, int]] = []
        self._expected: Counter[int] = Counter()

    def record(self, samples: Iterable[StoredSample]) -> None:
        """Record received samples."""
        self._received += [(self._instant(row), _identity(row)) for row in samples]

    def expect_repeats(self) -> None:
        """Expect each recorded sample once more: the stream is about to be resumed."""
        self._expected = Counter(identity for _, identity in self._received)

    def drop_repeats(self, samples: Iterable[StoredSample]) -> tuple[StoredSample, ...]:
        """Return and record the samples that are not expected repeats."""
        new = tuple(row for row in samples if not self._is_repeat(row))
        self.record(new)
        return new

    def forget_before(self, at: int) -> None:
        """Forget samples from before the instant `at`: they will not be sent again."""
        self._received = [received for received in self._received if received[0] >= at]

    def _is_repeat(self, row: StoredSample) -> bool:
        identity = _identity(row)
        if not self._expected[identity]:
            return False
        self._expected[identity] -= 1
        return True


def _identity(row: StoredSample) -> int:
    # Without the target's name: a new plan can give that name to another target.
    return hash((row.vantage, row.received_at, row.sample))
