"""Alerts of published tables: raised once, also after a change of the leader."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from isochrone_collector.alerting.service import AlertService
from isochrone_collector.alerts.incidents import Scope, TargetIncident
from isochrone_collector.jobs.watches import RouteWatch
from isochrone_collector.routing import serialization
from isochrone_collector.store import alerts, incidents
from isochrone_collector.store import routes as tables
from isochrone_collector.store.incidents import FailureSummary
from isochrone_collector.store.postgres.pool import Database
from isochrone_collector.store.routes import NewTable
from isochrone_wire.answers import Window
from isochrone_wire.insights import AlertKind, Eligible
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US
from isochrone_wire.routes import ChangeKind
from testdata.routes import CHAT, NOW_AT

FIRST = CHAT.entries[0]


@dataclass(slots=True)
class Stage:
    """A database with tables that the test publishes, and the watch over them."""

    database: Database
    at: int = NOW_AT
    generation: int = 0

    def now_at(self) -> int:
        """Return the instant of the test."""
        return self.at

    def watch(self) -> RouteWatch:
        """Return the watch of a new leader."""
        alerting = AlertService(database=self.database, clock=self.now_at)
        return RouteWatch(database=self.database, alerting=alerting, clock=self.now_at)

    async def publish(self, eligible: Eligible, change: ChangeKind = ChangeKind.EVIDENCE) -> None:
        """Publish a table of one member with this verdict, five minutes after the previous one."""
        self.at += 5 * MINUTE_US
        self.generation += 1
        table = replace(
            CHAT,
            generation=self.generation,
            built_at=self.at,
            window=Window(from_at=self.at - 60 * MINUTE_US, until_at=self.at),
            entries=(replace(FIRST, slo_eligible=eligible),),
            change=change,
        )
        row = NewTable(
            generation=table.generation,
            client_region=table.client_region,
            route=table.route,
            built_at=table.built_at,
            change=change.value,
            sentence=table.sentence,
            document=serialization.dump(table),
            inputs=b"",
            before=b"",
            after=b"",
        )
        async with self.database.transaction() as connection:
            await tables.publish(connection, [row])
        self.at += SECOND_US

    async def kinds(self) -> list[str]:
        """Return the kinds of the alerts, oldest first."""
        window = Window(from_at=NOW_AT - DAY_US, until_at=NOW_AT + DAY_US)
        async with self.database.connection() as connection:
            return [alert.kind.value for alert in reversed(await alerts.of_window(connection, window))]


@pytest.fixture
async def stage(database_url: str) -> AsyncIterator[Stage]:
    """A stage on a database of its own."""
    database = Database(database_url)
    await database.open()
    yield Stage(database)
    await database.close()


async def test_each_change_is_raised_once(stage: Stage) -> None:
    """Tables of the past raise nothing; a breach, a switch and the end of the breach do once, whichever leader runs."""
    await stage.publish(Eligible.NO, ChangeKind.HARD)
    watch = stage.watch()
    await watch.run()
    assert await stage.kinds() == []
    for eligible, change in (
        (Eligible.NO, ChangeKind.EVIDENCE),
        (Eligible.NO, ChangeKind.SOFT),
        (Eligible.MAYBE, ChangeKind.RAMP),
        (Eligible.NO, ChangeKind.FREEZE),
    ):
        await stage.publish(eligible, change)
        await watch.run()
        await watch.run()
        await stage.watch().run()
    await stage.publish(Eligible.YES)
    await stage.watch().run()
    await watch.run()
    assert await stage.kinds() == ["slo_breached", "route_switched", "route_frozen", "slo_restored"]


async def test_tables_between_two_leaders_are_not_missed(stage: Stage) -> None:
    """A new leader raises the alerts of tables that were published after the last run of the previous one."""
    await stage.publish(Eligible.YES)
    first = stage.watch()
    await first.run()
    await stage.publish(Eligible.YES)
    await first.run()
    await stage.publish(Eligible.YES, ChangeKind.HARD)
    await stage.watch().run()
    assert await stage.kinds() == ["route_switched"]


async def test_an_incident_explains_a_breach(stage: Stage) -> None:
    """While the table's window has an incident of the target, its breach has no alert; later it has."""
    watch = stage.watch()
    await watch.run()
    incident = TargetIncident(
        kind=AlertKind.TARGET_FAILING,
        target_id=1,
        failing=frozenset(),
        regions=frozenset({CHAT.client_region}),
        scope=Scope.ONE,
        first_failed_at=NOW_AT,
        last_failed_at=NOW_AT + MINUTE_US,
        opened_at=NOW_AT + MINUTE_US,
    )
    failures = FailureSummary(classes={}, samples=(), example="")
    async with stage.database.connection() as connection:
        assert await incidents.record(connection, incident, FIRST.target, failures)
        ended = replace(incident, recovered_at=NOW_AT + 10 * MINUTE_US)
        assert await incidents.record(connection, ended, FIRST.target, failures)
        assert not await incidents.record(connection, ended, FIRST.target, failures)
    for _ in range(13):
        await stage.publish(Eligible.NO)
        await watch.run()
    assert await stage.kinds() == []
    stage.at += 10 * MINUTE_US
    await stage.publish(Eligible.NO)
    await watch.run()
    assert await stage.kinds() == ["slo_breached"]
