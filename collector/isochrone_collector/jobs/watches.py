"""Watches that raise alerts: over the clock, the disk, the fleet of vantages, and the published route tables.

All but the clock watch and the disk watch run on the leader. A remote database has its own disk, which is not
watched.
"""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from isochrone_collector.alerting.service import AlertService
from isochrone_collector.alerts import conditions
from isochrone_collector.alerts.message import of_collector_clock, of_low_disk
from isochrone_collector.clock import AGREE_US, ClockGuard, Verdict, elapsed_us, now_at
from isochrone_collector.disk_space import DiskLevel, DiskSpace
from isochrone_collector.fleet_state import VantageState
from isochrone_collector.jobs.registry import Job
from isochrone_collector.plans.service import Plans
from isochrone_collector.routing import serialization
from isochrone_collector.store import alerts, incidents, job_state, vantages
from isochrone_collector.store import routes as tables
from isochrone_collector.store.postgres.pool import Connection, Database, fetch_values
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import SECOND_US, Vantage
from isochrone_wire.routes import RouteTable

CLOCK_EVERY_US = 5 * SECOND_US

_log = structlog.get_logger()


async def guard(database: Database) -> ClockGuard:
    """Return the clock of a collector that starts. Raises `DatabaseUnavailable`."""
    async with database.connection() as connection:
        newest = await vantages.newest_receipts(connection)
        offset_us = await _database_offset_us(connection)
    guard = ClockGuard(wall=now_at, elapsed=elapsed_us, newest_receipt_at=newest.push_at or 0)
    guard.hear_database(offset_us)
    guard.update()
    return guard


async def _database_offset_us(connection: Connection) -> int:
    """Return the database's clock minus the wall clock; 0 if that may be its error."""
    before_ns = time.monotonic_ns()
    (there_at,) = await fetch_values(connection, "clock")
    error_us = (time.monotonic_ns() - before_ns) // 2000
    offset_us = there_at + error_us - now_at()
    return 0 if abs(offset_us) <= error_us else int(offset_us)


class ClockWatch:
    """The watch over one collector's clock."""

    def __init__(self, *, database: Database, guard: ClockGuard, alerting: AlertService) -> None:
        self._database = database
        self._guard = guard
        self._alerting = alerting
        self._reported = Verdict()
        self.on_step: Callable[[], Awaitable[None]] | None = None
        """Called when the estimate of the current instant jumps."""

    async def check(self) -> str:
        """Judge the clock again; return why it is not trusted, empty if it is. Raises `DatabaseUnavailable`."""
        async with self._database.connection() as connection:
            self._guard.hear_database(await _database_offset_us(connection))
        verdict = self._guard.update()
        if bool(verdict.reason) != bool(self._reported.reason):
            if verdict.reason:
                _log.error("clock.skew_detected", reason=verdict.reason, correction_us=verdict.correction_us)
                await self._alerting.try_raise(of_collector_clock(verdict.reason, raised_at=self._guard.now_at()))
            else:
                _log.warning("clock.skew_resolved", hint="paused jobs continue")
        before, self._reported = self._reported, verdict
        if self.on_step and abs(verdict.correction_us - before.correction_us) > AGREE_US:
            await self.on_step()
        return verdict.reason

    def guarded(self, job: Job) -> Job:
        """Return a job that does nothing while the clock is not trusted."""

        async def work() -> None:
            if not await self.check():
                await job.work()

        return replace(job, work=work)


DISK_EVERY_US = 2 * SECOND_US


@dataclass(eq=False, kw_only=True)
class DiskWatch:
    """The watch over the disk of `folder`; without one, there is always enough room."""

    folder: Path | None
    low_percent: float
    alerting: AlertService
    clock: Callable[[], int]

    def __post_init__(self) -> None:
        self._is_raised = False
        self.space: DiskSpace | None = None

    @property
    def level(self) -> DiskLevel:
        """The level as of the last `run`."""
        return self.space.level if self.space else DiskLevel.ENOUGH

    async def run(self) -> None:
        """Measure the free space, and report each change of the level."""
        if self.folder is None:
            return
        before = self.level
        usage = await asyncio.to_thread(shutil.disk_usage, self.folder)
        self.space = DiskSpace(free_bytes=usage.free, size_bytes=usage.total, low_percent=self.low_percent)
        if self.level is not before:
            report = _log.error if self.level else _log.info
            report("disk.level", room=self.level.name.lower(), free=str(self.space), folder=str(self.folder))
        if self.level is DiskLevel.ENOUGH:
            self._is_raised = False
        elif not self._is_raised:
            message = of_low_disk(str(self.space), raised_at=self.clock())
            self._is_raised = await self.alerting.try_raise(message)


