"""The schedule of rounds. Pure: the wall clock is an argument, in microseconds since the epoch.

The laws:

1. The rounds of a target are those of `isochrone_wire.rounds`; the schedule only stores the next one.
2. If a target has `spread_us`, each vantage starts its rounds at its own fixed offset within the spread. Lateness is
   measured from that start.
3. A round is due from its start, and missed once its grace has passed (a quarter of the interval, at most 5 s). A
   missed round is skipped and counted, never replayed.
4. While the clock moves forward, each round is due or missed exactly once, also across a change of plan.
5. If the clock jumps back by more than an interval, the schedule realigns to the next round of the new time. Rounds
   that already started while the clock was ahead are run again, because their samples have times in the future.
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
    """One round of a target that is due, and its planned start on this vantage."""

    target: Target
    round_at: int
    begins_at: int


def stagger_us(target: Target, vantage: str) -> int:
    """Return the offset of a vantage's start from the round's instant, from 0 to `spread_us` - 1 microseconds."""
    return stable_id("spread", vantage, target.id) % target.spread_us if target.spread_us else 0


def next_rounds(targets: Iterable[Target], *, now_at: int, vantage: str, count: int) -> list[Due]:
    """Return the first `count` rounds that a vantage starts after `now_at`, in order."""
    coming = [
        Due(target=target, round_at=at, begins_at=at + stagger)
        for target in targets
        for stagger in [stagger_us(target, vantage)]
        for first_at in [next_round_at(now_at - stagger, target_id=target.id, every_us=target.every_us)]
        for at in range(first_at, first_at + count * target.every_us, target.every_us)
    ]
    return sorted(coming, key=lambda due: due.begins_at)[:count]


class Schedule:
    """The rounds of some targets from `now_at` on. `begun` maps a target id to the last round that was started or
    missed, so that it is not due again.
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
        """Return the rounds due since the last call, earliest first, and add missed ones to `missed`."""
        found = [due for target in self.targets if (due := self._due(target, now_at))]
        return sorted(found, key=lambda due: due.begins_at)

    def next_at(self) -> int | None:
        """Return the start of the next round on this vantage; `None` without targets."""
        return min((at + self._stagger_us[number] for number, at in self._next_at.items()), default=None)

    def _first(self, target: Target, now_at: int) -> int:
        here_at = now_at - self._stagger_us[target.id]
        next_at = next_round_at(here_at, target_id=target.id, every_us=target.every_us)
        begun_at = self.begun.get(target.id)
        # A round started far in the future means that the clock has been set back since.
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
