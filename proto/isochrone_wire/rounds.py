"""Rounds: the fleet-wide intervals by which samples of two vantages are paired.

The laws:

1. A round is a pure function of the plan and the wall clock, without state: a restart changes nothing, and all
   vantages probe a target in the same rounds.
2. The members of a route have one phase, so that their rounds coincide: routes with a common member count as one. Any
   other target has its own phase, so that the targets of a plan spread over the interval; so has a member with bursts,
   which must not meet other probes.
3. `round_at`, the start of a round, identifies it. The probes start later within it, all at one pseudo-random instant
   (the agent's `plan.schedule`), so that nothing aliases with the minute.
4. A round that has passed is not replayed; the next round is the first one that starts strictly later.

All instants are microseconds since the Unix epoch; `every_us` must be positive. `target_id` is the id that sets the
phase: that of the target, or the one that `phase_ids` gives for it.
"""

from collections.abc import Iterable

from isochrone_wire.model import Route, Target


def phase_ids(targets: Iterable[Target], routes: Iterable[Route]) -> dict[int, int]:
    """Map the id of each target to the id that sets its phase: the smallest one among the members of its routes."""
    planned = list(targets)
    own = {target.name: target.id for target in planned if target.workload.concurrency == 1}
    parents = {target.id: target.id for target in planned}

    def root(number: int) -> int:
        while parents[number] != number:
            number = parents[number]
        return number

    for route in routes:
        roots = {root(own[name]) for name in route.members if name in own}
        parents |= dict.fromkeys(roots, min(roots, default=0))
    return {number: root(number) for number in parents}


def phase_us(target_id: int, every_us: int) -> int:
    """Return the offset of the target's rounds within the interval, from 0 to `every_us` - 1 microseconds."""
    return target_id % every_us


def round_at(now_at: int, *, target_id: int, every_us: int) -> int:
    """Return the round that contains `now_at`: floor((now - phase) / every) * every + phase."""
    phase = phase_us(target_id, every_us)
    return (now_at - phase) // every_us * every_us + phase


def next_round_at(now_at: int, *, target_id: int, every_us: int) -> int:
    """Return the first round that starts after `now_at`."""
    return round_at(now_at, target_id=target_id, every_us=every_us) + every_us


def rounds_between(from_at: int, until_at: int, *, target_id: int, every_us: int) -> int:
    """Return the number of rounds that start in the half-open span [from_at, until_at)."""
    phase = phase_us(target_id, every_us)
    return max(0, (until_at - phase - 1) // every_us - (from_at - phase - 1) // every_us)
