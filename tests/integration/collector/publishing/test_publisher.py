"""What watchers of route tables are given: on a real database, by a real service, with tables put there by hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from isochrone_collector.auth.authenticator import Authenticator
from isochrone_collector.errors import Conflict, TooMany, UnknownName
from isochrone_collector.grpc_api.routes import RoutesService
from isochrone_collector.plans.service import Plans
from isochrone_collector.publishing.publisher import Publisher
from isochrone_collector.queries.context import QueryContext
from isochrone_collector.routing import canonical_form
from isochrone_collector.store import routes
from isochrone_collector.store.postgres.pool import Database
from isochrone_collector.store.routes import NewTable
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, SECOND_US, Slo
from isochrone_wire.routes import ChangeKind, Provenance, RouteState, RouteTable
from isochrone_wire.v1 import routes_pb2, routes_pb2_grpc

NOW_AT = 1_795_276_800_000_000
US, SG = "us", "sg"
COUNT = 40
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
    """A table as the builder leaves it, with nothing in it but perhaps a sentence."""
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
        document=canonical_form.dump(table),
        inputs=b"",
        before=b"",
        after=b"",
    )


class Stage:
    """A database with a plan, and publishers on it that tests refresh by hand."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.plans = Plans(database=database, clock=lambda: NOW_AT)

    def publisher(self, *, max_watchers: int = 10, heartbeat_us: int = 60 * SECOND_US) -> Publisher:
        """Another collector's publisher, which knows nothing yet."""
        return Publisher(
            database=self.database,
            plans=self.plans,
            clock=lambda: NOW_AT,
            max_watchers=max_watchers,
            heartbeat_us=heartbeat_us,
        )

    async def publish(self, *tables: NewTable) -> None:
        """Put tables into the database, as the leader does."""
        async with self.database.transaction() as connection:
            await routes.publish(connection, tables)

    async def generations(self) -> list[int]:
        """The numbers in the database."""
        async with self.database.connection() as connection:
            return [row.generation for row in await routes.after(connection, 0)]


@pytest.fixture
async def stage(database_url: str) -> AsyncIterator[Stage]:
    """A stage of the test's own."""
    database = Database(database_url)
    await database.open()
    stage = Stage(database)
    assert not (await stage.plans.apply(PLAN, dry_run=False, applied_by="a test")).problems
    yield stage
    await database.close()


async def seen(publisher: Publisher, region: str, *, after: int, count: int) -> list[int]:
    """The next generations that a watcher is given."""
    found: list[int] = []
    async with asyncio.timeout(10), aclosing(publisher.watch(region, "", after=after)) as tables:
        while len(found) < count:
            table = await anext(tables)
            found.extend([table.generation] if table else [])
    return found


async def test_everybody_begins_with_what_is_in_force(stage: Stage) -> None:
    """A watcher that saw nothing gets the newest table of each region, in order, and not what these replaced."""
    await stage.publish(a_table(1), a_table(2, SG), a_table(3), a_table(4, SG))
    publisher = stage.publisher()
    await publisher.refresh()
    assert await seen(publisher, "", after=0, count=2) == [3, 4]
    assert await seen(publisher, US, after=0, count=1) == [3]


async def test_what_the_database_told_first_is_not_told_again(stage: Stage) -> None:
    """A watcher that catches up from the database, which is ahead of its publisher by one table, gets it once."""
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
async def test_who_resumes_misses_nothing(stage: Stage, is_new: bool) -> None:  # noqa: FBT001  # a case
    """A watcher that names the last generation it saw gets every later one of its region, whoever it asks now."""
    publisher = stage.publisher()
    for number in range(1, 8):
        await stage.publish(a_table(number, US if number % 2 else SG))
        await publisher.refresh()
    asked = stage.publisher() if is_new else publisher
    await asked.refresh()
    assert await seen(asked, "", after=2, count=5) == [3, 4, 5, 6, 7]
    assert await seen(asked, US, after=1, count=3) == [3, 5, 7]


