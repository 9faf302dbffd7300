"""Fixture for the service of route tables: a real socket that serves the tables of the test.

It follows the contract: unknown names are NOT_FOUND, and a watcher gets the tables after the generation in its request,
in order, or the tables in force if that generation never existed. A fake observatory is served at the same address,
because commands look up names there.
"""

# ruff: noqa: N802, D102  # the methods are named by the .proto, which also says what they do

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import pytest

from fix_observatory import VANTAGES, FakeObservatory
from isochrone_wire.answers import Selection
from isochrone_wire.codec import decode, encode
from isochrone_wire.routes import Explanation, RegionTables, RouteEvent, RouteEventList, RouteTable
from isochrone_wire.v1 import routes_pb2
from isochrone_wire.v1.observatory_pb2_grpc import add_ObservatoryServicer_to_server
from isochrone_wire.v1.routes_pb2_grpc import RoutesServicer, add_RoutesServicer_to_server
from testdata.routes import EVENTS, EXPLANATION, NOW_AT, TABLES

_POLL_SECONDS = 0.02


@dataclass(slots=True, repr=False)
class FakeRoutes(RoutesServicer):
    """Tables that a test may change at any time, and the received requests.

    `observatory` is served at the same address. `log` contains all published tables, oldest first, `tables` those in
    force. Each number in `breaking` breaks one stream after that many tables; with 0, the stream does not start.
    """

    tables: tuple[RouteTable, ...] = TABLES
    observatory: FakeObservatory = field(default_factory=FakeObservatory)
    log: list[RouteTable] = field(default_factory=lambda: sorted(TABLES, key=lambda table: table.generation))
    events: tuple[RouteEvent, ...] = EVENTS
    explanation: Explanation = EXPLANATION
    breaking: list[int] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)
    starts: int = 1
    address: str = ""

    def publish(self, table: RouteTable) -> None:
        """Publish a table."""
        key = (table.client_region, table.route)
        self.tables = (*(one for one in self.tables if (one.client_region, one.route) != key), table)
        self.log.append(table)

    def restart(self, *tables: RouteTable) -> None:
        """End all streams, and serve only these tables, like a collector with another database."""
        self.tables, self.log = tables, sorted(tables, key=lambda table: table.generation)
        self.starts += 1

    def GetTables(self, request: routes_pb2.GetTablesRequest, context: grpc.ServicerContext) -> Any:
        found = self._known(request.client_region, request.route, context)
        newest = max(found, key=lambda table: table.generation)
        return encode(
            RegionTables(
                client_region=request.client_region,
                generation=newest.generation,
                etag=newest.etag,
                answered_at=NOW_AT,
                tables=found,
            )
        )

    def WatchTables(self, request: routes_pb2.WatchTablesRequest, context: grpc.ServicerContext) -> Iterator[Any]:
        if request.client_region or request.route:
            self._known(request.client_region, request.route, context)
        else:
            self.requests.append(request)
        after, sent, start = request.after_generation, 0, self.starts
        if after > max((table.generation for table in self.log), default=0):
            after = 0
        limit = self.breaking.pop(0) if self.breaking else None
        if limit == 0:
            context.abort(grpc.StatusCode.UNAVAILABLE, "away")
        yield routes_pb2.WatchTablesResponse()
        while context.is_active():
            news = sorted(self._news(request, after), key=lambda table: table.generation)
            for table in news:
                if sent == limit:
                    context.abort(grpc.StatusCode.UNAVAILABLE, "cut off")
                yield routes_pb2.WatchTablesResponse(table=encode(table))
                after, sent = table.generation, sent + 1
            if start != self.starts:
                context.abort(grpc.StatusCode.UNAVAILABLE, "stopping")
            time.sleep(_POLL_SECONDS)

    def ExplainRoute(self, request: routes_pb2.ExplainRouteRequest, context: grpc.ServicerContext) -> Any:
        self._known(request.client_region, request.route, context)
        table = self.explanation.table
        if request.generation not in (0, table.generation):
            context.abort(grpc.StatusCode.NOT_FOUND, f"generation {request.generation} is not known")
        return encode(self.explanation)

    def ListRouteEvents(self, request: routes_pb2.ListRouteEventsRequest, _context: grpc.ServicerContext) -> Any:
        self.requests.append(request)
        selection = decode(Selection, request.selection)
        events = (one for one in self.events if request.route in ("", one.route))
        chosen = tuple(one for one in events if not selection.regions or one.client_region in selection.regions)
        return encode(RouteEventList(window=selection.window, events=chosen))

    def _news(self, request: routes_pb2.WatchTablesRequest, after: int) -> Iterator[RouteTable]:
        seen = self.log if after else self.tables
        for table in tuple(seen):
            if table.generation > after and _matches(table, request.client_region, request.route):
                yield table

    def _known(self, region: str, route: str, context: grpc.ServicerContext) -> tuple[RouteTable, ...]:
        self.requests.append((region, route))
        if not self.tables:
            context.abort(grpc.StatusCode.NOT_FOUND, "there is no route table yet: it takes a plan with `routes`")
        for kind, name, known in (
            ("client region", region, sorted({table.client_region for table in self.tables})),
            ("route", route, sorted({table.route for table in self.tables})),
        ):
            if name and name not in known:
                listing = ", ".join(known) or "none yet"
                context.abort(grpc.StatusCode.NOT_FOUND, f"unknown {kind} {name!r}; known: {listing}")
        found = tuple(table for table in self.tables if _matches(table, region, route))
        if not found:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no table of {route!r} in {region!r}")
        return found


def _matches(table: RouteTable, region: str, route: str) -> bool:
    return region in ("", table.client_region) and route in ("", table.route)


@pytest.fixture
def routing() -> Iterator[FakeRoutes]:
    """A fake service of route tables that listens on `address` on loopback."""
    known = replace(
        VANTAGES, vantages=(*VANTAGES.vantages, replace(VANTAGES.vantages[0], name="fra-1", region="eu-central-1"))
    )
    fake = FakeRoutes(observatory=FakeObservatory(vantages=known))
    with ThreadPoolExecutor(max_workers=4) as threads:
        server = grpc.server(threads, options=[("grpc.so_reuseport", 0)])
        add_ObservatoryServicer_to_server(fake.observatory, server)
        add_RoutesServicer_to_server(fake, server)
        fake.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        yield fake
        server.stop(grace=None).wait()
