"""The clock watch: measures the database's clock for the clock guard, reports its verdicts, and pauses jobs."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import structlog

from isochrone_collector.alerts.message import of_collector
from isochrone_collector.clock import AGREE_US, ClockGuard, Verdict, elapsed_us, now_at
from isochrone_collector.jobs.alert_delivery import AlertDelivery
from isochrone_collector.jobs.registry import Job
from isochrone_collector.store import vantages
from isochrone_collector.store.postgres.pool import Connection, Database, fetch
from isochrone_collector.store.postgres.queries import query
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import SECOND_US

EVERY_US = 5 * SECOND_US

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClockRow:
    at_us: int


async def guard(database: Database) -> ClockGuard:
    """Return the clock of a collector that starts. Raises `DatabaseUnavailable`."""
    async with database.connection() as connection:
        newest = await vantages.newest_receipts(connection)
        offset_us = await _database_offset_us(connection)
    guard = ClockGuard(wall=now_at, elapsed=elapsed_us, newest_receipt_at=newest.push_at or 0)
    guard.hear_database(offset_us)
    return guard


async def _database_offset_us(connection: Connection) -> int:
    """Return the database's clock minus the wall clock."""
    before_ns = time.monotonic_ns()
    (there,) = await fetch(connection, query("clock"), _ClockRow)
    took_us = (time.monotonic_ns() - before_ns) // 1000
    return there.at_us + took_us // 2 - now_at()


class ClockWatch:
    """The watch over one collector's clock."""

    def __init__(self, *, database: Database, guard: ClockGuard, alerting: AlertDelivery) -> None:
        self._database = database
        self._guard = guard
        self._alerting = alerting
        self._reported = Verdict()
        self.on_step: Callable[[], Awaitable[None]] | None = None
        """Called when the estimate of the current instant jumps."""

    async def check(self) -> str:
        """Judge the clock again; return why it is not trusted, empty if it is. Raises `DatabaseUnavailable`."""
        await self._measure()
        verdict = self._guard.update()
        if bool(verdict.reason) != bool(self._reported.reason):
            await self._report(verdict)
        before, self._reported = self._reported, verdict
        if self.on_step and abs(verdict.correction_us - before.correction_us) > AGREE_US:
            await self.on_step()
        return verdict.reason

    async def run(self) -> None:
        """Call `check`, as a job."""
        await self.check()

    def guarded(self, job: Job) -> Job:
        """Return a job that does nothing while the clock is not trusted."""

        async def work() -> None:
            if not await self.check():
                await job.work()

        return replace(job, work=work)

    async def _measure(self) -> None:
        async with self._database.connection() as connection:
            self._guard.hear_database(await _database_offset_us(connection))

    async def _report(self, verdict: Verdict) -> None:
        if not verdict.reason:
            _log.warning("clock.trusted", hint="paused jobs continue")
            return
        _log.error("clock.not_trusted", reason=verdict.reason, correction_us=verdict.correction_us)
        await self._alerting.try_raise(
            of_collector(AlertKind.CLOCK_WRONG, verdict.reason, raised_at=self._guard.now_at())
        )
