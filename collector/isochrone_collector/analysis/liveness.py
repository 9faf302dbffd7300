"""Who is there: what to call a vantage by what was last heard of it. Pure; instants are the collector's clock.

The laws:

1. An agent promises when it will be heard again. Who breaks the promise is late, however fresh its samples are.
2. Online means that samples arrive. Whoever keeps the promise and delivers nothing is silent.
3. Where nothing is planned nobody can be silent: such a vantage is empty.
"""

from dataclasses import dataclass

from isochrone_wire.answers import Liveness
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Plan

LATE_GRACE_US = 5 * SECOND_US
"""How long after the promised heartbeat a vantage is not late yet: a slow way, a slow commit."""

# What an agent that promises nothing is taken to promise.
_DEFAULT_HEARTBEAT_US = MINUTE_US
_FRESH_ROUNDS = 3
_FRESH_US = MINUTE_US
_HOUR_US = 60 * MINUTE_US
# The duration up to which a unit is spoken in, and the unit.
_SPOKEN = ((2 * MINUTE_US, SECOND_US, "s"), (2 * _HOUR_US, MINUTE_US, "min"), (2 * DAY_US, _HOUR_US, "h"))


@dataclass(frozen=True, slots=True, kw_only=True)
class VantageSignals:
    """What is known of a vantage: when it was first and last heard, what it promised, when it last delivered samples,
    the plan it runs (0: none) and how many samples wait in its spool.
    """

    first_seen_at: int
    last_seen_at: int
    next_heartbeat_at: int | None = None
    newest_sample_at: int | None = None
    plan_version: int = 0
    refused_plan_version: int | None = None
    spool_depth: int = 0


def classify(signals: VantageSignals, *, now_at: int, plan: Plan | None) -> tuple[Liveness, str]:
    """What a vantage is at `now_at` (microseconds since the epoch) under the plan in force, and why, in a sentence."""
    due_at = signals.next_heartbeat_at or signals.last_seen_at + _DEFAULT_HEARTBEAT_US
    if now_at > due_at + LATE_GRACE_US:
        heard, due = rough_duration(now_at - signals.last_seen_at), rough_duration(now_at - due_at)
        return Liveness.LATE, f"last heard {heard} ago, and was to be heard again {due} ago"
    if _is_fresh(signals.newest_sample_at, now_at=now_at, plan=plan):
        return Liveness.ONLINE, "samples arrive"
    nothing = _why_nothing_planned(plan)
    if nothing:
        return Liveness.EMPTY, nothing
    return Liveness.SILENT, f"{_heard_and_delivered(signals, now_at=now_at)}; {_likely_cause(signals, plan)}"


def fresh_us(plan: Plan | None) -> int:
    """How old, in microseconds, the newest sample of a vantage that is online may be: three rounds, at least 60 s."""
    targets = plan.targets if plan else ()
    intervals = [target.every_us for target in targets if not target.paused] or [t.every_us for t in targets]
    return max(_FRESH_ROUNDS * min(intervals, default=0), _FRESH_US)


def rough_duration(us: int) -> str:
    """A duration as one says it: `42 s`, `9 min`, `3 h`, `5 d`. What lies ahead, because clocks differ, is `0 s`."""
    for limit_us, unit_us, unit in _SPOKEN:
        if us < limit_us:
            return f"{max(us, 0) // unit_us} {unit}"
    return f"{us // DAY_US} d"


def _is_fresh(newest_sample_at: int | None, *, now_at: int, plan: Plan | None) -> bool:
    return newest_sample_at is not None and now_at - newest_sample_at <= fresh_us(plan)


def _why_nothing_planned(plan: Plan | None) -> str:
    """Why no sample can be expected of anybody, or nothing."""
    if plan is None:
        return "no plan has been applied yet"
    if not plan.targets:
        return f"plan {plan.version} has no targets"
    if all(target.paused for target in plan.targets):
        return f"every target of plan {plan.version} is paused"
    return ""


def _heard_and_delivered(signals: VantageSignals, *, now_at: int) -> str:
    heard = f"heard {rough_duration(now_at - signals.last_seen_at)} ago"
    if signals.newest_sample_at is None:
        return f"{heard}, and no sample since it joined {rough_duration(now_at - signals.first_seen_at)} ago"
    return f"{heard}, but its newest sample is {rough_duration(now_at - signals.newest_sample_at)} old"


def _likely_cause(signals: VantageSignals, plan: Plan | None) -> str:
    """What most likely keeps the samples away, the first that holds."""
    version = plan.version if plan else 0
    clues = (
        (signals.refused_plan_version == version, f"it refuses plan {version}"),
        (not signals.plan_version, f"it has not taken up plan {version}"),
        (signals.spool_depth > 0, f"{signals.spool_depth} samples wait in its spool"),
    )
    return next((clue for holds, clue in clues if holds), "its log says what its probes do")
