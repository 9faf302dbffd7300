"""The plan in force: applied by an operator, fetched by agents, remembered by every collector."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import structlog

from isochrone_collector import planchange, planfile
from isochrone_collector.coverage import PlanSpan
from isochrone_collector.errors import BadRequest, SchemaError
from isochrone_collector.store import plans as table
from isochrone_collector.store.pool import Connection, Database
from isochrone_collector.store.rows import PlanRow
from isochrone_wire.answers import Window
from isochrone_wire.model import Plan
from isochrone_wire.operations import PlanChange

_log = structlog.get_logger()

_MAX_NAME_CHARS = 200


class Plans:
    """The newest plan as of the last `refresh`; another collector may have applied a newer one since."""

    def __init__(self, *, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock
        self.current: Plan | None = None
        self.known_targets: frozenset[int] = frozenset()

    @property
    def version(self) -> int:
        """The version of the plan in force; 0 before the first."""
        return self.current.version if self.current else 0

    async def refresh(self) -> None:
        """Look at what is in force now. Raises `DatabaseUnavailable`."""
        async with self._database.connection() as connection:
            newest = await table.newest(connection)
            if newest is not None and newest.version != self.version:
                self.known_targets = frozenset(row.id for row in await table.targets(connection))
                self.current = _plan_of(newest.version, newest.document)
                _log.info("plan.loaded", version=newest.version, targets=len(self.current.targets))

    def fetch(self, if_version: int | None) -> Plan | None:
        """The plan in force, or `None` when the asker already runs it or there is none."""
        return None if self.version == if_version else self.current

    async def apply(self, document: str, *, dry_run: bool, applied_by: str) -> PlanChange:
        """Put a document into force, or say what that would change, or every problem in it.

        Raises `BadRequest` when `applied_by` is no name, and `DatabaseUnavailable`.
        """
        applied_by = applied_by or "unknown"
        if len(applied_by) > _MAX_NAME_CHARS or not applied_by.isprintable():
            raise BadRequest(f"applied_by must be printable, at most {_MAX_NAME_CHARS} characters")
        async with self._database.transaction() as connection:
            await table.lock(connection)
            change = await self._apply(connection, document, dry_run=dry_run, applied_by=applied_by)
        if change.changed and not dry_run:
            _log.info("plan.applied", version=change.version, applied_by=applied_by)
            await self.refresh()
        return change

    async def _apply(self, connection: Connection, document: str, *, dry_run: bool, applied_by: str) -> PlanChange:
        newest = await table.newest(connection)
        old = _plan_of(newest.version, newest.document) if newest else None
        version = old.version if old else 0
        reading = planfile.load(document, version=version + 1)
        if reading.plan is None:
            return PlanChange(version=version, problems=reading.problems)
        if old is not None and planchange.same_meaning(old, reading.plan):
            return planchange.unchanged(old)
        if not dry_run:
            # Two plans never share an instant, whatever the clocks of two collectors say.
            applied_at = max(self._clock(), newest.applied_at + 1 if newest else 0)
            await table.insert(
                connection, reading.plan, document=document, applied_at=applied_at, applied_by=applied_by
            )
        return planchange.compare(old, reading.plan)

    async def spans(self, connection: Connection, window: Window) -> list[PlanSpan]:
        """Which plan was in force when, over a window."""
        return [_span(row) for row in await table.of_window(connection, window)]


def _span(row: PlanRow) -> PlanSpan:
    plan = _plan_of(row.version, row.document)
    every_us = {target.id: target.every_us for target in plan.targets}
    return PlanSpan(from_at=row.applied_at, until_at=row.until_at, every_us=every_us)


@lru_cache(maxsize=64)
def _plan_of(version: int, document: str) -> Plan:
    """The plan a stored document stands for. It was valid to the collector that applied it."""
    reading = planfile.load(document, version=version)
    if reading.plan is None:
        raise SchemaError(
            f"plan {version} was applied by a newer collector: {'; '.join(reading.problems)}", hint="upgrade this one"
        )
    return replace(reading.plan, version=version)
