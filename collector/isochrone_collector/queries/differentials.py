"""Regions against the baseline, target by target."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from isochrone_collector.analysis.coverage import PlanSpan
from isochrone_collector.analysis.differential import decomposition
from isochrone_collector.analysis.differential.decomposition import Phases
from isochrone_collector.analysis.differential.differential import ComparisonContext, Subject, differentials_of
from isochrone_collector.analysis.differential.pairing import Changes, Seen
from isochrone_collector.analysis.differential.panel import Panel, panel
from isochrone_collector.analysis.differential.participation import Participation
from isochrone_collector.analysis.probes import Probes
from isochrone_collector.errors import BadRequest
from isochrone_collector.queries import participation
from isochrone_collector.queries.context import QueryContext, ResolvedSelection, check_regions, look_up, metric_of
from isochrone_collector.queries.participation import Control
from isochrone_collector.store import drift, probe_queries, vantages
from isochrone_collector.store.postgres.pool import Connection
from isochrone_collector.store.probe_queries import Scope
from isochrone_collector.store.rows import VantageRow
from isochrone_wire.answers import Differential, DifferentialList, Metric, Part, Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What is asked for; `regions` are those against the baseline, all that were seen when it is empty."""

    question: ResolvedSelection
    metric: Metric
    baseline: str
    regions: tuple[str, ...]
    control: Control | None
    planned: frozenset[int]
    now_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What the database has of it."""

    probes: Probes
    vantages: list[VantageRow]
    spans: list[PlanSpan]
    changes: Changes
    phases: Phases | None


async def differentials(
    desk: QueryContext,
    selection: Selection,
    *,
    baseline: str,
    against: Sequence[str],
    metric: str,
    explain: bool = False,
) -> DifferentialList:
    """One differential per target and region against the baseline, which is the plan's when it is empty.

    Targets of the plan in force always have their line, others where they have values. `explain` asks for the parts
    that the difference is made of.
    """
    measure = metric_of(metric)
    reference = baseline or desk.targets().baseline
    if not reference:
        raise BadRequest("no baseline: name a region, or apply a plan that does")
    async with desk.database.connection() as connection:
        question = await look_up(connection, selection)
        check_regions((reference, *against), question.known_regions)
        if reference in against:
            raise BadRequest(f"{reference!r} is the baseline; it has no differential against itself")
        asked = _Asked(
            question=question,
            metric=measure,
            baseline=reference,
            regions=tuple(dict.fromkeys(against or selection.regions)),
            control=participation.control_of(desk.plans.current),
            planned=frozenset(target.id for target in desk.targets().targets),
            now_at=desk.clock(),
        )
        found = await _found(desk, connection, asked, explain=explain)
    # Both sort all probes, and numpy lets the one do so beside the other.
    seen, turnouts = await asyncio.gather(
        asyncio.to_thread(panel, found.probes), asyncio.to_thread(_turnouts, asked, found)
    )
    answers = await asyncio.to_thread(_answers, asked, found, seen, turnouts)
    return DifferentialList(window=selection.window, differentials=answers)


async def _found(desk: QueryContext, connection: Connection, asked: _Asked, *, explain: bool) -> _Found:
    window, targets = asked.question.scope.window, asked.question.scope.target_ids
    regions = tuple(dict.fromkeys((asked.baseline, *asked.regions))) if asked.regions else None
    scope = Scope(window=window, target_ids=targets, regions=regions)
    with_control = {*targets, asked.control[0]} if asked.control else targets
    every = Scope(window=window, target_ids=tuple(with_control), regions=regions)
    return _Found(
        probes=await probe_queries.probes(connection, every, asked.metric),
        vantages=await vantages.vantages(connection),
        spans=await desk.plans.spans(connection, window),
        changes=await drift.newest_changes(connection, scope, asked.metric),
        phases=await probe_queries.phases(connection, scope) if explain else None,
    )


def _answers(
    asked: _Asked, found: _Found, seen: Panel, turnouts: Mapping[Seen, Participation]
) -> tuple[Differential, ...]:
    regions = asked.regions or _regions_with_probes(turnouts, asked.question.targets)
    against = tuple(region for region in regions if region != asked.baseline)
    subjects = _subjects(asked, seen, against)
    known = ComparisonContext(
        turnouts=turnouts,
        troubles=participation.troubles(asked.control, turnouts, (asked.baseline, *against)),
        changes=found.changes,
        parts=_parts(asked, found, subjects),
    )
    return differentials_of(seen, subjects, metric=asked.metric, baseline=asked.baseline, known=known)


def _turnouts(asked: _Asked, found: _Found) -> dict[Seen, Participation]:
    """Who recorded how much of what was planned, the control target included."""
    return participation.turnouts(
        found.probes,
        found.vantages,
        found.spans,
        target_ids={*asked.question.targets, *([asked.control[0]] if asked.control else [])},
        window=asked.question.scope.window,
        now_at=asked.now_at,
    )


def _regions_with_probes(turnouts: Mapping[Seen, Participation], target_ids: Collection[int]) -> list[str]:
    return sorted(
        {region for (target_id, region), turnout in turnouts.items() if turnout.recorded and target_id in target_ids}
    )


def _subjects(asked: _Asked, seen: Panel, regions: Sequence[str]) -> list[Subject]:
    question = asked.question
    shown = asked.planned | seen.targets_with_values()
    return [
        Subject(target_id=row.id, target=question.names[row.id], provider=row.provider, model=row.model, region=region)
        for row in question.targets.values()
        if row.id in shown
        for region in regions
    ]


def _parts(asked: _Asked, found: _Found, subjects: Sequence[Subject]) -> Mapping[Seen, tuple[Part, ...]]:
    if found.phases is None:
        return {}
    wanted = [subject.seen for subject in subjects]
    return decomposition.parts(found.phases, wanted, baseline=asked.baseline, changes=found.changes)
