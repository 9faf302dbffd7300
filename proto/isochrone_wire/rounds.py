"""Rounds: the fleet-wide instants that make samples of two vantages a pair.

The laws:

1. A round is a pure function of the target and the wall clock. There is no state, so a restart changes nothing, and
   every vantage meets the same target in the same round.
2. Each target has its own phase, so that a plan's targets spread over the interval instead of arriving together.
3. A round that has passed is not replayed; the next one is the first that starts strictly later.

All instants are microseconds since the Unix epoch; `every_us` must be positive.
"""


def phase_us(target_id: int, every_us: int) -> int:
    """Where in the interval the target's rounds lie, from 0 to `every_us` - 1 microseconds."""
    return target_id % every_us


def round_at(now_at: int, *, target_id: int, every_us: int) -> int:
    """The round that `now_at` belongs to: floor((now - phase) / every) * every + phase."""
    phase = phase_us(target_id, every_us)
    return (now_at - phase) // every_us * every_us + phase


def next_round_at(now_at: int, *, target_id: int, every_us: int) -> int:
    """The first round that starts after `now_at`."""
    return round_at(now_at, target_id=target_id, every_us=every_us) + every_us


def rounds_between(from_at: int, until_at: int, *, target_id: int, every_us: int) -> int:
    """How many rounds start in the half-open span [from_at, until_at)."""
    phase = phase_us(target_id, every_us)
    return max(0, (until_at - phase - 1) // every_us - (from_at - phase - 1) // every_us)
