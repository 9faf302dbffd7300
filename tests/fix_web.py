"""Fixtures for the HTTP interface: a real server on loopback, on a real publisher, with the tables of the test."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import httpx
import pytest
import pytest_asyncio

from fix_inprocess_collector import InProcessCollector, in_process_collector
from isochrone_collector.auth.authenticator import Authenticator
from isochrone_collector.http_api.app import Sources, create_app
from isochrone_collector.http_api.listener import listening
from isochrone_collector.publishing.changes import Changes
from isochrone_collector.publishing.publisher import HEARTBEAT_US, MAX_WATCHERS, Publisher
from isochrone_collector.queries.context import QueryContext
from isochrone_collector.routing import canonical_form
from isochrone_collector.store import routes as store
from isochrone_collector.xds.rejections import Rejections
from isochrone_collector.xds.snapshots import Snapshots
from isochrone_wire.address import Address
from isochrone_wire.model import DAY_US, Route
from isochrone_wire.routes import RouteTable
from testdata.routes import CHAT, NOW_AT, VOICE

TIMEOUT_SECONDS = 20.0
ROUTES = ("chat", "voice", "batch")
ELSEWHERE = replace(CHAT, generation=46, etag="46-e1", client_region="eu-central-1")


@dataclass(slots=True)
class Event:
    """A server-sent event."""

    id: int
    event: str
    data: dict[str, Any]


class Web:
    """The interface at an address, and a client for it."""

    def __init__(self, local: InProcessCollector, sources: Sources, address: Address) -> None:
        self.local = local
        self.sources = sources
        self.publisher = sources.publisher
        self.address = address
        self.client = httpx.AsyncClient(base_url=f"http://{address}", timeout=TIMEOUT_SECONDS)

    async def publish(self, *tables: RouteTable) -> None:
        """Store tables like a builder, and refresh the publisher."""
        nothing = canonical_form.compress("{}")
        new = [
            store.NewTable(
                generation=table.generation,
                client_region=table.client_region,
                route=table.route,
                built_at=table.built_at,
                change=table.change.value,
                sentence=table.sentence,
                document=canonical_form.dump(table),
                inputs=nothing,
                before=nothing,
                after=nothing,
            )
            for table in tables
        ]
        async with self.local.database.transaction() as connection:
            await store.publish(connection, new)
        await self.publisher.refresh()

    async def get(self, path: str, **headers: str) -> httpx.Response:
        """Return the response of a path; header names are written with underscores."""
        return await self.client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    @asynccontextmanager
    async def watch(self, path: str, **headers: str) -> AsyncIterator[AsyncIterator[Event | None]]:
        """Yield the events of a stream, `None` for a heartbeat."""
        named_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.stream("GET", path, headers=named_headers) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"].startswith("text/event-stream")
            yield _events(response)


async def _events(response: httpx.Response) -> AsyncIterator[Event | None]:
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        if not line and "data" in fields:
            yield Event(id=int(fields["id"]), event=fields["event"], data=json.loads(fields["data"]))
        elif not line and "" in fields:
            yield None
        fields = {**fields, name: value} if line else {}


async def first(events: AsyncIterator[Event | None], count: int) -> list[Event]:
    """Return the first `count` events, without heartbeats."""
    found: list[Event] = []
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while len(found) < count:
            event = await anext(events)
            if event is not None:
                found.append(event)
    return found


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until `is_so()` holds."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not is_so():
            await asyncio.sleep(0.01)


class StartWeb(Protocol):
    """Starts the interface with the limits of the test."""

    async def __call__(
        self,
        *,
        max_watchers: int = MAX_WATCHERS,
        heartbeat_us: int = HEARTBEAT_US,
        required: bool = False,
        public_page: bool = False,
    ) -> Web:
        """Return the interface, without tables. Credentials may be `required`, and the status open."""
        ...


@pytest.fixture
async def start_web(local: InProcessCollector) -> AsyncIterator[StartWeb]:
    """Interfaces that are stopped after the test."""
    async with _interfaces(local) as start:
        yield start


@asynccontextmanager
async def _interfaces(local: InProcessCollector) -> AsyncIterator[StartWeb]:
    await local.begin(NOW_AT, keep_us=DAY_US)
    plan = local.plans.current
    assert plan is not None
    routes = tuple(Route(name=name, members=()) for name in ROUTES)
    local.plans.current = replace(plan, routes=routes)
    async with AsyncExitStack() as stack:

        async def start(
            *,
            max_watchers: int = MAX_WATCHERS,
            heartbeat_us: int = HEARTBEAT_US,
            required: bool = False,
            public_page: bool = False,
        ) -> Web:
            publisher = Publisher(
                database=local.database,
                plans=local.plans,
                clock=local.clock,
                max_watchers=max_watchers,
                heartbeat_us=heartbeat_us,
            )
            authenticator = Authenticator(database=local.database, clock=local.clock, required=required)
            query_context = QueryContext(
                database=local.database,
                plans=local.plans,
                clock=local.clock,
            )
            changes = Changes(clock=local.clock, state=lambda: (publisher.generation, publisher.stale_since_at))
            sources = Sources(
                publisher=publisher,
                changes=changes,
                plans=local.plans,
                query_context=query_context,
                authenticator=authenticator,
                snapshots=Snapshots(publisher=publisher, plans=local.plans, clock=local.clock),
                rejections=Rejections(),
                clock=local.clock,
                metrics=list,
            )
            app = create_app(sources, public_page=public_page)
            address = await stack.enter_async_context(listening(app, Address("127.0.0.1", 0), tls=None))
            web = Web(local, sources, address)
            stack.callback(publisher.close)
            stack.callback(changes.close)
            stack.push_async_callback(web.client.aclose)
            return web

        yield start


@pytest.fixture
async def web(start_web: StartWeb) -> Web:
    """The interface with a table of two routes in one region and of one in another; the newest is generation 48."""
    return await _with_tables(start_web)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_web(shared_database_url: str) -> AsyncIterator[Web]:
    """The same, shared by the tests of a module that change nothing, marked with `shares_web`."""
    async with in_process_collector(shared_database_url) as local, _interfaces(local) as start:
        yield await _with_tables(start)


shares_web = pytest.mark.asyncio(loop_scope="module")


async def _with_tables(start: StartWeb) -> Web:
    web = await start()
    await web.publish(ELSEWHERE, VOICE, CHAT)
    return web
