"""Which batches have come since a look before. Pure.

A batch is found by the instant at which a collector received it, but it can be seen only once it is committed, and
commits are not in the order of these instants. So each look reaches back `OVERLAP_US` behind the one before, further
than a commit may take, and what was seen there is remembered and left out.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from isochrone_wire.answers import Window
from isochrone_wire.model import MINUTE_US

OVERLAP_US = MINUTE_US
# After a pause, as of a reader that would take no more, the past comes in pieces.
STEP_US = 10 * MINUTE_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A batch in the ledger: how many of its samples were stored, and which rounds they are of, if that is known."""

    vantage_id: int
    epoch: int
    seq: int
    stored: int
    received_at: int
    oldest_round_at: int | None
    newest_round_at: int | None

    @property
    def key(self) -> tuple[int, int, int]:
        """What names the batch."""
        return (self.vantage_id, self.epoch, self.seq)


class Arrivals:
    """Look by look the batches received since `since_at` (microseconds since the epoch), each of them once.

    `resume_at` is where somebody else may go on: whatever was received before it has been told.
    """

    def __init__(self, since_at: int) -> None:
        self._since_at = since_at
        self._until_at = since_at
        self._seen: dict[tuple[int, int, int], int] = {}

    @property
    def resume_at(self) -> int:
        """The earliest instant of which something may still be untold."""
        return max(self._since_at, self._until_at - OVERLAP_US)

    def span(self, now_at: int) -> Window:
        """What to look at now: instants of receiving. It is not empty, unless nothing can have come."""
        until_at = max(self._until_at, min(now_at, self._until_at + STEP_US))
        return Window(from_at=self.resume_at, until_at=until_at)

    def fresh(self, found: Iterable[Arrival], span: Window) -> list[Arrival]:
        """Those of the batches found in `span` that were not found before; the next look goes on from there."""
        unseen = [arrival for arrival in found if arrival.key not in self._seen]
        self._until_at = span.until_at
        self._seen.update((arrival.key, arrival.received_at) for arrival in unseen)
        self._seen = {key: at for key, at in self._seen.items() if at >= self.resume_at}
        return unseen


def gathered(arrivals: Iterable[Arrival], *, samples: int) -> Iterable[list[Arrival]]:
    """The batches in groups of about so many samples, at least one batch each, in their order."""
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
