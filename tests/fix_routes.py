"""Borrow a collector's service of route tables: on a real socket, with the tables that are put into it.

It keeps the contract's manners: names that are not there are NOT_FOUND, and a watcher gets what came after the
generation it names, in order, or what is in force when that was never given. A fake observatory answers at the same
address, because commands look names up there.
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

_LOOK_SECONDS = 0.02


@dataclass(slots=True, repr=False)
class FakeRoutes(RoutesServicer):
    """Tables that a test may change at any time, and the questions that came.

    `log` is every table ever published, oldest first; `tables` those in force. With `breaking`, a stream ends as if cut
    off behind so many tables, once for each number in it, and for 0 it does not begin.
    """

    tables: tuple[RouteTable, ...] = TABLES
    log: list[RouteTable] = field(default_factory=lambda: sorted(TABLES, key=lambda table: table.generation))
    events: tuple[RouteEvent, ...] = EVENTS
    explanation: Explanation = EXPLANATION
    breaking: list[int] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)
    starts: int = 1
    address: str = ""

    def publish(self, table: RouteTable) -> None:
        """A new table, in force from now on."""
        key = (table.client_region, table.route)
        self.tables = (*(one for one in self.tables if (one.client_region, one.route) != key), table)
        self.log.append(table)

    def restart(self, *tables: RouteTable) -> None:
        """End all streams, and serve these tables alone, as if on a database that knows no others."""
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
            self.asked.append(request)
        after, told, start = request.after_generation, 0, self.starts
        if after > max((table.generation for table in self.log), default=0):
            after = 0
        limit = self.breaking.pop(0) if self.breaking else None
        if limit == 0:
            context.abort(grpc.StatusCode.UNAVAILABLE, "away")
        yield routes_pb2.WatchTablesResponse()
        while context.is_active():
            news = sorted(self._news(request, after), key=lambda table: table.generation)
            for table in news:
                if told == limit:
                    context.abort(grpc.StatusCode.UNAVAILABLE, "cut off")
                yield routes_pb2.WatchTablesResponse(table=encode(table))
                after, told = table.generation, told + 1
            if start != self.starts:
                context.abort(grpc.StatusCode.UNAVAILABLE, "stopping")
            time.sleep(_LOOK_SECONDS)

    def ExplainRoute(self, request: routes_pb2.ExplainRouteRequest, context: grpc.ServicerContext) -> Any:
        self._known(request.client_region, request.route, context)
        table = self.explanation.table
        if request.generation not in (0, table.generation):
            context.abort(grpc.StatusCode.NOT_FOUND, f"generation {request.generation} is not known")
        return encode(self.explanation)

    def ListRouteEvents(self, request: routes_pb2.ListRouteEventsRequest, _context: grpc.ServicerContext) -> Any:
        self.asked.append(request)
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
        self.asked.append((region, route))
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
    """A fake service of route tables that listens on loopback; `address` says where."""
    fake = FakeRoutes()
    known = replace(
        VANTAGES, vantages=(*VANTAGES.vantages, replace(VANTAGES.vantages[0], name="fra-1", region="eu-central-1"))
    )
    with ThreadPoolExecutor(max_workers=4) as threads:
        server = grpc.server(threads, options=[("grpc.so_reuseport", 0)])
        add_ObservatoryServicer_to_server(FakeObservatory(vantages=known), server)
        add_RoutesServicer_to_server(fake, server)
        fake.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        yield fake
        server.stop(grace=None).wait()
