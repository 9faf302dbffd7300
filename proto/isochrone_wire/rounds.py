"""Rounds: the fleet-wide instants by which samples of two vantages are paired.

The laws:

1. A round is a pure function of the target and the wall clock, without state: a restart changes nothing, and all
   vantages probe a target in the same rounds.
2. Each target has its own phase, so that the targets of a plan spread over the interval.
3. A round that has passed is not replayed; the next round is the first one that starts strictly later.

All instants are microseconds since the Unix epoch; `every_us` must be positive.
"""


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
