"""Periodic jobs: their registry, the loop that runs them, their health, and the coordination of the collectors on one
database: leader election, and notifications (LISTEN/NOTIFY).

1. The collector that holds the advisory lock leads and does the work that is done once for all. Every other collector
   asks for the lock once a second, so that one of them takes over within seconds of the leader's end.
2. The lock lives with one connection. When that connection is lost, so is leadership, and the leader's work is
   cancelled. Two leaders are possible for a moment, because the server may release the lock before the collector
   notices: the work must tolerate being done twice.
3. A notification may be lost with a connection. So the work that it wakes also reads the database now and then, and a
   new connection counts as a notification on every channel.

Jobs run beside each other, and none runs beside itself. A job that fails is logged as `job.failed` and runs again,
after a second at the earliest, even if notifications wake it. It keeps failing if it has failed three times in a row
and for five minutes. It works again after a run without an error, or while a run lasts longer than five minutes,
because some jobs run without end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from isochrone_collector.alerting.service import AlertService
from isochrone_collector.alerts import message
from isochrone_collector.errors import CollectorError, DatabaseUnavailable
from isochrone_collector.store import job_state
from isochrone_collector.store.job_state import Channel
from isochrone_collector.store.postgres.pool import Database
from isochrone_wire.model import MINUTE_US, SECOND_US

_RETRY_S = 1.0
_CONFIRM_WITHIN_S = 10.0


# There may be hundreds of commits per second, and each notification wakes the leader.
_MIN_PAUSE_S = 0.1


class Notifications:
    """The notifications of one collector, with handlers for each channel, which must be quick."""

    def __init__(self, *, database: Database) -> None:
        self._database = database
        self._handlers: dict[Channel, list[Callable[[], None]]] = {channel: [] for channel in Channel}
        self._samples_stored = asyncio.Event()

    def handle(self, channel: Channel, handler: Callable[[], None]) -> None:
        """Add a handler of a channel, before `run`."""
        self._handlers[channel].append(handler)

    def notify_samples(self) -> None:
        """Notify the other collectors soon that samples were stored."""
        self._samples_stored.set()

    async def run(self) -> None:
        """Send and receive notifications; ends only by being cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send())
            group.create_task(self._receive())

    async def _send(self) -> None:
        while True:
            await self._samples_stored.wait()
            self._samples_stored.clear()
            with suppress(CollectorError):
                async with self._database.connection() as connection:
                    await job_state.notify(connection, Channel.SAMPLES)
            await asyncio.sleep(_MIN_PAUSE_S)

    async def _receive(self) -> None:
        while True:
            with suppress(CollectorError):
                async with self._database.session() as connection:
                    await job_state.listen(connection)
                    for channel in Channel:
                        self._handle(channel)
                    async for channel in job_state.received(connection):
                        self._handle(channel)
            await asyncio.sleep(1.0)

    def _handle(self, channel: Channel) -> None:
        for handler in self._handlers[channel]:
            handler()


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
            self.succeed(at)
        if not self.failures:
            self.since_at = at
        self.failures += 1
        self.failures_total += 1
        self.reason, self.began_at = reason, None

    def is_failing(self, at: int) -> bool:
        """Return whether the job keeps failing."""
        return self.failures >= _FAILURES and at - self.since_at >= _PATIENCE_US and not self._runs_well(at)

    def has_worked(self, at: int, *, since_at: int) -> bool:
        """Return whether the job has worked after the failures in a row that began at `since_at`."""
        worked = self.succeeded_at is not None and not (self.failures and self.since_at == since_at)
        return worked or self._runs_well(at)

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
    work: Callable[[], Awaitable[object]]
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
        self._database, self._clock = database, clock
        self._leads = False
        self._jobs: list[Job] = []
        self._health: dict[str, JobHealth] = {}

    @property
    def is_leader(self) -> bool:
        """True while this collector runs the leader's jobs, as far as it knows."""
        return self._leads

    def add(self, *jobs: Job) -> None:
        """Register jobs, before `run`."""
        self._jobs += jobs

    def health(self) -> dict[str, JobHealth]:
        """Return the health of the jobs that ran here, by name; may be called from any thread."""
        return dict(self._health)

    async def run(self) -> None:
        """Run the jobs; ends only by being cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lead())
            for job in self._jobs:
                if not job.leader_only:
                    group.create_task(self._repeat(job))

    async def _lead(self) -> None:
        while True:
            with suppress(CollectorError):
                async with self._database.session() as connection:
                    while not await job_state.take_leader_lock(connection):
                        await asyncio.sleep(_RETRY_S)
                    self._leads = True
                    try:
                        async with asyncio.TaskGroup() as group:
                            group.create_task(self._run_leader_jobs())
                            connection.answer_within_s = _CONFIRM_WITHIN_S
                            while True:
                                await job_state.confirm_primary(connection)
                                await asyncio.sleep(1.0)
                    except* DatabaseUnavailable as lost:
                        _log.warning("leadership.lost", reason=str(lost.exceptions[0]))
                    finally:
                        self._leads = False
            await asyncio.sleep(_RETRY_S)

    async def _run_leader_jobs(self) -> None:
        jobs = [job for job in self._jobs if job.leader_only]
        _log.info("leadership.taken", jobs=[job.name for job in jobs])
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(self._repeat(job))

    async def _repeat(self, job: Job) -> None:
        if not job.leader_only:
            await asyncio.sleep(job.every_us / SECOND_US)
        # Of an earlier leadership only the count remains: since then, the job may have worked elsewhere.
        earlier = self._health.get(job.name, JobHealth())
        health = self._health[job.name] = JobHealth(failures_total=earlier.failures_total)
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
                await asyncio.sleep(min(_RETRY_S, job.every_us / SECOND_US))
            with suppress(TimeoutError):
                async with asyncio.timeout(job.pause_us(self._clock() - began_at) / SECOND_US):
                    await job.woken.wait()


@dataclass(eq=False, kw_only=True)
class JobHealthCheck:
    """Check of the jobs of one collector, while it leads."""

    database: Database
    health: Callable[[], Mapping[str, JobHealth]]
    alerting: AlertService
    clock: Callable[[], int]

    async def run(self) -> None:
        """Record the jobs that keep failing, and forget those that work again. Raises `DatabaseUnavailable`."""
        at = self.clock()
        async with self.database.transaction() as connection:
            known = await job_state.failing(connection)
            for name, health in self.health().items():
                if name in known and health.has_worked(at, since_at=known[name]):
                    await job_state.forget_failing(connection, name)
                    del known[name]
                if health.is_failing(at) and name not in known:
                    await job_state.record_failing(connection, name, since_at=health.since_at)
                    alert = message.of_failing_job(name, health.reason, since_at=health.since_at, raised_at=at)
                    await self.alerting.raise_alert(connection, alert)
                    _log.error("job.keeps_failing", job=name, reason=health.reason)
