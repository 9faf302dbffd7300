"""Publishing of route tables: the builder and the publisher, woken by notifications between collectors. Both also read
the database every second or two.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from isochrone_collector.jobs.registry import Job, Notifications
from isochrone_collector.plans.service import Plans
from isochrone_collector.publishing import builder
from isochrone_collector.publishing.builder import RouteBuilder
from isochrone_collector.publishing.changes import Changes, Topic
from isochrone_collector.publishing.publisher import Publisher
from isochrone_collector.store import vantages
from isochrone_collector.store.batches import RecentBatches
from isochrone_collector.store.job_state import Channel
from isochrone_collector.store.postgres.pool import Database
from isochrone_wire import __version__


@dataclass(eq=False, kw_only=True)
class Publishing:
    """The route tables of one collector, built while it leads; `changes` has notices of all new data."""

    database: Database
    plans: Plans
    notifications: Notifications
    is_leader: Callable[[], bool]
    clock: Callable[[], int]
    is_paused: Callable[[], bool] = lambda: False
    recent: RecentBatches = field(default_factory=RecentBatches)

    def __post_init__(self) -> None:
        self.changes = Changes(
            clock=self.clock, state=lambda: (self.publisher.generation, self.publisher.stale_since_at)
        )
        self.publisher = Publisher(
            database=self.database,
            plans=self.plans,
            clock=self.clock,
            on_published=partial(self.changes.add, Topic.TABLES),
        )
        self._samples_at: int | None = None
        self._builder = RouteBuilder(
            database=self.database.patient(),
            plans=self.plans,
            clock=self.clock,
            code_version=__version__,
            on_published=self.publisher.add,
            is_paused=self.is_paused,
            recent=self.recent,
        )
        self.notifications.handle(Channel.SAMPLES, self._builder.wake)
        self.notifications.handle(Channel.SAMPLES, partial(self.changes.add, Topic.SAMPLES))
        self.notifications.handle(Channel.TABLES, self.publisher.wake)
        self.notifications.handle(Channel.ALERTS, partial(self.changes.add, Topic.ALERTS))

    def leader_jobs(self) -> list[Job]:
        """Return the jobs of the leader: building tables until it is cancelled, and deleting old ones."""
        return [
            Job(name="routes", every_us=builder.RETRY_US, work=self._builder.build),
            Job(name="old route tables", every_us=builder.DELETE_OLD_EVERY_US, work=self._builder.delete_old),
        ]

    def stored(self, waiting: int) -> None:
        """Wake the builder and open pages: samples were committed, and others are still `waiting`."""
        self.changes.add(Topic.SAMPLES)
        if self.is_leader():
            self._builder.wake(more_follow=waiting > 0)
        else:
            self.notifications.notify_samples()

    async def follow_plan(self) -> None:
        """Refresh the plan, and wake the builder if another one is in force. Raises `DatabaseUnavailable`."""
        before = self.plans.content_hash
        await self.plans.refresh()
        if self.plans.content_hash != before:
            self._builder.wake()
            self.changes.add(Topic.PLAN)

    async def follow_leader(self) -> None:
        """Note samples that the leader committed, which sends no notification of them. Raises `DatabaseUnavailable`."""
        if self.is_leader() or not self.changes.watchers:
            return
        async with self.database.connection() as connection:
            samples_at = (await vantages.newest_receipts(connection)).samples_at
        if samples_at != self._samples_at:
            self._samples_at = samples_at
            self.changes.add(Topic.SAMPLES)

    def close(self) -> None:
        """End every watch: this collector stops."""
        self.publisher.close()
        self.changes.close()
