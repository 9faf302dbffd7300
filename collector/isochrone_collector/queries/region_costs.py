"""The query for region costs: the best region for each provider, and the cost of the others."""

import asyncio
from dataclasses import dataclass, replace

from isochrone_collector.analysis.differential.decision import Margin
from isochrone_collector.analysis.differential.levels import with_steps
from isochrone_collector.analysis.differential.panel import Changes, build_panel
from isochrone_collector.analysis.differential.participation import PlanSpan
from isochrone_collector.analysis.differential.region_cost import region_costs as costs_of
from isochrone_collector.analysis.probes import Probes
from isochrone_collector.queries import participation
from isochrone_collector.queries.context import QueryContext, ResolvedSelection, metric_of, resolve
from isochrone_collector.queries.participation import Control
from isochrone_collector.store import drift, probe_queries, vantages
from isochrone_collector.store.rows import VantageRow
from isochrone_wire.answers import Metric, Selection
from isochrone_wire.insights import RegionCost, RegionCostList


@dataclass(frozen=True, slots=True, kw_only=True)
class _Data:
    """The data that the query reads; the probes include those of the control target."""

    resolved: ResolvedSelection
    probes: Probes
    vantages: list[VantageRow]
    spans: list[PlanSpan]
    changes: Changes
    control: Control | None
    margin: Margin
    now_at: int


async def region_costs(context: QueryContext, selection: Selection, *, metric: str) -> RegionCostList:
    """Return one line per provider and region that has samples; `metric` is TTFT if it is empty."""
    measure = metric_of(metric)
    control = participation.control_of(context.plans.current)
    async with context.database.connection() as connection:
        resolved = await resolve(connection, selection)
        target_ids = {*resolved.targets, *([control[0]] if control else [])}
        data = _Data(
            resolved=resolved,
            probes=await probe_queries.probes(
                connection, replace(resolved.scope, target_ids=tuple(target_ids)), measure, by_round=True
            ),
            vantages=await vantages.vantages(connection),
            spans=await context.plans.spans(connection, selection.window),
            changes=await drift.newest_changes(connection, resolved.scope, measure),
            control=control,
            margin=context.margin(measure),
            now_at=context.clock(),
        )
    costs = await asyncio.to_thread(_weigh, data, measure)
    return RegionCostList(window=selection.window, costs=costs)


def _weigh(data: _Data, metric: Metric) -> tuple[RegionCost, ...]:
    targets = data.resolved.targets
    participations = participation.participations(
        data.probes,
        data.vantages,
        data.spans,
        target_ids={*targets, *([data.control[0]] if data.control else [])},
        window=data.resolved.scope.window,
        now_at=data.now_at,
    )
    unfit = participation.unfit(
        participations, participation.region_problems(data.control, participations, data.probes.regions)
    )
    providers = {target.id: target.provider for target in targets.values()}
    panel = build_panel(data.probes)
    changes = with_steps(panel, list(targets), changes=data.changes, margin=data.margin)
    return costs_of(panel, providers, metric=metric, unfit=unfit, changes=changes, margin=data.margin)
