"""The query for differentials between regions and a baseline.

The false-discovery rate is that of a fixed family: all targets of the plan, from all regions, in the window. A question
about some of them therefore reads the probes of all of them. If the plans ask for more than `FAMILY_PROBES` probes in
the window, the family is not read, and its size alone enters the rate; this depends on plan and window only, so every
question about the window has the same q-values.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from isochrone_collector.analysis.differential import decomposition, participation
from isochrone_collector.analysis.differential.decision import Margin
from isochrone_collector.analysis.differential.decomposition import Phases
from isochrone_collector.analysis.differential.differential import ComparisonContext, Subject, differentials_of
from isochrone_collector.analysis.differential.levels import level_histories, since_steps, with_steps
from isochrone_collector.analysis.differential.panel import Changes, Panel, TargetRegion, build_panel
from isochrone_collector.analysis.differential.participation import Participation, PlanSpan, Presence
from isochrone_collector.analysis.differential.region_cost import region_costs as costs_of
from isochrone_collector.analysis.history import NO_HISTORY, SUCCESS, History, median_of
from isochrone_collector.analysis.probes import Probes
from isochrone_collector.errors import BadRequest
from isochrone_collector.queries import fleet
from isochrone_collector.queries.context import QueryContext, ResolvedSelection, check_regions, resolve
from isochrone_collector.store import drift, hourly_levels, probe_queries, vantages
from isochrone_collector.store.plans import TargetRow
from isochrone_collector.store.postgres.pool import Connection
from isochrone_collector.store.probe_queries import Scope
from isochrone_collector.store.vantages import VantageRow
from isochrone_wire.answers import Absence, Differential, DifferentialList, Metric, Selection, Window
from isochrone_wire.fleet import absences, absences_besides
from isochrone_wire.insights import RegionCost, RegionCostList
from isochrone_wire.model import Plan, Target

Control = tuple[int, str]
"""The control target's id and name."""


def control_of(plan: Plan | None) -> Control | None:
    """Return the control target of a plan, if it has one."""
    named = [target for target in plan.targets if target.name == plan.control] if plan else []
    return (named[0].id, named[0].name) if named else None


def participations(
    probes: Probes,
    vantages: Iterable[VantageRow],
    spans: Sequence[PlanSpan],
    *,
    target_ids: Collection[int],
    window: Window,
    now_at: int,
    history: History = NO_HISTORY,
) -> dict[TargetRegion, Participation]:
    """Return the participation of these targets in each region; `history` has the success of the past week."""
    oldest = participation.oldest_rounds(probes)
    presences = [_presence(vantage, window, oldest.get(vantage.id), now_at) for vantage in vantages]
    return participation.participations(probes, participation.planned(presences, spans, target_ids), history)


def planned_probes(
    vantages: Iterable[VantageRow], spans: Sequence[PlanSpan], *, target_ids: Iterable[int], window: Window, now_at: int
) -> dict[TargetRegion, int]:
    """Return the probes of each target that the plans asked of the vantages of each region."""
    presences = [_presence(vantage, window, None, now_at) for vantage in vantages]
    return participation.planned(presences, spans, target_ids)


def region_problems(
    control: Control | None, found: Mapping[TargetRegion, Participation], regions: Iterable[str]
) -> dict[str, str]:
    """Map each region that is unfit itself to the reason."""
    if control is None:
        return {}
    target_id, name = control
    reasons = {
        region: found.get((target_id, region), Participation()).control_problem(region, name) for region in regions
    }
    return {region: reason for region, reason in reasons.items() if reason}


def unfit(found: Mapping[TargetRegion, Participation], region_problem: Mapping[str, str]) -> dict[TargetRegion, str]:
    """Map a series to why it is not compared: the region's own problem, too little recorded, or too many failures."""
    reasons = {
        (target_id, region): region_problem.get(region)
        or one.coverage_problem(region)
        or one.busy_problem(region)
        or one.losses(region)
        for (target_id, region), one in found.items()
    }
    return {key: reason for key, reason in reasons.items() if reason}


def _presence(vantage: VantageRow, window: Window, oldest_at: int | None, now_at: int) -> Presence:
    return Presence(region=vantage.region, part=fleet.active_part(vantage, window, oldest_at, now_at))


