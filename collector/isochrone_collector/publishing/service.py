"""From stored samples to whoever watches: the builder, the publisher and the bell between them, put together."""

import asyncio
from collections.abc import Callable

from isochrone_collector.jobs.registry import Job
from isochrone_collector.plans.service import Plans
from isochrone_collector.publishing import builder
from isochrone_collector.publishing.builder import RouteBuilder
from isochrone_collector.publishing.notifications import Bell
from isochrone_collector.publishing.publisher import Publisher
from isochrone_collector.store.notifications import Channel
from isochrone_collector.store.postgres.pool import Database
from isochrone_wire import __version__


class Publishing:
    """Builds tables while this collector leads, and knows those that are in force in any case: see `publisher`."""

    def __init__(
        self, *, database: Database, plans: Plans, is_leader: Callable[[], bool], clock: Callable[[], int]
    ) -> None:
        self.publisher = Publisher(database=database, plans=plans, clock=clock)
        self._is_leader = is_leader
        self._plans = plans
        self._builder = RouteBuilder(
            database=database, plans=plans, clock=clock, code_version=__version__, changed=self.publisher.look
        )
        answers = {Channel.SAMPLES: self._builder.wake, Channel.TABLES: self.publisher.look}
        self._bell = Bell(database=database, on=answers)

    def leader_jobs(self) -> list[Job]:
        """Return the jobs that the leader does: building tables until it is cancelled, and deleting old ones."""
        return [
            Job(name="routes", every_us=builder.RETRY_US, work=self._builder.build),
            Job(name="old route tables", every_us=builder.DELETE_OLD_EVERY_US, work=self._builder.delete_old),
        ]

    def stored(self) -> None:
        """Samples were committed here: whoever leads should look at them."""
        if self._is_leader():
            self._builder.wake()
        else:
            self._bell.ring()

    async def follow_plan(self) -> None:
        """Look at what is in force, and act on it when that has changed. Raises `DatabaseUnavailable`."""
        before = self._plans.version
        await self._plans.refresh()
        if self._plans.version != before:
            self._builder.wake()

    async def run(self) -> None:
        """Follow the tables; ends only by being cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.publisher.run())
            group.create_task(self._bell.run())
