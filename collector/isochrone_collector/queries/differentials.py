"""The query for differentials between regions and a baseline."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from isochrone_collector.analysis.coverage import PlanSpan
from isochrone_collector.analysis.differential import decomposition
from isochrone_collector.analysis.differential.decomposition import Phases
from isochrone_collector.analysis.differential.differential import ComparisonContext, Subject, differentials_of
from isochrone_collector.analysis.differential.levels import level_histories, since_steps
from isochrone_collector.analysis.differential.pairing import Changes, TargetRegion
from isochrone_collector.analysis.differential.panel import Panel, build_panel
from isochrone_collector.analysis.differential.participation import Participation
from isochrone_collector.analysis.probes import Probes
from isochrone_collector.errors import BadRequest
from isochrone_collector.queries import fleet, participation
from isochrone_collector.queries.context import QueryContext, ResolvedSelection, check_regions, metric_of, resolve
from isochrone_collector.queries.participation import Control
from isochrone_collector.store import drift, probe_queries, vantages
from isochrone_collector.store.postgres.pool import Connection
from isochrone_collector.store.probe_queries import Scope
from isochrone_collector.store.rows import VantageRow
from isochrone_wire.absences import absences, absences_besides
from isochrone_wire.answers import Absence, Differential, DifferentialList, Metric, Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class _Query:
    """A resolved query; `regions` are compared with the baseline, all regions with probes if it is empty."""

    resolved: ResolvedSelection
    metric: Metric
    baseline: str
    regions: tuple[str, ...]
    control: Control | None
    planned: frozenset[int]
    now_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Data:
    """The data that the query reads."""

    probes: Probes
    vantages: list[VantageRow]
    spans: list[PlanSpan]
    changes: Changes
    phases: Phases | None


async def differentials(
    context: QueryContext,
    selection: Selection,
    *,
    baseline: str,
    against: Sequence[str],
    metric: str,
    explain: bool = False,
) -> DifferentialList:
    """Return one differential per target and region against `baseline`, the plan's if it is empty.

    Targets of the plan in force always have a line, others only if they have values. `explain` adds the parts by phase.
    Raises `BadRequest` and `UnknownName`.
    """
    measure = metric_of(metric)
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
            metric=measure,
            baseline=reference,
            regions=tuple(dict.fromkeys(against or selection.regions)),
            control=participation.control_of(context.plans.current),
            planned=frozenset(target.id for target in context.targets().targets),
            now_at=context.clock(),
        )
        data = await _read(context, connection, query, explain=explain)
    # Both sort all probes, and numpy releases the GIL while sorting.
    panel, participations = await asyncio.gather(
        asyncio.to_thread(build_panel, data.probes), asyncio.to_thread(_participations, query, data)
    )
    answers = await asyncio.to_thread(_answers, query, data, panel, participations)
    missing = await _missing(context, query, participations)
    return DifferentialList(window=selection.window, differentials=answers, missing=missing)


async def _read(context: QueryContext, connection: Connection, query: _Query, *, explain: bool) -> _Data:
    window, targets = query.resolved.scope.window, query.resolved.scope.target_ids
    regions = tuple(dict.fromkeys((query.baseline, *query.regions))) if query.regions else None
    scope = Scope(window=window, target_ids=targets, regions=regions)
    with_control = {*targets, query.control[0]} if query.control else targets
    every = Scope(window=window, target_ids=tuple(with_control), regions=regions)
    return _Data(
        probes=await probe_queries.probes(connection, every, query.metric),
        vantages=await vantages.vantages(connection),
        spans=await context.plans.spans(connection, window),
        changes=await drift.newest_changes(connection, scope, query.metric),
        phases=await probe_queries.phases(connection, scope) if explain else None,
    )


def _answers(
    query: _Query, data: _Data, panel: Panel, participations: Mapping[TargetRegion, Participation]
) -> tuple[Differential, ...]:
    regions = query.regions or _regions_with_probes(participations, query.resolved.targets)
    against = tuple(region for region in regions if region != query.baseline)
    subjects = _subjects(query, panel, against)
    wanted = [subject.key for subject in subjects]
    histories = level_histories(panel, wanted, baseline=query.baseline, changes=data.changes, metric=query.metric)
    changes = since_steps(data.changes, histories)
    known = ComparisonContext(
        participations=participations,
        region_problems=participation.region_problems(query.control, participations, (query.baseline, *against)),
        changes=changes,
        histories=histories,
        parts=decomposition.parts(data.phases, wanted, baseline=query.baseline, changes=changes) if data.phases else {},
    )
    return differentials_of(panel, subjects, metric=query.metric, baseline=query.baseline, known=known)


def _participations(query: _Query, data: _Data) -> dict[TargetRegion, Participation]:
    """Return the participation by target and region, the control target included."""
    return participation.participations(
        data.probes,
        data.vantages,
        data.spans,
        target_ids={*query.resolved.targets, *([query.control[0]] if query.control else [])},
        window=query.resolved.scope.window,
        now_at=query.now_at,
    )


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
        {
            region
            for (target_id, region), participation in participations.items()
            if participation.recorded and target_id in target_ids
        }
    )


def _subjects(query: _Query, panel: Panel, regions: Sequence[str]) -> list[Subject]:
    resolved = query.resolved
    shown = query.planned | panel.targets_with_values()
    return [
        Subject(target_id=row.id, target=resolved.names[row.id], provider=row.provider, model=row.model, region=region)
        for row in resolved.targets.values()
        if row.id in shown
        for region in regions
    ]
