"""How far the collector's wall clock is from ours: four timestamps for each push, the best of the last eight. Pure.

    ours          sent_at ───┐                        ┌─── returned_at
    collector's              └ received_at ─ server_at ┘

    offset      = ((received_at - sent_at) + (server_at - returned_at)) / 2      collector's clock minus ours
    uncertainty = ((returned_at - sent_at) - (server_at - received_at)) / 2      half of the time on the road

As in NTP (RFC 5905, section 8): whatever share of the road each way has, the true offset is within the uncertainty. A
positive offset means that the collector's clock is ahead; add it to an instant of ours to have the collector's.

The wall clock's lead over the monotonic one is handed in with every question. While it stands, the wall was not
stepped; when it has moved, earlier exchanges say nothing any more.
"""

from collections import deque
from dataclasses import dataclass, field

STEP_US = 1000
_REMEMBERED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """The collector's wall clock minus ours, and by how much that may be wrong, in microseconds."""

    offset_us: int
    uncertainty_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampExchange:
    """Four wall instants in microseconds since the epoch; the collector's are 0 from one that does not tell them."""

    sent_at: int
    received_at: int
    server_at: int
    returned_at: int

    @property
    def offset(self) -> Offset | None:
        """What it says, or `None` when it says nothing: an instant is missing, or time ran backwards."""
        road_us = (self.returned_at - self.sent_at) - (self.server_at - self.received_at)
        if not (self.received_at and self.server_at) or self.server_at < self.received_at or road_us < 0:
            return None
        twice_us = (self.received_at - self.sent_at) + (self.server_at - self.returned_at)
        return Offset(offset_us=twice_us // 2, uncertainty_us=(road_us + 1) // 2)


@dataclass(slots=True)
class OffsetEstimator:
    """What the last exchanges say together. `lead_us` is the wall clock minus the monotonic one, now."""

    _lead_us: int | None = None
    _recent: deque[Offset] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def add(self, exchange: TimestampExchange, *, lead_us: int) -> None:
        """Take an exchange into account that ended now."""
        if self._stepped(lead_us):
            self._recent.clear()
        self._lead_us = lead_us
        offset = exchange.offset
        if offset is not None:
            self._recent.append(offset)

    def estimate(self, *, lead_us: int) -> Offset | None:
        """The most certain of the recent ones, or `None` while nothing is known."""
        if self._stepped(lead_us):
            return None
        return min(self._recent, key=lambda offset: offset.uncertainty_us, default=None)

    def _stepped(self, lead_us: int) -> bool:
        return self._lead_us is not None and abs(lead_us - self._lead_us) > STEP_US
