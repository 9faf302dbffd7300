"""Health of the leader's jobs: a job that keeps failing is recorded in the database, and raises an alert.

A job keeps failing if it has failed three times in a row and for five minutes. It works again after a run without an
error, or while a run lasts longer than five minutes, because some jobs run without end. Instants are microseconds since
the epoch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from isochrone_collector.alerts import message
from isochrone_collector.jobs.alert_delivery import AlertDelivery
from isochrone_collector.store import job_state
from isochrone_collector.store.postgres.pool import Database
from isochrone_wire.model import MINUTE_US, SECOND_US

CHECK_EVERY_US = 30 * SECOND_US
_FAILURES = 3
_PATIENCE_US = 5 * MINUTE_US

_log = structlog.get_logger()


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
        """Return whether the job is known to work."""
        return self._runs_well(at) or (self.succeeded_at is not None and not self.failures)

    def _runs_well(self, at: int) -> bool:
        return self.began_at is not None and at - self.began_at >= _PATIENCE_US


class JobHealthCheck:
    """Check of the jobs of one collector, while it leads."""

    def __init__(
        self,
        *,
        database: Database,
        health: Callable[[], Mapping[str, JobHealth]],
        alerting: AlertDelivery,
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
