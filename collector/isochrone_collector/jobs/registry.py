"""Registry of periodic jobs, the loop that runs them, and their health.

Jobs run beside each other, and none runs beside itself. A job that fails is logged as `job.failed` and runs again. It
keeps failing if it has failed three times in a row and for five minutes. It works again after a run without an error,
or while a run lasts longer than five minutes, because some jobs run without end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from isochrone_collector.alerting.service import AlertService
from isochrone_collector.alerts import message
from isochrone_collector.errors import CollectorError
from isochrone_collector.jobs.coordination import LeaderElection
from isochrone_collector.store import job_state
from isochrone_collector.store.postgres.pool import Database
from isochrone_wire.model import MINUTE_US, SECOND_US

_log = structlog.get_logger()

_MIN_PAUSE_US = SECOND_US // 100
CHECK_EVERY_US = 30 * SECOND_US
_FAILURES = 3
_PATIENCE_US = 5 * MINUTE_US


@dataclass(slots=True)
class JobHealth:
    """The runs of one job so far: `failures` in a row since `since_at`, and the reason of the last one."""

    failures: int = 0
    failures_total: int = 0
    since_at: int = 0
    reason: str = ""
    began_at: int | None = None
    succeeded_at: int | None = None

    def begin(self, at: int) -> None:
        """Record the start of a run."""
        self.began_at = at

    def succeed(self, at: int) -> None:
        """Record a run without an error."""
        self.failures, self.succeeded_at, self.began_at = 0, at, None

    def fail(self, at: int, reason: str) -> None:
        """Record a run that failed; a run that lasted long had worked."""
        if self._runs_well(at):
            self.failures = 0
        if not self.failures:
            self.since_at = at
        self.failures += 1
        self.failures_total += 1
        self.reason, self.began_at = reason, None

    def is_failing(self, at: int) -> bool:
        """Return whether the job keeps failing."""
        return self.failures >= _FAILURES and at - self.since_at >= _PATIENCE_US and not self._runs_well(at)

    def is_working(self, at: int) -> bool:
        """Return whether the job works."""
        return self._runs_well(at) or (self.succeeded_at is not None and not self.failures)

    def _runs_well(self, at: int) -> bool:
        return self.began_at is not None and at - self.began_at >= _PATIENCE_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Work that is repeated, with its interval in microseconds.

    A job of the leader starts as soon as this collector leads, and again `every_us` after each start. Any other job was
    done once when the collector started: it runs after `every_us`, and pauses that long after each run. `woken` ends
    the pause.
    """

    name: str
    every_us: int
    work: Callable[[], Awaitable[None]]
    leader_only: bool = True
    woken: asyncio.Event = field(default_factory=asyncio.Event, compare=False, repr=False)

    def pause_us(self, took_us: int) -> int:
        """Return the pause after a run that took so long by the wall clock; both in microseconds."""
        if not self.leader_only:
            return self.every_us
        # A wall clock that was set during the run makes this pause at most as long as the interval.
        return max(self.every_us - min(max(0, took_us), self.every_us), _MIN_PAUSE_US)


class Jobs:
    """The periodic jobs of a collector. Those of the leader run while this collector leads."""

    def __init__(self, *, database: Database, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._election = LeaderElection(database=database)
        self._jobs: list[Job] = []
        self._health: dict[str, JobHealth] = {}

    @property
    def is_leader(self) -> bool:
        """True while this collector runs the leader's jobs, as far as it knows."""
        return self._election.is_leader

    def add(self, *jobs: Job) -> None:
        """Register jobs, before `run`."""
        self._jobs += jobs

    def health(self) -> dict[str, JobHealth]:
        """Return the health of the jobs that ran here, by name; may be called from any thread."""
        return dict(self._health)

    async def run(self) -> None:
        """Run the jobs; ends only by being cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._election.run(self._run_leader_jobs))
            for job in self._jobs:
                if not job.leader_only:
                    group.create_task(self._repeat(job))

    async def _run_leader_jobs(self) -> None:
        jobs = [job for job in self._jobs if job.leader_only]
        _log.info("leadership.taken", jobs=[job.name for job in jobs])
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(self._repeat(job))

    async def _repeat(self, job: Job) -> None:
        if not job.leader_only:
            await asyncio.sleep(job.every_us / SECOND_US)
        health = self._health.setdefault(job.name, JobHealth())
        while True:
            began_at = self._clock()
            job.woken.clear()
            health.begin(began_at)
            try:
                await job.work()
                health.succeed(self._clock())
            except Exception as error:  # noqa: BLE001  # a failed job must not end the others; it runs again
                hint = error.hint if isinstance(error, CollectorError) else ""
                health.fail(self._clock(), str(error) or type(error).__name__)
                _log.warning("job.failed", job=job.name, reason=str(error), hint=hint)
            with suppress(TimeoutError):
                async with asyncio.timeout(job.pause_us(self._clock() - began_at) / SECOND_US):
                    await job.woken.wait()


class JobHealthCheck:
    """Check of the jobs of one collector, while it leads."""

    def __init__(
        self,
        *,
        database: Database,
        health: Callable[[], Mapping[str, JobHealth]],
        alerting: AlertService,
        clock: Callable[[], int],
    ) -> None:
        self._database = database
        self._health = health
        self._alerting = alerting
        self._clock = clock

    async def run(self) -> None:
        """Record the jobs that keep failing, and forget those that work again. Raises `DatabaseUnavailable`."""
        at = self._clock()
        async with self._database.transaction() as connection:
            known = await job_state.failing(connection)
            for name, health in self._health().items():
                if health.is_failing(at) and name not in known:
                    await job_state.record_failing(connection, name, since_at=health.since_at)
                    alert = message.of_failing_job(name, health.reason, since_at=health.since_at, raised_at=at)
                    await self._alerting.raise_alert(connection, alert)
                    _log.error("job.keeps_failing", job=name, reason=health.reason)
                elif health.is_working(at) and name in known:
                    await job_state.forget_failing(connection, name)
