"""Regions against the baseline, target by target."""

import asyncio
from collections.abc import Iterable, Sequence

from isochrone_collector.differential import Series, Subject, differential
from isochrone_collector.errors import BadRequest
from isochrone_collector.observe.desk import Desk, Question, check_regions, look_up, metric_of
from isochrone_collector.store import readers
from isochrone_collector.store.pool import Connection
from isochrone_collector.store.readers import Scope
from isochrone_collector.store.rows import SeriesRow
from isochrone_wire.answers import DifferentialList, Metric, Selection

Line = tuple[Subject, Series, Series]


async def differentials(
    desk: Desk, selection: Selection, *, baseline: str, against: Sequence[str], metric: str
) -> DifferentialList:
    """One differential per target and region against the baseline, which is the plan's when it is empty.

    Targets of the plan in force always have their line, others where they have values.
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
        regions = list(dict.fromkeys(against)) or await _other_regions(connection, question.scope, reference)
        scope = Scope(window=selection.window, target_ids=question.scope.target_ids, regions=(reference, *regions))
        rows = await readers.series(connection, scope, measure)
    lines = _subjects(desk, question, rows, metric=measure, baseline=reference, regions=regions)
    answers = await asyncio.to_thread(lambda: tuple(differential(*line) for line in lines))
    return DifferentialList(window=selection.window, differentials=answers)


def _subjects(
    desk: Desk, question: Question, rows: Iterable[SeriesRow], *, metric: Metric, baseline: str, regions: Sequence[str]
) -> list[Line]:
    series = {
        (row.target_id, row.region): Series(rounds=row.rounds, values=row.medians, censored=row.censored)
        for row in rows
    }
    planned = {target.id for target in desk.targets().targets}
    shown = planned | {target_id for target_id, _ in series}
    return [
        (
            Subject(
                target=question.names[row.id],
                provider=row.provider,
                model=row.model,
                metric=metric,
                baseline=baseline,
                region=region,
            ),
            series.get((row.id, baseline), Series()),
            series.get((row.id, region), Series()),
        )
        for row in question.targets.values()
        if row.id in shown
        for region in regions
    ]


async def _other_regions(connection: Connection, scope: Scope, baseline: str) -> list[str]:
    found = scope.regions or await readers.regions_with_samples(connection, scope)
    return [region for region in found if region != baseline]