async def test_what_is_forgotten_here_comes_from_the_database(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher that is further behind than a collector remembers is given what it missed all the same."""
    monkeypatch.setattr("isochrone_collector.publishing.publisher._MAX_REMEMBERED", 2)
    publisher = stage.publisher()
    for number in range(1, 8):
        await stage.publish(a_table(number))
        await publisher.refresh()
    assert await seen(publisher, US, after=1, count=6) == [2, 3, 4, 5, 6, 7]


async def test_who_missed_too_much_gets_what_is_in_force(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher that was away for longer than can be told starts from the tables of now, without those it knows."""
    monkeypatch.setattr("isochrone_collector.publishing.publisher._MAX_REMEMBERED", 1)
    monkeypatch.setattr("isochrone_collector.store.routes.MAX_CATCH_UP", 3)
    publisher = stage.publisher()
    for number in range(1, 8):
        await stage.publish(a_table(number, SG if number == 2 else US))
        await publisher.refresh()
    assert await seen(publisher, "", after=2, count=1) == [7]


async def test_a_watcher_ahead_of_its_collector_waits(stage: Stage) -> None:
    """Who saw a table at another collector is not told it again by one that learns of it only now."""
    await stage.publish(a_table(1))
    behind = stage.publisher()
    await behind.refresh()
    await stage.publish(a_table(2))
    watching = asyncio.create_task(seen(behind, US, after=2, count=1))
    await asyncio.sleep(0.1)
    await stage.publish(a_table(3))
    await behind.refresh()
    assert await watching == [3]


async def test_quiet_regions_have_heartbeats(stage: Stage) -> None:
    """A watcher hears that it is still there, also while other regions have news that is not its own."""
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


async def test_two_leaders_cannot_give_one_number(stage: Stage) -> None:
    """Of two who publish the same generation the second is told, and nothing of its other tables is kept."""
    await stage.publish(a_table(1))
    with pytest.raises(Conflict, match="generation 1"):
        await stage.publish(a_table(1, SG), a_table(2, SG))
    assert await stage.generations() == [1]


async def test_old_tables_go_and_the_newest_stays(stage: Stage) -> None:
    """Evidence goes after its time and switches after theirs, but the newest table of a route stays for good."""
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


async def test_unknown_names_are_told_from_unbuilt_ones(stage: Stage) -> None:
    """A region that no table is of is refused with those that there are."""
    await stage.publish(a_table(1))
    publisher = stage.publisher()
    await publisher.refresh()
    with pytest.raises(UnknownName, match="unknown client region 'mars'; known: us"):
        publisher.tables("mars")


@asynccontextmanager
async def served(stage: Stage, publisher: Publisher) -> AsyncIterator[Any]:
    """The stub of a publisher's tables over a real connection; the asyncio one has no class at run time."""
    await publisher.refresh()
    server = grpc.aio.server()
    authenticator = Authenticator(database=stage.database, clock=lambda: NOW_AT, required=False)
    query_context = QueryContext(database=stage.database, plans=stage.plans, clock=lambda: NOW_AT)
    service = RoutesService(query_context=query_context, publisher=publisher, authenticator=authenticator)
    routes_pb2_grpc.add_RoutesServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel, asyncio.timeout(60):
            yield routes_pb2_grpc.RoutesStub(channel)
    finally:
        await server.stop(0)


async def until_watched_by(publisher: Publisher, count: int) -> None:
    """Return once so many watch."""
    while publisher.watchers != count:
        await asyncio.sleep(0.01)


async def test_too_many_are_refused_politely(stage: Stage) -> None:
    """Beyond the limit a watcher is told when to come again and nobody else is disturbed; a place that is free is given
    away.
    """
    publisher = stage.publisher(max_watchers=3)
    async with served(stage, publisher) as stub:
        idle = [stub.WatchTables(routes_pb2.WatchTablesRequest()) for _ in range(3)]
        reading = [asyncio.ensure_future(call.read()) for call in idle]
        await until_watched_by(publisher, 3)
        refused = stub.WatchTables(routes_pb2.WatchTablesRequest())
        with pytest.raises(grpc.aio.AioRpcError, match="limit of 3 open watches") as error:
            await refused.read()
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert ("grpc-retry-pushback-ms", "5000") in tuple(await refused.trailing_metadata())
        await stage.publish(a_table(1))
        await publisher.refresh()
        assert [(await one).table.generation for one in reading] == [1, 1, 1]
        idle[0].cancel()
        await until_watched_by(publisher, 2)
        assert (await stub.WatchTables(routes_pb2.WatchTablesRequest()).read()).table.generation == 1


async def test_a_stop_is_told_to_watchers(stage: Stage) -> None:
    """A collector that stops ends its watchers with UNAVAILABLE, which they take as a reason to come again."""
    publisher = stage.publisher()
    async with served(stage, publisher) as stub:
        call = stub.WatchTables(routes_pb2.WatchTablesRequest())
        reading = asyncio.ensure_future(call.read())
        await until_watched_by(publisher, 1)
        publisher.close()
        with pytest.raises(grpc.aio.AioRpcError, match="this collector stops") as ended:
            await reading
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


async def read_on(call: Any, found: list[int]) -> None:
    """Read until that is refused."""
    while True:
        found.append((await call.read()).table.generation)


async def test_who_does_not_read_is_dropped_and_resumes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher that reads nothing for a while is let go, and when it comes again it gets everything it missed."""
    monkeypatch.setattr("isochrone_collector.grpc_api.routes._SEND_US", SECOND_US)
    publisher = stage.publisher()
    async with served(stage, publisher) as stub:
        slow = stub.WatchTables(routes_pb2.WatchTablesRequest())
        reading = asyncio.ensure_future(slow.read())
        await until_watched_by(publisher, 1)
        await stage.publish(*(a_table(number, sentence="x" * 500_000) for number in range(1, COUNT + 1)))
        await publisher.refresh()
        found = [(await reading).table.generation]
        await until_watched_by(publisher, 0)
        with pytest.raises(grpc.aio.AioRpcError, match="this stream was not read") as dropped:
            await read_on(slow, found)
        assert dropped.value.code() is grpc.StatusCode.UNAVAILABLE
        again = stub.WatchTables(routes_pb2.WatchTablesRequest(after_generation=found[-1]))
        rest = [(await again.read()).table.generation for _ in range(found[-1], COUNT)]
        assert found + rest == list(range(1, COUNT + 1))
        assert rest


async def test_a_limit_is_the_publishers_own(stage: Stage) -> None:
    """Whoever watches in the same process is counted too."""
    publisher = stage.publisher(max_watchers=1)
    first = publisher.watch("", "", after=0)
    waiting = asyncio.ensure_future(anext(first))
    await asyncio.sleep(0)
    with pytest.raises(TooMany):
        await anext(publisher.watch("", "", after=0))
    publisher.close()
    with pytest.raises(StopAsyncIteration):
        await waiting
    assert publisher.watchers == 0