FAMILY_PROBES = 1_000_000
"""The most planned probes of a window for which a question about some of the targets reads all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Query:
    """A resolved query: the `regions` to compare, all if empty, and the `planned` targets."""

    resolved: ResolvedSelection
    metric: Metric
    margin: Margin
    baseline: str
    regions: tuple[str, ...]
    control: Control | None
    planned: Mapping[int, Target]
    now_at: int

    @property
    def judged(self) -> set[int]:
        """The ids of the selected targets, and that of the control target."""
        return {*self.resolved.targets, *([self.control[0]] if self.control else [])}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Data:
    """The data that the query reads. `family_size` is the number of comparisons of a family that was not read."""

    family_size: int | None
    probes: Probes
    vantages: list[VantageRow]
    spans: list[PlanSpan]
    changes: Changes
    history: History
    phases: Phases | None


async def differentials(
    context: QueryContext,
    selection: Selection,
    *,
    baseline: str,
    against: Sequence[str],
    metric: Metric,
    explain: bool = False,
) -> DifferentialList:
    """Return one differential per target and region against `baseline`, the plan's if it is empty.

    Targets of the plan in force always have a line, others only if they have values. `explain` adds the parts by phase.
    Raises `BadRequest` and `UnknownName`.
    """
    reference = baseline or context.targets().baseline
    if not reference:
        raise BadRequest("no baseline: name a region, or apply a plan with `baseline`")
    async with context.database.connection() as connection:
        resolved = await resolve(connection, selection)
        check_regions((reference, *against), resolved.known_regions)
        if reference in against:
            raise BadRequest(f"{reference!r} is the baseline and cannot be compared with itself")
        query = _Query(
            resolved=resolved,
            metric=metric,
            margin=context.margin(metric),
            baseline=reference,
            regions=tuple(dict.fromkeys(against or selection.regions)),
            control=control_of(context.plans.current),
            planned={target.id: target for target in context.targets().targets},
            now_at=context.clock(),
        )
        data = await _read(context, connection, query, explain=explain)
    # Both sort all probes, and numpy releases the GIL while sorting.
    panel, participating = await asyncio.gather(
        asyncio.to_thread(build_panel, data.probes),
        asyncio.to_thread(
            participations,
            data.probes,
            data.vantages,
            data.spans,
            target_ids=query.judged.union(query.planned),
            window=selection.window,
            now_at=query.now_at,
            history=data.history,
        ),
    )
    answers = await asyncio.to_thread(_answers, query, data, panel, participating)
    missing = await _missing(context, query, participating)
    return DifferentialList(window=selection.window, differentials=answers, missing=missing)


def _subject(target_id: int, name: str, target: Target | TargetRow, *, region: str) -> Subject:
    return Subject(target_id=target_id, target=name, provider=target.provider, model=target.model, region=region)


async def _read(context: QueryContext, connection: Connection, query: _Query, *, explain: bool) -> _Data:
    window = query.resolved.scope.window
    regions = tuple(dict.fromkeys((query.baseline, *query.regions))) if query.regions else None
    scope = Scope(window=window, target_ids=query.resolved.scope.target_ids, regions=regions)
    every_vantage = await vantages.vantages(connection)
    spans = await context.plans.spans(connection, window)
    family_size = _size_if_not_read(query, every_vantage, spans)
    every = (
        Scope(window=window, target_ids=(*query.judged.union(query.planned),))
        if family_size is None
        else replace(scope, target_ids=(*query.judged,))
    )
    return _Data(
        family_size=family_size,
        probes=await probe_queries.probes(connection, every, query.metric, by_round=True),
        vantages=every_vantage,
        spans=spans,
        changes=await drift.newest_changes(connection, every, query.metric),
        history=await hourly_levels.history_of(connection, every, (median_of(query.metric), SUCCESS)),
        phases=await probe_queries.phases(connection, scope) if explain else None,
    )


def _size_if_not_read(query: _Query, every_vantage: Sequence[VantageRow], spans: Sequence[PlanSpan]) -> int | None:
    """Return the number of comparisons in the family if it has too many probes to be read."""
    counts = planned_probes(
        every_vantage, spans, target_ids=query.planned, window=query.resolved.scope.window, now_at=query.now_at
    )
    probes = sum(count * query.planned[target_id].workload.concurrency for (target_id, _), count in counts.items())
    if probes <= FAMILY_PROBES:
        return None
    return sum(count > 0 for (_, region), count in counts.items() if region != query.baseline)


def _answers(
    query: _Query, data: _Data, panel: Panel, participations: Mapping[TargetRegion, Participation]
) -> tuple[Differential, ...]:
    asked = _subjects(query, panel, query.regions or _regions_with_probes(participations, query.resolved.targets))
    is_read = data.family_size is None
    subjects = [*asked, *(_rest_of_family(query, participations, asked) if is_read else ())]
    busy = {key for key, one in participations.items() if one.busy_problem(key[1])}
    steady = [one.key for one in subjects if not busy & {one.key, (one.target_id, query.baseline)}]
    histories = level_histories(panel, steady, baseline=query.baseline, changes=data.changes, margin=query.margin)
    changes = since_steps(data.changes, histories)
    wanted, problems_of = [one.key for one in asked], {query.baseline, *(one.region for one in subjects)}
    comparisons = ComparisonContext(
        participations=participations,
        region_problems=region_problems(query.control, participations, problems_of),
        changes=changes,
        histories=histories,
        hourly=data.history.levels[median_of(query.metric)],
        parts=decomposition.parts(data.phases, wanted, baseline=query.baseline, changes=changes) if data.phases else {},
        margin=query.margin,
        family=frozenset(query.planned),
        family_size=data.family_size,
    )
    found = differentials_of(panel, subjects, metric=query.metric, baseline=query.baseline, context=comparisons)
    return found[: len(asked)]


async def _missing(
    context: QueryContext, query: _Query, participations: Mapping[TargetRegion, Participation]
) -> tuple[Absence, ...]:
    """Return why the regions to compare, or all besides the baseline, have no samples; empty if there are enough."""
    recorded = set(_regions_with_probes(participations, query.resolved.targets))
    lacking = [region for region in (query.baseline, *query.regions) if region not in recorded]
    is_alone = not query.regions and recorded <= {query.baseline}
    if not lacking and not is_alone:
        return ()
    vantages, window = (await fleet.vantage_list(context)).vantages, query.resolved.scope.window
    besides = absences_besides(query.baseline, vantages, window, baseline=query.baseline) if is_alone else ()
    return absences(lacking, vantages, window) + besides


def _regions_with_probes(
    participations: Mapping[TargetRegion, Participation], target_ids: Collection[int]
) -> list[str]:
    return sorted(
        {region for (target_id, region), one in participations.items() if one.recorded and target_id in target_ids}
    )


def _subjects(query: _Query, panel: Panel, regions: Sequence[str]) -> list[Subject]:
    shown = query.planned.keys() | panel.targets_with_values()
    return [
        _subject(row.id, query.resolved.names[row.id], row, region=region)
        for row in query.resolved.targets.values()
        if row.id in shown
        for region in regions
        if region != query.baseline
    ]


def _rest_of_family(
    query: _Query, participations: Mapping[TargetRegion, Participation], asked: Sequence[Subject]
) -> list[Subject]:
    """Return the members of the family that were read although they were not asked for."""
    known = {one.key for one in asked}
    regions = [region for region in _regions_with_probes(participations, query.planned) if region != query.baseline]
    family = [_subject(one.id, one.name, one, region=region) for one in query.planned.values() for region in regions]
    return [one for one in family if one.key not in known]


async def region_costs(context: QueryContext, selection: Selection, *, metric: Metric) -> RegionCostList:
    """Return one line per provider and region that has samples."""
    control = control_of(context.plans.current)
    async with context.database.connection() as connection:
        resolved = await resolve(connection, selection)
        target_ids = {*resolved.targets, *([control[0]] if control else [])}
        scope = replace(resolved.scope, target_ids=tuple(target_ids))
        probes = await probe_queries.probes(connection, scope, metric, by_round=True)
        every_vantage = await vantages.vantages(connection)
        spans = await context.plans.spans(connection, selection.window)
        changes = await drift.newest_changes(connection, resolved.scope, metric)
        history = await hourly_levels.history_of(connection, scope, (median_of(metric), SUCCESS))
    margin, now_at, window = context.margin(metric), context.clock(), selection.window

    def weigh() -> tuple[RegionCost, ...]:
        found = participations(
            probes, every_vantage, spans, target_ids=target_ids, window=window, now_at=now_at, history=history
        )
        left_out = unfit(found, region_problems(control, found, probes.regions))
        providers = {target.id: target.provider for target in resolved.targets.values()}
        panel = build_panel(probes)
        steps = with_steps(panel, list(resolved.targets), changes=changes, margin=margin)
        return costs_of(
            panel,
            providers,
            metric=metric,
            unfit=left_out,
            changes=steps,
            margin=margin,
            hourly=history.levels[median_of(metric)],
        )

    return RegionCostList(window=window, costs=await asyncio.to_thread(weigh))
