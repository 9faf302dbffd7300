"""Which rounds are due. Pure: the wall clock is handed in, in microseconds since the epoch.

The laws:

1. A target's rounds are those of `isochrone_wire.rounds`; the schedule only remembers which one comes next.
2. A round is due from its instant on, and missed once it is later than its grace (a quarter of the interval, 5 s at
   most). A missed round is skipped and counted, never replayed.
3. When the clock jumps back, the schedule realigns to the next round of the new time and repeats none it has done.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from isochrone_wire.model import SECOND_US, Target
from isochrone_wire.rounds import next_round_at, round_at

MAX_GRACE_US = 5 * SECOND_US
_GRACE_SHARE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """One target's round that is to be probed now."""

    target: Target
    round_at: int


class Schedule:
    """The rounds of some targets from `now_at` on."""

    def __init__(self, targets: Iterable[Target], *, now_at: int) -> None:
        self.targets = tuple(targets)
        self.missed = 0
        self._next_at = {t.id: next_round_at(now_at, target_id=t.id, every_us=t.every_us) for t in self.targets}

    def due(self, now_at: int) -> list[Due]:
        """The rounds that have come since the last call, the earliest first; those missed are counted in `missed`."""
        found = [due for target in self.targets if (due := self._due(target, now_at))]
        return sorted(found, key=lambda due: due.round_at)

    def next_at(self) -> int | None:
        """When the next round is due; `None` without targets."""
        return min(self._next_at.values(), default=None)

    def _due(self, target: Target, now_at: int) -> Due | None:
        planned_at = self._next_at[target.id]
        if planned_at - now_at > target.every_us:
            self._next_at[target.id] = next_round_at(now_at, target_id=target.id, every_us=target.every_us)
            return None
        if planned_at > now_at:
            return None
        latest_at = round_at(now_at, target_id=target.id, every_us=target.every_us)
        self._next_at[target.id] = latest_at + target.every_us
        self.missed += (latest_at - planned_at) // target.every_us
        if now_at - latest_at > min(target.every_us // _GRACE_SHARE, MAX_GRACE_US):
            self.missed += 1
            return None
        return Due(target=target, round_at=latest_at)
