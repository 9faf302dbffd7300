"""Which rounds are due. Pure: the wall clock is handed in, in microseconds since the epoch.

The laws:

1. A target's rounds are those of `isochrone_wire.rounds`; the schedule only remembers which one comes next.
2. A vantage begins a round of a target with `spread_us` at an instant of its own within the spread, the same in every
   round. Lateness is counted from there.
3. A round is due from that instant on, and missed once it is later than its grace (a quarter of the interval, 5 s at
   most). A missed round is skipped and counted, never replayed.
4. While the clock goes forward each round is due or missed once, also when a new plan is taken up.
5. When the clock jumps back by more than an interval, the schedule realigns to the next round of the new time. Rounds
   that were begun by the clock that ran ahead come again: their samples tell of instants that had not come.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from isochrone_wire.model import SECOND_US, Target
from isochrone_wire.rounds import next_round_at, round_at
from isochrone_wire.stable_ids import stable_id

MAX_GRACE_US = 5 * SECOND_US
_GRACE_SHARE = 4
_NOTHING: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """One target's round that is to be probed now, and when this vantage was to begin it."""

    target: Target
    round_at: int
    begins_at: int


def stagger_us(target: Target, vantage: str) -> int:
    """How long after a round's instant a vantage begins it, from 0 to the target's `spread_us` - 1 microseconds."""
    return stable_id("spread", vantage, target.id) % target.spread_us if target.spread_us else 0


def next_rounds(targets: Iterable[Target], *, now_at: int, vantage: str, count: int) -> list[Due]:
    """The first `count` rounds that a vantage begins after `now_at`, in their order."""
    coming = [
        Due(target=target, round_at=at, begins_at=at + stagger)
        for target in targets
        for stagger in [stagger_us(target, vantage)]
        for first_at in [next_round_at(now_at - stagger, target_id=target.id, every_us=target.every_us)]
        for at in range(first_at, first_at + count * target.every_us, target.every_us)
    ]
    return sorted(coming, key=lambda due: due.begins_at)[:count]


class Schedule:
    """The rounds of some targets from `now_at` on. `begun` says which round of a target id was the last to begin or to
    be missed, so that it does not come again.
    """

    def __init__(
        self, targets: Iterable[Target], *, now_at: int, vantage: str = "", begun: Mapping[int, int] = _NOTHING
    ) -> None:
        self.targets = tuple(targets)
        self.missed = 0
        self.begun = dict(begun)
        self._stagger_us = {target.id: stagger_us(target, vantage) for target in self.targets}
        self._next_at = {target.id: self._first(target, now_at) for target in self.targets}

    def due(self, now_at: int) -> list[Due]:
        """The rounds that have come since the last call, the earliest first; those missed are counted in `missed`."""
        found = [due for target in self.targets if (due := self._due(target, now_at))]
        return sorted(found, key=lambda due: due.begins_at)

    def next_at(self) -> int | None:
        """When the next round begins here; `None` without targets."""
        return min((at + self._stagger_us[number] for number, at in self._next_at.items()), default=None)

    def _first(self, target: Target, now_at: int) -> int:
        here_at = now_at - self._stagger_us[target.id]
        next_at = next_round_at(here_at, target_id=target.id, every_us=target.every_us)
        begun_at = self.begun.get(target.id)
        # A round that was begun far ahead is of a clock that was set back since.
        if begun_at is None or not next_at <= begun_at <= now_at + target.every_us:
            return next_at
        return next_round_at(begun_at, target_id=target.id, every_us=target.every_us)

    def _due(self, target: Target, now_at: int) -> Due | None:
        stagger, every_us = self._stagger_us[target.id], target.every_us
        here_at, planned_at = now_at - stagger, self._next_at[target.id]
        if planned_at - now_at > every_us:
            self._next_at[target.id] = next_round_at(here_at, target_id=target.id, every_us=every_us)
            return None
        if planned_at > here_at:
            return None
        latest_at = round_at(here_at, target_id=target.id, every_us=every_us)
        self._next_at[target.id] = latest_at + every_us
        self.begun[target.id] = latest_at
        self.missed += (latest_at - planned_at) // every_us
        if here_at - latest_at > min(every_us // _GRACE_SHARE, MAX_GRACE_US):
            self.missed += 1
            return None
        return Due(target=target, round_at=latest_at, begins_at=latest_at + stagger)