FLEET_EVERY_US = 30 * SECOND_US


class FleetWatch:
    """The watch over the vantages of all collectors on one database."""

    def __init__(self, *, database: Database, plans: Plans, alerting: AlertService, clock: Callable[[], int]) -> None:
        self._database = database
        self._plans = plans
        self._alerting = alerting
        self._clock = clock
        self._wrong_clocks: list[VantageState] = []
        self._read_at = 0

    async def run(self) -> None:
        """Raise the alerts that are due today. Raises `DatabaseUnavailable`."""
        plan, now_at = self._plans.current, self._clock()
        async with self._database.connection() as connection:
            found = await vantages.spenders(connection) if plan and plan.budgets else []
            await self._read_clocks(connection, now_at)
            messages = list(conditions.budget_alerts(found, plan, now_at=now_at)) if plan else []
            messages += [
                conditions.of_vantage_clock(row.name, row.region, row.clock_offset_us or 0, raised_at=now_at)
                for row in self._wrong_clocks
            ]
            for message in messages:
                await self._alerting.raise_alert(connection, message)

    async def distrusted(self, connection: Connection, *, now_at: int) -> frozenset[int]:
        """Return the ids of the vantages whose clocks were wrong at the last run, or now if that was long ago."""
        if not 0 <= now_at - self._read_at < 2 * FLEET_EVERY_US:
            await self._read_clocks(connection, now_at)
        return frozenset(Vantage(name=row.name, region=row.region).id for row in self._wrong_clocks)

    async def _read_clocks(self, connection: Connection, now_at: int) -> None:
        states = await vantages.states(connection, now_at=now_at)
        self._wrong_clocks = [
            row for row in states if conditions.is_clock_wrong(row.clock_offset_us, row.clock_uncertainty_us)
        ]
        self._read_at = now_at


ROUTE_EVERY_US = 5 * SECOND_US

_PROGRESS = "route_alerts"
_OBJECTIVE = (AlertKind.SLO_BREACHED, AlertKind.SLO_RESTORED)


@dataclass(eq=False, kw_only=True)
class RouteWatch:
    """The tables that were published since the last run; before the first one, and after the database was set back,
    those since the last that is recorded.
    """

    database: Database
    alerting: AlertService
    clock: Callable[[], int]

    def __post_init__(self) -> None:
        self._newest: RouteTable | None = None

    async def run(self) -> None:
        """Raise the alerts of new tables. Raises `DatabaseUnavailable`."""
        async with self.database.connection() as connection:
            newest, self._newest = self._newest, None
            if newest is not None and not await tables.has(connection, newest):
                _log.warning("route_alerts.set_back", generation=newest.generation, hint="the database lacks its table")
                newest = None
            generation = newest.generation if newest else await self._recorded(connection)
            rows = await tables.after(connection, generation)
        # Another leader's tables are read once more when this one leads again: alerts have ids of their own.
        found = [serialization.load(RouteTable, row.document) for row in rows]
        if found:
            await self._raise(found)
        self._newest = found[-1] if found else newest

    async def _recorded(self, connection: Connection) -> int:
        recorded = await job_state.next_number(connection, _PROGRESS)
        if recorded is not None:
            return recorded - 1
        # The tables so far were built before there were such alerts.
        generation = await tables.newest_generation(connection)
        await job_state.advance(connection, _PROGRESS, self.clock(), next_number=generation + 1)
        return generation

    async def _raise(self, found: list[RouteTable]) -> None:
        async with self.database.transaction() as connection:
            recent = await incidents.since(connection, min(table.window.from_at for table in found))
            last_alerts = await alerts.newest(connection, _OBJECTIVE)
            for table in found:
                now_at = self.clock()
                # The targets with an incident in the region of the table within its window.
                explained = {
                    row.subject
                    for row in recent
                    if table.client_region in row.regions
                    and row.opened_at < table.window.until_at
                    and (row.recovered_at is None or row.recovered_at >= table.window.from_at)
                }
                if change := conditions.of_change(table, raised_at=now_at):
                    await self.alerting.raise_alert(connection, change)
                for message in conditions.objective_alerts(table, last_alerts, explained, raised_at=now_at):
                    await self.alerting.raise_alert(connection, message)
                    last = conditions.LastAlert(kind=message.kind, alert_id=message.id, raised_at=message.raised_at)
                    last_alerts[message.subject] = last
            done_until, following = max(table.built_at for table in found), found[-1].generation + 1
            await job_state.advance(connection, _PROGRESS, done_until, next_number=following)
