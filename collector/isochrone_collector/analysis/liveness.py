"""Liveness of a vantage, from its heartbeats and samples. Pure; instants are the collector's clock.

The laws:

1. Each heartbeat announces when the next one is due. A vantage past that is late, however fresh its samples are.
2. Online means that samples arrive. A vantage that sends heartbeats but no samples is silent.
3. A vantage without planned targets cannot be silent: it is empty.
"""

from dataclasses import dataclass

from isochrone_wire.fleet import Liveness
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Plan

LATE_GRACE_US = 5 * SECOND_US
"""Tolerance after a due heartbeat, in microseconds, for a slow network or commit."""

# The interval assumed for an agent that announces none.
_DEFAULT_HEARTBEAT_US = MINUTE_US
_FRESH_ROUNDS = 3
_FRESH_US = MINUTE_US
_HOUR_US = 60 * MINUTE_US
# Upper limit of each unit in microseconds, the unit in microseconds, its symbol.
_SPOKEN = ((2 * MINUTE_US, SECOND_US, "s"), (2 * _HOUR_US, MINUTE_US, "min"), (2 * DAY_US, _HOUR_US, "h"))


@dataclass(frozen=True, slots=True, kw_only=True)
class VantageSignals:
    """The signals that liveness is computed from: when a vantage was first and last seen, when its next heartbeat is
    due, its newest sample, the plan it runs (0: none), and how many samples wait in its spool.
    """

    first_seen_at: int
    last_seen_at: int
    next_heartbeat_at: int | None = None
    newest_sample_at: int | None = None
    plan_version: int = 0
    refused_plan_version: int | None = None
    spool_depth: int = 0


def classify(signals: VantageSignals, *, now_at: int, plan: Plan | None) -> tuple[Liveness, str]:
    """Return the liveness at `now_at` (microseconds since the epoch) under the plan in force, with the reason."""
    due_at = signals.next_heartbeat_at or signals.last_seen_at + _DEFAULT_HEARTBEAT_US
    if now_at > due_at + LATE_GRACE_US:
        last, due = rough_duration(now_at - signals.last_seen_at), rough_duration(now_at - due_at)
        return Liveness.LATE, f"last heartbeat {last} ago; the next was due {due} ago"
    if _is_fresh(signals.newest_sample_at, now_at=now_at, plan=plan):
        return Liveness.ONLINE, "samples arrive"
    nothing = _why_nothing_planned(plan)
    if nothing:
        return Liveness.EMPTY, nothing
    return Liveness.SILENT, f"{_silence(signals, now_at=now_at)}; {_likely_cause(signals, plan)}"


def fresh_us(plan: Plan | None) -> int:
    """Return the maximum age, in microseconds, of an online vantage's newest sample: three rounds, at least 60 s."""
    targets = plan.targets if plan else ()
    intervals = [target.every_us for target in targets if not target.paused] or [t.every_us for t in targets]
    return max(_FRESH_ROUNDS * min(intervals, default=0), _FRESH_US)


def rough_duration(us: int) -> str:
    """Format a duration in one unit: `42 s`, `9 min`, `3 h`, `5 d`. Negative ones (clocks differ) become `0 s`."""
    for limit_us, unit_us, unit in _SPOKEN:
        if us < limit_us:
            return f"{max(us, 0) // unit_us} {unit}"
    return f"{us // DAY_US} d"


def _is_fresh(newest_sample_at: int | None, *, now_at: int, plan: Plan | None) -> bool:
    return newest_sample_at is not None and now_at - newest_sample_at <= fresh_us(plan)


def _why_nothing_planned(plan: Plan | None) -> str:
    """Return why the plan expects no samples; empty if it does."""
    if plan is None:
        return "no plan has been applied yet"
    if not plan.targets:
        return f"plan {plan.version} has no targets"
    if all(target.paused for target in plan.targets):
        return f"every target of plan {plan.version} is paused"
    return ""


def _silence(signals: VantageSignals, *, now_at: int) -> str:
    last = f"last heartbeat {rough_duration(now_at - signals.last_seen_at)} ago"
    if signals.newest_sample_at is None:
        return f"{last}, but no sample since it joined {rough_duration(now_at - signals.first_seen_at)} ago"
    return f"{last}, but its newest sample is {rough_duration(now_at - signals.newest_sample_at)} old"


def _likely_cause(signals: VantageSignals, plan: Plan | None) -> str:
    """Return the most likely cause of missing samples: the first that applies."""
    version = plan.version if plan else 0
    clues = (
        (signals.refused_plan_version == version, f"it refuses plan {version}"),
        (not signals.plan_version, f"it does not run plan {version}"),
        (signals.spool_depth > 0, f"{signals.spool_depth} samples wait in its spool"),
    )
    return next((clue for holds, clue in clues if holds), "see its log for the probes")
