"""Registry of periodic jobs, and the loop that runs them.

Jobs run beside each other, and none runs beside itself. A job that fails is logged as `job.failed` and runs again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from isochrone_collector.errors import CollectorError
from isochrone_collector.jobs.job_health import JobHealth
from isochrone_collector.jobs.leader import LeaderElection
from isochrone_collector.store.postgres.pool import Database
from isochrone_wire.model import SECOND_US

_log = structlog.get_logger()

_MIN_PAUSE_US = SECOND_US // 100


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
