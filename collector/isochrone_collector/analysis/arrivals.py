"""Cursor over the batches that a collector received, each reported once. Pure.

Batches are read by the instant of receipt, but become visible only when committed, and commits are not in the order of
receipt. So each read starts `OVERLAP_US` before the end of the previous one, which is longer than a commit may take,
and batches already reported are skipped.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from isochrone_wire.answers import Window
from isochrone_wire.model import MINUTE_US

OVERLAP_US = MINUTE_US
# After a pause, for example of a slow reader, the backlog is read in windows of this length.
STEP_US = 10 * MINUTE_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A batch in the ledger: how many of its samples were stored, and the range of their rounds, if known."""

    vantage_id: int
    epoch: int
    seq: int
    stored: int
    received_at: int
    oldest_round_at: int | None
    newest_round_at: int | None

    @property
    def key(self) -> tuple[int, int, int]:
        """The batch's key in the ledger: vantage, epoch and sequence number."""
        return (self.vantage_id, self.epoch, self.seq)


class ArrivalCursor:
    """Cursor over the batches received since `since_at` (microseconds since the epoch).

    Another cursor may resume from `resume_at`: every batch received before it has been reported.
    """

    def __init__(self, since_at: int) -> None:
        self._since_at = since_at
        self._until_at = since_at
        self._seen: dict[tuple[int, int, int], int] = {}

    @property
    def resume_at(self) -> int:
        """The earliest instant of receipt that may still have unreported batches."""
        return max(self._since_at, self._until_at - OVERLAP_US)

    def next_window(self, now_at: int) -> Window:
        """Return the instants of receipt to read now; empty only if nothing can have arrived."""
        until_at = max(self._until_at, min(now_at, self._until_at + STEP_US))
        return Window(from_at=self.resume_at, until_at=until_at)

    def advance(self, found: Iterable[Arrival], window: Window) -> list[Arrival]:
        """Return the batches found in `window` that are new, and move the cursor to its end."""
        unseen = [arrival for arrival in found if arrival.key not in self._seen]
        self._until_at = window.until_at
        self._seen.update((arrival.key, arrival.received_at) for arrival in unseen)
        self._seen = {key: at for key, at in self._seen.items() if at >= self.resume_at}
        return unseen


def grouped(arrivals: Iterable[Arrival], *, samples: int) -> Iterable[list[Arrival]]:
    """Group batches, in order, into about `samples` samples per group, at least one batch each."""
    group: list[Arrival] = []
    weight = 0
    for arrival in arrivals:
        if group and weight + arrival.stored > samples:
            yield group
            group, weight = [], 0
        group.append(arrival)
        weight += arrival.stored
    if group:
        yield group
