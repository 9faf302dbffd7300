"""Borrow a collector in this process: pushes need no socket, jobs run by hand, the clock is the test's."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from isochrone_collector.ingest.raw_push import RawPush
from isochrone_collector.ingest.service import Ingest
from isochrone_collector.jobs.alert_delivery import AlertDelivery
from isochrone_collector.jobs.fleet_watch import FleetWatch
from isochrone_collector.jobs.incident_detection import IncidentDetection
from isochrone_collector.jobs.rollup import Rollup
from isochrone_collector.plans.service import Plans
from isochrone_collector.store import partitions, summaries
from isochrone_collector.store.postgres.pool import Database
from isochrone_collector.store.probe_queries import Scope
from isochrone_collector.store.summaries import Distributions
from isochrone_wire import codec
from isochrone_wire.answers import Metric, Window
from isochrone_wire.model import Batch, Outcome, Sample, Vantage
from isochrone_wire.operations import Receipt

PLAN = "baseline: us\ntargets: [{model: a, provider: sim, base_url: http://h}]\n"
DAY_AT = 1_795_219_200_000_000


@dataclass(slots=True)
class Clock:
    """A wall clock that stands where it is put."""

    at: int

    def __call__(self) -> int:
        """The instant it shows."""
        return self.at


class InProcessCollector:
    """A collector without sockets: tests push to it, run its jobs and set its clock."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = Clock(DAY_AT)
        self.plans = Plans(database=database, clock=self.clock)
        window = Window(from_at=0, until_at=0)
        self.ingest = Ingest(database=database, plans=self.plans, window=window, clock=self.clock)
        self.rollup = Rollup(database=database, clock=self.clock)
        self.alerting = AlertDelivery(database=database, clock=self.clock)
        self._seq = 0

    async def begin(self, at: int, *, keep_us: int | None = None) -> None:
        """Be at an instant, with partitions and a plan."""
        await self.turn_to(at, keep_us=keep_us)
        change = await self.plans.apply(PLAN, dry_run=False, applied_by="a test")
        assert change.problems == ()

    def fleet_watch(self) -> FleetWatch:
        """The watch over its vantages, as a leader begins it."""
        return FleetWatch(database=self.database, plans=self.plans, alerting=self.alerting, clock=self.clock)

    def incident_detection(self) -> IncidentDetection:
        """The detection of incidents, as a leader begins it."""
        return IncidentDetection(
            database=self.database,
            plans=self.plans,
            alerting=self.alerting,
            fleet=self.fleet_watch(),
            clock=self.clock,
            recent=self.ingest.recent,
        )

    @property
    def target_id(self) -> int:
        """The target of the plan."""
        (found,) = self.plans.known_targets
        return found

    async def turn_to(self, at: int, *, keep_us: int | None = None) -> None:
        """Be at another instant, with the partitions it needs."""
        self.clock.at = at
        self.ingest.window = await partitions.ensure(self.database, now_at=at, keep_us=keep_us)

    async def push(self, vantage: Vantage, samples: Iterable[Sample] = (), **more: Any) -> Receipt:
        """One batch, received now; the next of epoch 1 unless `more` says otherwise."""
        self._seq += 1
        told: dict[str, Any] = {"epoch": 1, "seq": self._seq, "samples": tuple(samples)} | more
        batch = Batch(vantage=vantage, **told)
        receipt = await self.ingest.push(RawPush(codec.encode(batch).SerializeToString()), self.clock.at)
        assert receipt.rejections == ()
        return receipt

    async def push_elsewhere(self, vantage: Vantage, samples: Iterable[Sample], **more: Any) -> Receipt:
        """Push a batch to another collector on the same database."""
        own, window = self.ingest, self.ingest.window
        self.ingest = Ingest(database=self.database, plans=self.plans, window=window, clock=self.clock)
        try:
            return await self.push(vantage, samples, **more)
        finally:
            self.ingest = own

    def sample(self, round_at: int, ttft_us: int | None = 400_000, **change: object) -> Sample:
        """A good one, unless `change` says otherwise."""
        good = Sample(
            target_id=self.target_id, round_at=round_at, outcome=Outcome.OK, dispatched_at=round_at, ttft_us=ttft_us
        )
        return replace(good, **change)  # type: ignore[arg-type]  # the cases choose the fields

    async def ttft(self, window: Window) -> Distributions | None:
        """The distributions of TTFT over a window."""
        async with self.database.connection() as connection:
            return await summaries.distributions(connection, self.scope(window), Metric.TTFT)

    def scope(self, window: Window) -> Scope:
        """Everything of a window."""
        return Scope(window=window, target_ids=tuple(self.plans.known_targets))

    async def count(self, window: Window, region: str = "us") -> int:
        """How many values of TTFT the summaries of a window have from one region."""
        found = await self.ttft(window)
        if found is None or (self.target_id, region) not in found.series:
            return 0
        return found.histograms.group(found.series.index((self.target_id, region))).n


@pytest.fixture
async def local(database_url: str) -> AsyncIterator[InProcessCollector]:
    """A collector on a database of its own."""
    async with in_process_collector(database_url) as collector:
        yield collector


@asynccontextmanager
async def in_process_collector(database_url: str) -> AsyncIterator[InProcessCollector]:
    """A collector on a database, for the block."""
    database = Database(database_url)
    await database.open()
    try:
        yield InProcessCollector(database)
    finally:
        await database.close()
