"""The schedule of rounds. Pure: its arguments are the wall clock, in microseconds since the epoch, and the uptime,
which no step of the wall clock changes.

The laws:

1. The rounds of a target are those of `isochrone_wire.rounds`; the schedule only stores the next one.
2. The probes of a round start at its instant plus a jitter that all vantages and all members of a route share. With
   `spread_us` each vantage starts at a pseudo-random offset after that, so that their order changes from round to
   round. Lateness is measured from there.
3. The jitter sweeps its span up and down with a random part: over a few dozen rounds every instant of the span is
   equally likely, so that nothing aliases with the minute (RFC 2330, section 11.1.1), and two starts are, apart from
   the spread, at least nine tenths of an interval apart, so that few answers meet the next probe. Simultaneous members
   start in a pseudo-random order.
4. A round is due from its start, and missed once its grace has passed (a quarter of the interval, at most 5 s). A
   missed round is skipped and counted, never replayed.
5. While the clock moves forward, each round is due or missed exactly once, also across a change of plan.
6. If the wall clock is stepped, the rounds that the uptime passed over (a suspension) are missed, those that only the
   step passed over are not.
7. If the clock jumps back by more than an interval, the schedule realigns to the next round of the new time. Rounds
   that already started while the clock was ahead are run again, because their samples have times in the future.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType

from isochrone_wire.model import MINUTE_US, SECOND_US, Route, Target
from isochrone_wire.rounds import next_round_at, phase_ids, round_at
from isochrone_wire.stable_ids import stable_id

MAX_GRACE_US = 5 * SECOND_US
MAX_JITTER_US = 5 * MINUTE_US
"""The jitter within a long interval, so that route tables stay fresh; several minutes do not alias with the minute."""

_GRACE_SHARE = 4
# Smaller differences between the clocks pass over no round.
_STEP_US = SECOND_US // 10
_NOTHING: Mapping[int, int] = MappingProxyType({})
# Integers, so that every machine computes the same instants. Step and random part add up to less than a tenth.
_WHOLE = 1 << 40
_STEP = round((5**0.5 - 2) / 5 * _WHOLE)
_RANDOM_PART = _WHOLE // 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledRound:
    """One round of a target that is due, and its planned start on this vantage."""

    target: Target
    round_at: int
    begins_at: int

    @property
    def key(self) -> tuple[int, int]:
        """The round among all rounds: the id of its target, and its instant."""
        return self.target.id, self.round_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The instants of a target's rounds on one vantage; pace and spans are the same for all members of a route."""

    target: Target
    vantage: str
    phase_id: int
    pace_us: int
    spread_us: int

    @property
    def jitter_us(self) -> int:
        """The span of the jitter: what the spread leaves of the interval."""
        return min(self.pace_us - self.spread_us, MAX_JITTER_US)

    def offset_us(self, at: int) -> int:
        """Return the start of the round `at` on this vantage, after its instant, from 0 to `pace_us` - 1."""
        jitter = self.jitter_us * _sweep(at // self.pace_us, self.phase_id) // _WHOLE
        place = stable_id("spread", self.vantage, self.phase_id, at) % self.spread_us if self.spread_us else 0
        return jitter + place

    def round(self, at: int) -> ScheduledRound:
        """Return a round, given its instant."""
        return ScheduledRound(target=self.target, round_at=at, begins_at=at + self.offset_us(at))

    def latest(self, now_at: int) -> ScheduledRound:
        """Return the last round that has started at `now_at`."""
        here = self.round(round_at(now_at, target_id=self.phase_id, every_us=self.target.every_us))
        return here if here.begins_at <= now_at else self.round(here.round_at - self.target.every_us)

    def after(self, at: int) -> ScheduledRound:
        """Return the first round whose instant is later than `at`."""
        return self.round(next_round_at(at, target_id=self.phase_id, every_us=self.target.every_us))

    def coming(self, now_at: int) -> Iterator[ScheduledRound]:
        """Yield the rounds that start after `now_at`, in order."""
        due = self.latest(now_at)
        while True:
            due = self.round(due.round_at + self.target.every_us)
            yield due


def timings(targets: Sequence[Target], *, vantage: str, routes: Iterable[Route]) -> list[Timing]:
    """Return the timing of each target."""
    phases = phase_ids(targets, routes)
    groups: dict[int, list[Target]] = {}
    for target in targets:
        groups.setdefault(phases[target.id], []).append(target)
    found = []
    for target in targets:
        phase_id = phases[target.id]
        pace_us = min(one.every_us for one in groups[phase_id])
        spread_us = min(max(one.spread_us for one in groups[phase_id]), pace_us)
        found.append(Timing(target=target, vantage=vantage, phase_id=phase_id, pace_us=pace_us, spread_us=spread_us))
    return found


def next_rounds(
    targets: Sequence[Target], *, now_at: int, vantage: str, count: int, routes: Iterable[Route] = ()
) -> list[ScheduledRound]:
    """Return the first `count` rounds that a vantage starts after `now_at`, in order."""
    coming = [
        due
        for timing in timings(targets, vantage=vantage, routes=routes)
        for due in islice(timing.coming(now_at), count)
    ]
    return sorted(coming, key=_order)[:count]


def _sweep(nth: int, phase_id: int) -> int:
    """Return a place from 0 to `_WHOLE` - 1 that moves by less than a tenth of it from round to round."""
    random_part = stable_id("jitter", phase_id, nth) % _RANDOM_PART
    turned = (stable_id("jitter", phase_id) + nth * _STEP + random_part) % (2 * _WHOLE)
    return min(turned, 2 * _WHOLE - 1 - turned)


def _order(due: ScheduledRound) -> tuple[int, int]:
    return due.begins_at, stable_id("order", due.target.id, due.round_at)


class Schedule:
    """The rounds of some targets from `now_at` on. `begun`: the last round started or missed, by target id."""

    def __init__(
        self,
        targets: Iterable[Target],
        *,
        now_at: int,
        vantage: str = "",
        routes: Iterable[Route] = (),
        begun: Mapping[int, int] = _NOTHING,
    ) -> None:
        self.targets = tuple(targets)
        self.missed = 0
        self.begun = {target.id: begun[target.id] for target in self.targets if target.id in begun}
        self._timings = timings(self.targets, vantage=vantage, routes=routes)
        self._next = {timing.target.id: self._first(timing, now_at) for timing in self._timings}
        self._lead_us: int | None = None

    def due(self, now_at: int, *, uptime_us: int) -> list[ScheduledRound]:
        """Return the rounds due since the last call, earliest first, and add missed ones to `missed`."""
        unstepped_at = now_at if self._lead_us is None else uptime_us + self._lead_us
        self._lead_us = now_at - uptime_us
        if abs(now_at - unstepped_at) < _STEP_US:
            return self._due_at(now_at)
        for due in self._due_at(unstepped_at):
            self._next[due.target.id] = due  # by the new time it may still be due
        missed, due_now = self.missed, self._due_at(now_at)
        self.missed = missed
        return due_now

    def _due_at(self, now_at: int) -> list[ScheduledRound]:
        return sorted((due for timing in self._timings if (due := self._due(timing, now_at))), key=_order)

    def next_at(self) -> int | None:
        """Return the start of the next round on this vantage; `None` without targets."""
        return min((due.begins_at for due in self._next.values()), default=None)

    def _first(self, timing: Timing, now_at: int) -> ScheduledRound:
        first, begun_at = next(timing.coming(now_at)), self.begun.get(timing.target.id)
        # A round started far in the future means that the clock has been set back since.
        if begun_at is None or not first.round_at <= begun_at <= now_at + timing.target.every_us:
            return first
        return timing.after(begun_at)

    def _due(self, timing: Timing, now_at: int) -> ScheduledRound | None:
        number, every_us = timing.target.id, timing.target.every_us
        planned = self._next[number]
        if planned.round_at - now_at > every_us:
            self._next[number] = next(timing.coming(now_at))
            return None
        if planned.begins_at > now_at:
            return None
        latest = timing.latest(now_at)
        self._next[number] = timing.after(latest.round_at)
        self.begun[number] = latest.round_at
        self.missed += (latest.round_at - planned.round_at) // every_us
        if now_at - latest.begins_at > min(every_us // _GRACE_SHARE, MAX_GRACE_US):
            self.missed += 1
            return None
        return latest
