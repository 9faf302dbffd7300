"""Where each provider is nearest, and what the other regions pay."""

import asyncio
from dataclasses import dataclass, replace

from isochrone_collector.analysis.coverage import PlanSpan
from isochrone_collector.analysis.differential.pairing import Changes
from isochrone_collector.analysis.differential.panel import panel
from isochrone_collector.analysis.probes import Probes
from isochrone_collector.analysis.ranking.region_cost import region_costs as costs_of
from isochrone_collector.queries import participation
from isochrone_collector.queries.context import QueryContext, ResolvedSelection, look_up, metric_of
from isochrone_collector.queries.participation import Control
from isochrone_collector.store import drift, probe_queries, vantages
from isochrone_collector.store.rows import VantageRow
from isochrone_wire.answers import Metric, Selection
from isochrone_wire.insights import RegionCost, RegionCostList


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What the database has of a question; the probes are those of the control target too."""

    question: ResolvedSelection
    probes: Probes
    vantages: list[VantageRow]
    spans: list[PlanSpan]
    changes: Changes
    control: Control | None
    now_at: int


async def region_costs(desk: QueryContext, selection: Selection, *, metric: str) -> RegionCostList:
    """One line per provider and region that has samples; `metric` is TTFT when it is empty."""
    measure = metric_of(metric)
    control = participation.control_of(desk.plans.current)
    async with desk.database.connection() as connection:
        question = await look_up(connection, selection)
        target_ids = {*question.targets, *([control[0]] if control else [])}
        found = _Found(
            question=question,
            probes=await probe_queries.probes(
                connection, replace(question.scope, target_ids=tuple(target_ids)), measure
            ),
            vantages=await vantages.vantages(connection),
            spans=await desk.plans.spans(connection, selection.window),
            changes=await drift.newest_changes(connection, question.scope, measure),
            control=control,
            now_at=desk.clock(),
        )
    costs = await asyncio.to_thread(_weigh, found, measure)
    return RegionCostList(window=selection.window, costs=costs)


def _weigh(found: _Found, metric: Metric) -> tuple[RegionCost, ...]:
    asked = found.question.targets
    turnouts = participation.turnouts(
        found.probes,
        found.vantages,
        found.spans,
        target_ids={*asked, *([found.control[0]] if found.control else [])},
        window=found.question.scope.window,
        now_at=found.now_at,
    )
    unfit = participation.unfit(turnouts, participation.troubles(found.control, turnouts, found.probes.regions))
    providers = {target.id: target.provider for target in asked.values()}
    return costs_of(panel(found.probes), providers, metric=metric, unfit=unfit, changes=found.changes)
