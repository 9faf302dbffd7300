"""Leader election: one of the collectors on a database does the work that is done once for all of them.

The laws:

1. The collector that holds the advisory lock leads. Every other collector asks for the lock once a second, so that one
   of them takes over within seconds of the leader's end.
2. The lock lives with one connection. When that connection is lost, so is leadership, and the leader's work is
   cancelled. Two leaders are possible for a moment, because the server may release the lock before the collector
   notices: the work must tolerate being done twice.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress

import structlog

from isochrone_collector.errors import CollectorError, DatabaseUnavailable
from isochrone_collector.store import job_state
from isochrone_collector.store.postgres.pool import Connection, Database

_log = structlog.get_logger()

_RETRY_S = 1.0
_CONFIRM_S = 1.0
_CONFIRM_WITHIN_S = 10.0


class LeaderElection:
    """The election among the collectors on one database."""

    def __init__(self, *, database: Database) -> None:
        self._database = database
        self._leads = False

    @property
    def is_leader(self) -> bool:
        """True while this collector leads, as far as it knows."""
        return self._leads

    async def run(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run `work` whenever this collector leads; ends only by being cancelled."""
        while True:
            with suppress(CollectorError):
                await self._campaign(work)
            await asyncio.sleep(_RETRY_S)

    async def _campaign(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        async with self._database.session() as connection:
            while not await job_state.take_leader_lock(connection):
                await asyncio.sleep(_RETRY_S)
            await self._lead(connection, work)

    async def _lead(self, connection: Connection, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self._leads = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(work())
                await _keep_confirming(connection)
        except* DatabaseUnavailable as lost:
            _log.warning("leadership.lost", reason=str(lost.exceptions[0]))
        finally:
            self._leads = False


async def _keep_confirming(connection: Connection) -> None:
    """Confirm leadership every second; raise `DatabaseUnavailable` once the connection with the lock is lost."""
    connection.answer_within_s = _CONFIRM_WITHIN_S
    while True:
        await job_state.confirm_primary(connection)
        await asyncio.sleep(_CONFIRM_S)
