"""What has become of the pushes since the start, in numbers. Pure; durations are microseconds.

One thread counts and others read: what is read is copied in one step, so that a reader sees numbers that once were.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

BOUNDS_US = (1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 10_000_000)
"""Upper bounds, inclusive, of the classes in which durations of pushes are counted; the last class has none."""


@dataclass(slots=True)
class PushCounters:
    """Counts since the start. `pushes` is by gRPC status, `rejected` by the name of the reason, `heard_at` by vantage;
    `claimed` batches were new to the ledger and `repeated` ones were not; `durations` has a count per class.
    """

    stored: int = 0
    duplicate: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    pushes: Counter[str] = field(default_factory=Counter)
    claimed: int = 0
    repeated: int = 0
    heard_at: dict[str, int] = field(default_factory=dict)
    durations: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_US) + 1))
    duration_us: int = 0

    def answered(self, status: str, *, took_us: int) -> None:
        """A push ended with this gRPC status."""
        self.pushes[status] += 1
        self.durations[bisect_left(BOUNDS_US, took_us)] += 1
        self.duration_us += took_us

    def receipt(self, vantage: str, *, stored: int, duplicate: int, reasons: Iterable[str], at: int) -> None:
        """What a receipt said to a vantage at `at`. A reason is counted by what stands before its colon."""
        names = [reason.partition(":")[0] for reason in reasons]
        self.stored += stored
        self.duplicate += duplicate
        self.rejected.update(names)
        self.repeated += bool(duplicate)
        self.claimed += bool(stored or names) and not duplicate
        self.heard_at[vantage] = at

    def cumulative(self) -> Iterable[tuple[int | None, int]]:
        """Upper bound in microseconds, `None` for the last, and how many pushes took no longer."""
        total = 0
        for bound, count in zip((*BOUNDS_US, None), list(self.durations), strict=True):
            total += count
            yield bound, total


def copied(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts as they are now, safe to walk through while others count."""
    return dict(counts)
