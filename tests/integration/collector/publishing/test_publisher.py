"""Watches of route tables: a real database and service, with tables that the test inserts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest

from isochrone_collector.errors import Conflict, ResourceExhausted
from isochrone_collector.plans.service import Plans
from isochrone_collector.publishing.publisher import Publisher
from isochrone_collector.routing import serialization
from isochrone_collector.store import routes
from isochrone_collector.store.postgres.pool import Database
from isochrone_collector.store.routes import NewTable
from isochrone_collector.xds.snapshots import Snapshots
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, SECOND_US, Slo
from isochrone_wire.routes import ChangeKind, Provenance, RouteState, RouteTable

NOW_AT = 1_795_276_800_000_000
US, SG = "us", "sg"
COUNT = 40
# Otherwise a client whose connection is quick takes megabytes that nobody reads.
FIXED_WINDOW = (("grpc.http2.bdp_probe", 0),)
PLAN = """
baseline: us
targets:
  - {provider: a, model: m, base_url: http://a}
  - {provider: b, model: m, base_url: http://b}
routes:
  - {name: chat, members: [a/m, b/m]}
"""


def a_table(
    generation: int,
    region: str = US,
    *,
    change: ChangeKind = ChangeKind.EVIDENCE,
    at: int = NOW_AT,
    sentence: str = "",
) -> NewTable:
    table = RouteTable(
        generation=generation,
        etag=f"g{generation}",
        client_region=region,
        route="chat",
        built_at=at,
        fresh_until_at=at,
        stale_until_at=at,
        state=RouteState.OK,
        slo=Slo(),
        window=Window(from_at=0, until_at=at),
        provenance=Provenance(plan_version=1, code_version="0", inputs_sha256=""),
        change=change,
        sentence=sentence,
    )
    return NewTable(
        generation=generation,
        client_region=region,
        route="chat",
        built_at=at,
        change=change.value,
        sentence="",
        document=serialization.dump(table),
        inputs=b"",
        before=b"",
        after=b"",
    )


class Stage:
    """A database with a plan, and publishers that tests refresh."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.plans = Plans(database=database, clock=lambda: NOW_AT)

    def publisher(self, *, max_watchers: int = 10, heartbeat_us: int = 60 * SECOND_US) -> Publisher:
        return Publisher(
            database=self.database,
            plans=self.plans,
            clock=lambda: NOW_AT,
            max_watchers=max_watchers,
            heartbeat_us=heartbeat_us,
        )

    async def publish(self, *tables: NewTable) -> None:
        async with self.database.transaction() as connection:
            await routes.publish(connection, tables)

    async def generations(self) -> list[int]:
        async with self.database.connection() as connection:
            return [row.generation for row in await routes.after(connection, 0)]


@pytest.fixture
async def stage(database: Database) -> Stage:
    """A stage of the test's own."""
    stage = Stage(database)
    assert not (await stage.plans.apply(PLAN, dry_run=False, applied_by="a test")).problems
    return stage


async def seen(publisher: Publisher, region: str, *, after: int, count: int) -> list[int]:
    """Return the next generations that a watcher gets."""
    found: list[int] = []
    async with asyncio.timeout(10), aclosing(publisher.watch(region, "", after=after)) as tables:
        while len(found) < count:
            table = await anext(tables)
            found.extend([table.generation] if table else [])
    return found


async def test_a_new_watcher_gets_the_tables_in_force(stage: Stage) -> None:
    """A new watcher gets the newest table of each region, in order, and none of the replaced ones."""
    await stage.publish(a_table(1), a_table(2, SG), a_table(3), a_table(4, SG))
    publisher = stage.publisher()
    await publisher.refresh()
    assert await seen(publisher, "", after=0, count=2) == [3, 4]
    assert await seen(publisher, US, after=0, count=1) == [3]


async def test_tables_from_the_database_are_not_repeated(stage: Stage) -> None:
    """A watcher that catches up from a database ahead of its publisher gets each table once."""
    await stage.publish(*(a_table(number) for number in range(1, 700)))
    publisher = stage.publisher()
    await publisher.refresh()
    await stage.publish(a_table(700))
    found: list[int] = []

    async def listen() -> None:
        async with aclosing(publisher.watch(US, "", after=100)) as tables:
            async for table in tables:
                found.extend([table.generation] if table else [])

    listening = asyncio.create_task(listen())
    async with asyncio.timeout(20):
        while len(found) < 600:
            await asyncio.sleep(0.01)
    await publisher.refresh()
    await stage.publish(a_table(701))
    await publisher.refresh()
    async with asyncio.timeout(20):
        while found[-1] != 701:
            await asyncio.sleep(0.01)
    listening.cancel()
    assert found == list(range(101, 702))


@pytest.mark.parametrize("is_new", [False, True], ids=["one that saw them come", "one that was started since"])
async def test_a_resumed_watch_misses_nothing(stage: Stage, is_new: bool) -> None:  # noqa: FBT001  # a case
    """A watcher that resumes after a generation gets every later one of its region, from any collector."""
    publisher = stage.publisher()
    for number in range(1, 8):
        await stage.publish(a_table(number, US if number % 2 else SG))
        await publisher.refresh()
    asked = stage.publisher() if is_new else publisher
    await asked.refresh()
    assert await seen(asked, "", after=2, count=5) == [3, 4, 5, 6, 7]
    assert await seen(asked, US, after=1, count=3) == [3, 5, 7]


async def test_tables_not_in_memory_come_from_the_database(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher that is further behind than the collector's memory gets the missed tables from the database."""
    monkeypatch.setattr("isochrone_collector.publishing.publisher._MAX_REMEMBERED", 2)
    publisher = stage.publisher()
    for number in range(1, 8):
        await stage.publish(a_table(number))
        await publisher.refresh()
    assert await seen(publisher, US, after=1, count=6) == [2, 3, 4, 5, 6, 7]


async def test_a_watcher_that_missed_too_many_tables(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher that missed too many tables gets the tables in force, without those it knows."""
    monkeypatch.setattr("isochrone_collector.publishing.publisher._MAX_REMEMBERED", 1)
    monkeypatch.setattr("isochrone_collector.store.routes.MAX_CATCH_UP", 3)
    publisher = stage.publisher()
    for number in range(1, 8):
        await stage.publish(a_table(number, SG if number == 2 else US))
        await publisher.refresh()
    assert await seen(publisher, "", after=2, count=1) == [7]


async def test_a_watcher_ahead_of_its_collector_waits(stage: Stage) -> None:
    """A watcher that got a table from another collector does not get it again from one that is behind."""
    await stage.publish(a_table(1))
    behind = stage.publisher()
    await behind.refresh()
    await stage.publish(a_table(2))
    watching = asyncio.create_task(seen(behind, US, after=2, count=1))
    await asyncio.sleep(0.1)
    await stage.publish(a_table(3))
    await behind.refresh()
    assert await watching == [3]


@dataclass(slots=True)
class SetBack:
    """A publisher that knows tables 1 to 9, with a watcher; then a restored database has 1 to 3 of them."""

    stage: Stage
    publisher: Publisher
    seen: list[int]

    def in_force(self) -> dict[str, int]:
        return {table.client_region: table.generation for table in self.publisher.in_force()}

    async def has_seen(self, *generations: int) -> None:
        async with asyncio.timeout(10):
            while self.seen != [*generations]:
                await asyncio.sleep(0.01)


@pytest.fixture
async def set_back(stage: Stage) -> AsyncIterator[SetBack]:
    publisher, found = stage.publisher(), list[int]()
    for generation in range(1, 10):
        await stage.publish(a_table(generation, (US, SG)[generation % 2], at=NOW_AT + generation * SECOND_US))
    await publisher.refresh()

    async def watch() -> None:
        async with aclosing(publisher.watch(US, "", after=publisher.generation)) as tables:
            async for table in tables:
                found.extend([table.generation] if table else [])

    watching = asyncio.create_task(watch())
    while not publisher.watchers:
        await asyncio.sleep(0.01)
    async with stage.database.connection() as connection:
        await connection.execute("DELETE FROM route_table WHERE generation > 3")
    yield SetBack(stage, publisher, found)
    publisher.close()
    await watching


async def test_watchers_follow_a_database_that_was_set_back(set_back: SetBack) -> None:
    """Tables with lower numbers reach open watches, new ones and polls; until then the tables known stay in force."""
    publisher = set_back.publisher
    await publisher.refresh()
    assert (publisher.generation, set_back.in_force()) == (3, {US: 8, SG: 9})
    assert publisher.tables(US).generation == 3
    await set_back.has_seen(8)
    for generation in (4, 5):
        await set_back.stage.publish(a_table(generation, at=NOW_AT + (20 + generation) * SECOND_US))
        await publisher.refresh()
        assert set_back.in_force() == {US: generation, SG: 9}
    await set_back.has_seen(8, 4, 5)
    # A client that knows a number of before asks for what comes after it.
    assert await seen(publisher, US, after=9, count=1) == [5]
    assert publisher.tables(US).generation == 5


async def test_numbers_that_were_used_before_are_no_sign(set_back: SetBack) -> None:
    """New tables count even if their numbers have passed the old ones before this collector looked again."""
    for generation in range(4, 12):
        await set_back.stage.publish(a_table(generation, at=NOW_AT + (20 + generation) * SECOND_US))
    await set_back.publisher.refresh()
    assert (set_back.publisher.generation, set_back.in_force()) == (11, {US: 11, SG: 9})
    await set_back.has_seen(11)


async def test_envoys_follow_numbers_that_are_used_again(set_back: SetBack) -> None:
    """The tables of a snapshot are those of the restored database, even under the generation of the last snapshot."""
    publisher = set_back.publisher
    snapshots = Snapshots(publisher=publisher, plans=set_back.stage.plans, clock=lambda: NOW_AT)
    assert (publisher.generation, [table.generation for table in snapshots._tables(US)]) == (9, [8])
    for generation in range(4, 10):
        await set_back.stage.publish(a_table(generation, at=NOW_AT + (20 + generation) * SECOND_US))
    await publisher.refresh()
    assert (publisher.generation, [table.generation for table in snapshots._tables(US)]) == (9, [9])


async def test_a_set_back_is_logged_once(set_back: SetBack, capsys: pytest.CaptureFixture[str]) -> None:
    """The reason for the lower number is in the log."""
    for _ in range(3):
        await set_back.publisher.refresh()
    assert capsys.readouterr().out.count("routes.set_back") == 1


async def test_quiet_regions_have_heartbeats(stage: Stage) -> None:
    """A watcher gets heartbeats, even while other regions have new tables."""
    await stage.publish(a_table(1), a_table(2, SG))
    publisher = stage.publisher(heartbeat_us=SECOND_US // 10)
    await publisher.refresh()
    async with asyncio.timeout(10), aclosing(publisher.watch(US, "", after=2)) as tables:
        waiting = asyncio.ensure_future(anext(tables))
        for number in range(3, 9):
            await stage.publish(a_table(number, SG))
            await publisher.refresh()
            await asyncio.sleep(0.03)
        assert await waiting is None


def handed_over(*tables: NewTable) -> list[RouteTable]:
    return [serialization.load(RouteTable, table.document) for table in tables]


async def test_tables_of_the_same_collector_are_not_read_back(stage: Stage) -> None:
    """Tables that this collector committed reach watchers once, without the database, after those it lacks."""
    await stage.publish(a_table(1))
    publisher = stage.publisher()
    await publisher.refresh()
    publisher.add(handed_over(a_table(2), a_table(3)))
    assert await seen(publisher, US, after=1, count=2) == [2, 3]
    await stage.publish(*(a_table(number) for number in range(2, 7)))
    publisher.add(handed_over(a_table(5), a_table(6)))
    assert publisher.generation == 3
    running = asyncio.create_task(publisher.run())
    assert await seen(publisher, US, after=1, count=5) == [2, 3, 4, 5, 6]
    running.cancel()


async def test_a_table_wakes_the_watchers_of_its_region_only(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others would look for nothing, thousands of them for each table."""
    await stage.publish(a_table(1), a_table(2, SG))
    publisher = stage.publisher()
    await publisher.refresh()
    since, wait, looking, waiting = publisher._since, publisher._wait_for_table, list[str](), list[str]()

    async def recorded(region: str, *more: Any) -> Any:
        looking.append(region)
        return await since(region, *more)

    async def counted(region: str, *more: Any, **named: Any) -> None:
        waiting.append(region)
        await wait(region, *more, **named)

    monkeypatch.setattr(publisher, "_wait_for_table", counted)
    watching = {region: asyncio.create_task(seen(publisher, region, after=2, count=1)) for region in (US, SG, "")}
    while len(waiting) < len(watching):
        await asyncio.sleep(0.01)
    monkeypatch.setattr(publisher, "_since", recorded)
    publisher.add(handed_over(a_table(3)))
    assert await watching[US] == await watching[""] == [3]
    assert sorted(looking) == ["", US]
    publisher.add(handed_over(a_table(4, SG)))
    assert await watching[SG] == [4]


async def test_two_leaders_cannot_publish_one_generation(stage: Stage) -> None:
    """The second of two leaders that publish the same generation gets an error, and none of its tables is stored."""
    await stage.publish(a_table(1))
    with pytest.raises(Conflict, match="generation 1"):
        await stage.publish(a_table(1, SG), a_table(2, SG))
    assert await stage.generations() == [1]


async def test_old_tables_go_and_the_newest_stays(stage: Stage) -> None:
    """Refreshes and switches are deleted after their periods, but never the newest table of a route."""
    old_at, ancient_at = NOW_AT - 2 * DAY_US, NOW_AT - 100 * DAY_US
    await stage.publish(
        a_table(1, at=ancient_at, change=ChangeKind.HARD),
        a_table(2, at=old_at, change=ChangeKind.HARD),
        a_table(3, at=old_at),
        a_table(4, at=NOW_AT),
        a_table(5, SG, at=ancient_at),
    )
    async with stage.database.connection() as connection:
        await routes.delete_old(connection, evidence_before=NOW_AT - DAY_US, events_before=NOW_AT - 90 * DAY_US)
    assert await stage.generations() == [2, 4, 5]


async def test_a_limit_is_the_publishers_own(stage: Stage) -> None:
    """Watches in the same process count towards the limit."""
    publisher = stage.publisher(max_watchers=1)
    first = publisher.watch("", "", after=0)
    waiting = asyncio.ensure_future(anext(first))
    await asyncio.sleep(0)
    with pytest.raises(ResourceExhausted):
        await anext(publisher.watch("", "", after=0))
    publisher.close()
    with pytest.raises(StopAsyncIteration):
        await waiting
    assert publisher.watchers == 0
