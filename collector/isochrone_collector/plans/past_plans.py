"""Plans that were in force: what queries need of each.

A document may have 4 MB and take half a second to parse. Each is therefore read from the database by itself, parsed in
a thread, one at a time, and forgotten; the facts of the newest plans are kept.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from isochrone_collector.analysis.differential.participation import PlanSpan
from isochrone_collector.errors import SchemaError
from isochrone_collector.store import plans as table
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_collector.store.rows import PlanHistoryRow
from isochrone_wire.answers import Window
from isochrone_wire.model import Plan
from isochrone_wire.plan_document.document import load
from isochrone_wire.rounds import phase_ids

# A plan of a thousand targets takes 0.2 MB.
_KEPT = 128
# Returns the document of a version.
_Read = Callable[[int], Awaitable[str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """The intervals of a plan's targets in microseconds, by target id, and the ids that set their phases."""

    every_us: Mapping[int, int]
    phase_ids: Mapping[int, int]


class PastPlans:
    """The facts of stored plans, each read once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # By version and instant, because a restored database gives the same version to another plan.
        self._facts: dict[tuple[int, int], _Facts] = {}
        self._reading = asyncio.Lock()

    async def spans(self, connection: Connection, window: Window) -> list[PlanSpan]:
        """Return the plans that were in force during a window, with their spans of time. Raises `SchemaError` and
        `DatabaseUnavailable`.
        """
        spans = []
        for row in await table.of_window(connection, window):
            facts = await self._facts_of(row.version, row.applied_at, partial(table.document, connection))
            span = PlanSpan(
                from_at=row.applied_at, until_at=row.until_at, every_us=facts.every_us, phase_ids=facts.phase_ids
            )
            spans.append(span)
        return spans

    async def count_targets(self, row: PlanHistoryRow) -> int:
        """Return the number of targets of a plan, 0 for one of a newer collector. Raises `DatabaseUnavailable`."""
        try:
            return len((await self._facts_of(row.version, row.applied_at, self._document)).every_us)
        except SchemaError:
            return 0

    async def _document(self, version: int) -> str | None:
        # Parsing holds no connection, of which pushes have few.
        async with self._database.connection() as connection:
            return await table.document(connection, version)

    async def _facts_of(self, version: int, applied_at: int, read: _Read) -> _Facts:
        key = version, applied_at
        async with self._reading:
            if key not in self._facts:
                facts = await asyncio.to_thread(_facts, version, await read(version) or "")
                while len(self._facts) >= _KEPT:
                    del self._facts[next(iter(self._facts))]
                self._facts[key] = facts
            return self._facts[key]


def parsed(version: int, document: str) -> Plan:
    """Return the plan of a stored document, which was valid for the collector that applied it. Raises `SchemaError`."""
    reading = load(document, version=version, stored=True)
    if reading.plan is None:
        raise SchemaError(
            f"plan {version} was applied by a newer collector: {'; '.join(reading.problems)}",
            hint="upgrade this collector",
        )
    return reading.plan


def _facts(version: int, document: str) -> _Facts:
    plan = parsed(version, document)
    every_us = {target.id: target.every_us for target in plan.targets}
    return _Facts(every_us=every_us, phase_ids=phase_ids(plan.targets, plan.routes))
