"""Fixture for `isochrone.routing`: routes that follow a table server, and members that are models of the simulator."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

import isochrone.routing.httpx2
from fix_simulator import Simulator
from fix_table_server import TableServer
from isochrone.routing import Routes
from isochrone_client.clock import now_at
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RouteEntry, RouteTable
from testdata import sdks
from testdata.ports import dead_url
from testdata.routes import CHAT
from testdata.waiting import eventually

PATIENCE = 10.0
REGION = "us-east-2"
MESSAGES: Any = [{"role": "user", "content": "[0123456789ab] Hi"}]


@dataclass(slots=True)
class World:
    """The table server, the simulator, and routes that follow the one and send to the other."""

    server: TableServer
    simulator: Simulator
    cache: Path
    generation: int = 0
    opened: list[Routes] = field(default_factory=list)

    def entry(self, model: str, *, rank: int = 1, weight: float = 0.0, url: str = "", **more: Any) -> RouteEntry:
        """A member that is a model of the simulator, such as `none` for `fault-none`, named after it."""
        return RouteEntry(
            rank=rank,
            weight=weight,
            target=f"sim/{model}",
            provider="sim",
            model=f"fault-{model}",
            dialect=more.pop("dialect", "openai-chat"),
            base_url=url or self.simulator.base_url,
            **more,
        )

    def table(self, *entries: RouteEntry, seconds: float = 600, **more: Any) -> RouteTable:
        """The next table of the route `chat`, which is stale after some seconds."""
        self.generation += 1
        stale_at = now_at() + round(seconds * SECOND_US)
        return replace(
            CHAT,
            generation=self.generation,
            etag=f"{self.generation}-e",
            built_at=now_at(),
            fresh_until_at=stale_at,
            stale_until_at=stale_at,
            entries=tuple(replace(entry, rank=rank) for rank, entry in enumerate(entries, start=1)),
            static_order=more.pop("static_order", tuple(entry.target for entry in entries)),
            **more,
        )

    def publish(self, *entries: RouteEntry, **more: Any) -> RouteTable:
        """Publish the next table."""
        table = self.table(*entries, **more)
        self.server.publish(table)
        return table

    def first_then(self, first: str, second: str, **more: Any) -> RouteTable:
        """Publish a table with all traffic at the first model, and the second as its fallback."""
        hedge = more.pop("hedge", None)
        return self.publish(self.entry(first, weight=1.0, hedge=hedge), self.entry(second), **more)

    def routes(self, **more: Any) -> Routes:
        """Routes that have the tables published so far."""
        routes = Routes(self.server.url, REGION, cache_folder=more.pop("cache_folder", self.cache), **more)
        self.opened.append(routes)
        if self.server.lines:
            eventually(PATIENCE, lambda: self.newest(routes) == self.generation, "the tables")
        return routes

    @staticmethod
    def newest(routes: Routes) -> int:
        """The generation in use; 0 without a table."""
        table = routes.table("chat")
        return table.generation if table else 0


@pytest.fixture
def world(table_server: TableServer, fault_simulator: Simulator, tmp_path: Path) -> Iterator[World]:
    """A world without tables."""
    world = World(table_server, fault_simulator, tmp_path / "cache")
    yield world
    for routes in world.opened:
        routes.close()


def client_of(routes: Routes, **more: Any) -> Any:
    """The SDK of OpenAI for these routes; its own address is dead."""
    transport = isochrone.routing.httpx2.Transport(routes)
    options = {"base_url": dead_url(), "api_key": "caller", "max_retries": 0} | more
    return sdks.openai.OpenAI(http_client=httpx2.Client(transport=transport), **options)


def ask(client: Any, *, model: str = "chat", **more: Any) -> str:
    """The model that answered."""
    answer = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=3, **more)
    assert answer.choices[0].message.content
    return str(answer.model)


def stream(client: Any, **more: Any) -> str:
    """The model that answered in a stream; all of it has content."""
    with client.chat.completions.create(model="chat", messages=MESSAGES, max_tokens=3, stream=True, **more) as events:
        chunks = list(events)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    return str(chunks[0].model)
