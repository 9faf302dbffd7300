"""The current findings, and the state of each target from each region in one word.

The laws of the states; the first that applies counts:

1. `stale`: no request was sent for 15 minutes and for three of the target's intervals. There is no present state.
2. `failing`: an incident that includes the region is open.
3. `slow`: there is a step or a lasting change for the worse (`alerts.findings`).
4. `too_young`: neither a step (11 rounds from two regions) nor a lasting change (60 rounds) could be found yet, or the
   plan is so new that the target need not have a sample.
5. `ok`: everything else.

The public sees findings about targets only, and of all answers nothing of vantages, prices, errors and the texts of
requests and answers.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from isochrone_collector.alerts import findings
from isochrone_collector.alerts.conditions import budget_alerts
from isochrone_collector.alerts.message import of_collector_clock
from isochrone_collector.analysis.differential.participation import PlanSpan
from isochrone_collector.analysis.drift import MIN_ROUNDS
from isochrone_collector.analysis.stats.steps import LEAST
from isochrone_collector.fleet_state import Spender, VantageState
from isochrone_collector.names import EVERY_NAME, NameFilter
from isochrone_collector.queries.context import QueryContext
from isochrone_collector.queries.differentials import differentials, planned_probes
from isochrone_collector.queries.fleet import vantage_states
from isochrone_collector.queries.incidents import drift_events, incidents
from isochrone_collector.queries.ranking import leaderboard
from isochrone_collector.store import vantages
from isochrone_collector.store.vantages import VantageRow
from isochrone_wire import durations
from isochrone_wire.answers import Differential, Metric, Selection, Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.insights import Standing
from isochrone_wire.model import DAY_US, MINUTE_US, Target
from isochrone_wire.queries.status import Finding, FindingKind, Severity, State, StatusList, TargetStatus, Verdict

STALE_US = 15 * MINUTE_US
STALE_ROUNDS = 3
STEP_ROUNDS = 2 * LEAST + 1
"""The rounds of two regions in which a step can be found."""
# So many probes are compared in about a second.
_MAX_COMPARED = 250_000

Place = tuple[str, str]
"""A target and a region."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured: the standings of the last `day` and of its last `hour`; the targets of the plan, which is in
    force since `planned_at`; and the number of `vantages` by region.
    """

    targets: Sequence[Target]
    baseline: str
    day: Mapping[Place, Standing]
    hour: Mapping[Place, Standing]
    planned_at: int
    now_at: int
    vantages: Mapping[str, int]


def states_of(measured: Measured, found: Iterable[Finding]) -> tuple[TargetStatus, ...]:
    """Return the state of each target that is not paused from each region, given the findings about targets."""
    failing, slow = set[Place](), set[Place]()
    for one in found:
        places = slow if one.kind is FindingKind.SLOWER else failing
        places.update((one.target, region) for region in one.regions)
    regions = sorted({region for _, region in measured.day})
    state_of = {State.FAILING: failing, State.SLOW: slow, State.TOO_YOUNG: _young(measured)}
    return tuple(
        _status(measured, target, region, state_of)
        for target in sorted(measured.targets, key=lambda target: target.name)
        if not target.paused
        for region in regions
    )


def _status(
    measured: Measured, target: Target, region: str, state_of: Mapping[State, Collection[Place]]
) -> TargetStatus:
    place = target.name, region
    day = measured.day.get(place)
    median = day.ttft_p50_us if day else None
    state = next((state for state, places in state_of.items() if place in places), State.OK)
    if _is_stale(measured, target, region):
        is_new = day is None and measured.now_at - measured.planned_at <= _stale_us(target)
        state = State.TOO_YOUNG if is_new else State.STALE
    return TargetStatus(
        target=target.name,
        provider=target.provider,
        region=region,
        state=state,
        success=day.success.value if day and day.success else None,
        ttft_p50_us=median.value if median else None,
        newest_at=day.newest_at if day else None,
        is_early=median is not None and None in (median.low, median.high),
    )


def _stale_us(target: Target) -> int:
    return max(STALE_US, STALE_ROUNDS * target.every_us)


def _is_stale(measured: Measured, target: Target, region: str) -> bool:
    day, hour = (of.get((target.name, region)) for of in (measured.day, measured.hour))
    if day is None or day.newest_at is None or not _sent(day):
        return True
    # Rounds that were skipped sent no request.
    if hour is not None and not _sent(hour):
        return True
    return measured.now_at - day.newest_at > _stale_us(target)


def _sent(standing: Standing) -> bool:
    return standing.success is not None or standing.throttled > 0


def _young(measured: Measured) -> set[Place]:
    """Return the targets and regions with too few rounds to find a change."""
    streams = {target.name: target.workload.concurrency for target in measured.targets}
    rounds: dict[str, dict[str, int]] = {}
    for (target, region), one in measured.day.items():
        rounds.setdefault(target, {})[region] = one.n // (streams.get(target, 1) * measured.vantages.get(region, 1))
    found = set()
    for target, own in rounds.items():
        for region, n in own.items():
            is_baseline = region == measured.baseline
            others = [own[other] for other in own if other != region and (is_baseline or other == measured.baseline)]
            if n < MIN_ROUNDS and min(n, max(others, default=0)) < STEP_ROUNDS:
                found.add((target, region))
    return found


def verdict_of(states: Sequence[TargetStatus], found: Sequence[Finding]) -> Verdict:
    """Return the answer in one word."""
    severities = {one.severity for one in found}
    if severities:
        return Verdict.CRITICAL if Severity.CRITICAL in severities else Verdict.WARNING
    young = sum(one.state is State.TOO_YOUNG for one in states)
    return Verdict.TOO_YOUNG if 2 * young >= len(states) else Verdict.WELL


def summary_of(states: Sequence[TargetStatus], found: Sequence[Finding], window: Window) -> str:
    """Return in one sentence what was found, what was looked at, and for how long."""
    if not states and not found:
        return "nothing was measured yet"
    severities = [one.severity for one in found]
    young = sum(one.state is State.TOO_YOUNG for one in states)
    parts = (
        *(_counted(severities.count(severity), name) for severity, name in _NOUNS.items() if severity in severities),
        f"{young} of {len(states)} pairs of a target and a region have too few rounds to judge" if young else "",
        f"{_distinct(states, 'target')} from {_distinct(states, 'region')} in the last {_rough(window)}",
    )
    return "; ".join(filter(None, parts))


_NOUNS = {Severity.CRITICAL: "critical finding", Severity.WARNING: "warning"}


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _distinct(states: Iterable[TargetStatus], name: str) -> str:
    return _counted(len({getattr(one, name) for one in states}), name)


def _rough(window: Window) -> str:
    return durations.rough(window.until_at - window.from_at)


async def status(context: QueryContext, *, shown: NameFilter = EVERY_NAME, is_public: bool = False) -> StatusList:
    """Return what is wrong now, and the state of every target that is `shown` from its regions, by the last 24 hours;
    for the public only what is about targets.
    """
    now_at = context.clock()
    window = Window(from_at=now_at - DAY_US, until_at=now_at)
    fleet = await _fleet(context, window)
    measured = await _measured(context, window, shown, fleet)
    names = {target.name for target in measured.targets if not target.paused}
    opened = await incidents(context, window, past=False, id=0)
    drift = await drift_events(context, Selection(window=window))
    changes = findings.of_changes(await _compared(context, window, fleet), drift.events)
    found = [one for one in (*findings.of_incidents(opened.incidents), *changes) if one.target in names]
    states = states_of(measured, found)
    of_fleet = [] if is_public else _of_fleet(context, fleet, now_at)
    found += [*of_fleet, *findings.of_silence(states, _explained(of_fleet))]
    found.sort(key=lambda one: (one.severity is not Severity.CRITICAL, _KINDS.index(one.kind), one.since_at or 0))
    first_at = min((one.first_seen_at for one in fleet.states), default=0)
    looked_at = replace(window, from_at=max(window.from_at, first_at))
    verdict = verdict_of(states, found)
    return StatusList(
        window=looked_at,
        verdict=verdict,
        summary=summary_of(states, found, looked_at),
        findings=tuple(found),
        states=states,
    )


_KINDS = list(FindingKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fleet:
    """The vantages with their heartbeats and spend, and the plans of the window."""

    states: Sequence[VantageState]
    spenders: Sequence[Spender]
    vantages: Sequence[VantageRow]
    spans: Sequence[PlanSpan]


async def _fleet(context: QueryContext, window: Window) -> _Fleet:
    async with context.database.connection() as connection:
        return _Fleet(
            states=await vantage_states(context, connection),
            spenders=await vantages.spenders(connection),
            vantages=await vantages.vantages(connection),
            spans=await context.plans.spans(connection, window),
        )


async def _measured(context: QueryContext, window: Window, shown: NameFilter, fleet: _Fleet) -> Measured:
    hour = Window(from_at=window.until_at - HOUR_US, until_at=window.until_at)
    of_day = await leaderboard(context, Selection(window=window), needed=("ttft_p50_us", "success"))
    of_hour = await leaderboard(context, Selection(window=hour), needed=("success",))
    plan = context.targets()
    names = shown.select(target.name for target in plan.targets)
    return Measured(
        targets=[target for target in plan.targets if target.name in names],
        baseline=plan.baseline,
        # Without those of other targets: a region that measures them only would be in the status.
        day={(one.target, one.region): one for one in of_day.standings if one.target in names},
        hour={(one.target, one.region): one for one in of_hour.standings},
        planned_at=max((span.from_at for span in fleet.spans), default=0),
        now_at=window.until_at,
        vantages=Counter(one.region for one in fleet.vantages if one.last_seen_at >= window.from_at),
    )


async def _compared(context: QueryContext, window: Window, fleet: _Fleet) -> tuple[Differential, ...]:
    """Return the differences from the baseline in as much of the window as has not too many probes."""
    plan = context.targets()
    if plan.baseline not in {one.region for one in fleet.vantages}:
        return ()
    streams = {target.id: target.workload.concurrency for target in plan.targets}
    from_at = window.from_at
    while True:
        part = replace(window, from_at=from_at)
        counts = planned_probes(fleet.vantages, fleet.spans, target_ids=streams, window=part, now_at=window.until_at)
        if sum(count * streams[target_id] for (target_id, _), count in counts.items()) <= _MAX_COMPARED:
            break
        from_at = (from_at + window.until_at) // 2
    selection = Selection(window=part)
    answer = await differentials(context, selection, baseline=plan.baseline, against=(), metric=Metric.TTFT)
    return answer.differentials


def _of_fleet(context: QueryContext, fleet: _Fleet, now_at: int) -> list[Finding]:
    plan = context.plans.current
    budgets = budget_alerts(fleet.spenders, plan, now_at=now_at) if plan else ()
    found = [*findings.of_vantages(fleet.states, plan, now_at=now_at), *map(findings.of_message, budgets)]
    if reason := context.paused():
        found.append(findings.of_message(of_collector_clock(reason, raised_at=now_at), severity=Severity.CRITICAL))
    if (certificate := context.certificate(now_at)) is not None:
        found.append(findings.of_message(certificate))
    return found


def _explained(found: Iterable[Finding]) -> set[Place]:
    """Return the providers and regions whose requests a finding explains; an empty provider stands for all."""
    return {
        (one.provider, region)
        for one in found
        if one.kind in (FindingKind.VANTAGE_ABSENT, FindingKind.BUDGET_EXHAUSTED)
        for region in one.regions
    }
