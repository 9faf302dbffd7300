"""The gRPC service for consumers of route tables."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import aclosing

import grpc
import structlog

from isochrone_collector.grpc_api.responses import Context, answer, answers
from isochrone_collector.publishing.publisher import Publisher
from isochrone_collector.queries import routes
from isochrone_collector.queries.context import QueryContext
from isochrone_wire import codec
from isochrone_wire.answers import Selection
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RegionTables, RouteTable
from isochrone_wire.v1 import routes_pb2, routes_pb2_grpc

_KEPT = 1_024
_SEND_US = 20 * SECOND_US
_HEARTBEAT = routes_pb2.WatchTablesResponse()

_log = structlog.get_logger()


class RoutesService(routes_pb2_grpc.RoutesServicer):
    """Route tables, their explanations and their history."""

    def __init__(self, *, query_context: QueryContext, publisher: Publisher) -> None:
        self._query_context = query_context
        self._publisher = publisher
        self._messages: OrderedDict[int, routes_pb2.WatchTablesResponse] = OrderedDict()

    async def GetTables(  # noqa: N802  # the name in the .proto
        self, request: routes_pb2.GetTablesRequest, context: Context
    ) -> routes_pb2.RegionTables:
        """Return the tables in force in a region."""
        found = await answer(context, self._tables(request.client_region, request.route))
        return codec.encode(found)  # type: ignore[no-any-return]  # the codec's table says which message it is

    async def WatchTables(  # type: ignore[override]  # noqa: N802  # it writes messages instead of yielding them; the name in the .proto
        self, request: routes_pb2.WatchTablesRequest, context: Context
    ) -> None:
        """Stream tables as they change."""
        why = "this collector stops"
        async with aclosing(answers(context, self._watched(request))) as messages:
            async for message in messages:
                if not await _sent(context, message):
                    why = "this stream was not read"
                    break
        # A watcher reconnects on this status.
        await context.abort(grpc.StatusCode.UNAVAILABLE, f"{why}; watch again from the last generation")

    async def ExplainRoute(  # noqa: N802  # the name in the .proto
        self, request: routes_pb2.ExplainRouteRequest, context: Context
    ) -> routes_pb2.Explanation:
        """Return the reasons for a table."""
        work = routes.explanation(
            self._query_context, request.client_region, request.route, generation=max(request.generation, 0)
        )
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def ListRouteEvents(  # noqa: N802  # the name in the .proto
        self, request: routes_pb2.ListRouteEventsRequest, context: Context
    ) -> routes_pb2.ListRouteEventsResponse:
        """Return the history of routes."""
        work = routes.events(self._query_context, codec.decode(Selection, request.selection), route=request.route)
        return codec.encode(await answer(context, work))  # type: ignore[no-any-return]  # as above

    async def _tables(self, client_region: str, route: str) -> RegionTables:
        return self._publisher.tables(client_region, route)

    async def _watched(self, request: routes_pb2.WatchTablesRequest) -> AsyncIterator[routes_pb2.WatchTablesResponse]:
        watch = self._publisher.watch(request.client_region, request.route, after=request.after_generation)
        async with aclosing(watch) as tables:
            async for table in tables:
                yield _HEARTBEAT if table is None else self._message(table)

    def _message(self, table: RouteTable) -> routes_pb2.WatchTablesResponse:
        """Return the message of a table, encoded once for all watchers."""
        message = self._messages.get(table.generation)
        if message is None:
            message = routes_pb2.WatchTablesResponse(table=codec.encode(table))
            self._messages[table.generation] = message
            if len(self._messages) > _KEPT:
                self._messages.popitem(last=False)
        return message


async def _sent(context: Context, message: routes_pb2.WatchTablesResponse) -> bool:
    """Send a message, and return whether it was sent within the timeout. gRPC bounds the data that waits to be read."""
    try:
        async with asyncio.timeout(_SEND_US / SECOND_US):
            await context.write(message)
    except TimeoutError:
        _log.info("watcher.dropped", reason="the stream is not read", client=context.peer())
        return False
    return True
