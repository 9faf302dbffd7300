"""Envoy's discovery services over gRPC: the state of the world or deltas, of all types of resources or of one.

The first request of a stream has the region, in `node.locality.region`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import Message

from isochrone_collector.errors import BadRequest
from isochrone_collector.grpc_api.responses import Context
from isochrone_collector.publishing.publisher import Publisher
from isochrone_collector.xds import envoy_pb2
from isochrone_collector.xds.encoding import NO_REGION, EncodedResources, request_of
from isochrone_collector.xds.snapshots import Rejections, Snapshots
from isochrone_collector.xds.stream_state import (
    CLUSTERS,
    ROUTES,
    Delta,
    Request,
    Response,
    StateOfTheWorld,
    StreamState,
)
from isochrone_wire.model import SECOND_US

# Service → the type of its resources, empty for all types, and the names of its methods in either form.
_SERVICES = {
    "envoy.service.discovery.v3.AggregatedDiscoveryService": (
        "",
        "StreamAggregatedResources",
        "DeltaAggregatedResources",
    ),
    "envoy.service.cluster.v3.ClusterDiscoveryService": (CLUSTERS, "StreamClusters", "DeltaClusters"),
    "envoy.service.route.v3.RouteDiscoveryService": (ROUTES, "StreamRoutes", "DeltaRoutes"),
}
METHODS = tuple(f"/{service}/{method}" for service, (_, *methods) in _SERVICES.items() for method in methods)
"""The methods of the services, as `/package.Service/Method`."""


@dataclass(eq=False, kw_only=True)
class DiscoveryServices:
    """The services of all streams of a collector."""

    snapshots: Snapshots
    publisher: Publisher
    rejections: Rejections

    def __post_init__(self) -> None:
        encoded = EncodedResources()
        # The state of a stream, its requests, and how its responses are written.
        self._forms: tuple[tuple[Callable[[], StreamState], type[Message], Callable[[Response], Message]], ...] = (
            (StateOfTheWorld, envoy_pb2.DiscoveryRequest, encoded.response),
            (Delta, envoy_pb2.DeltaDiscoveryRequest, encoded.delta_response),
        )

    def add_to_server(self, server: grpc.aio.Server) -> None:
        """Add the services to a server."""
        for service, (type_url, *methods) in _SERVICES.items():
            handlers: dict[str, Any] = {
                method: grpc.stream_stream_rpc_method_handler(
                    partial(self._exchange, new_state, write, type_url),
                    request_deserializer=request.FromString,
                    response_serializer=lambda message: message.SerializeToString(),
                )
                for method, (new_state, request, write) in zip(methods, self._forms, strict=True)
            }
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))

    async def _exchange(
        self,
        new_state: Callable[[], StreamState],
        write: Callable[[Response], Message],
        type_url: str,
        messages: AsyncIterator[Any],
        _context: Context,
    ) -> AsyncGenerator[Message, None]:
        """Yield what a stream has to receive. Raises `BadRequest`, `UnknownName` and as `Publisher.watch`."""
        requests = (request_of(message, type_url) async for message in messages)
        async with aclosing(requests):
            first = await anext(requests, None)
            if first is None or not first.client_region:
                raise BadRequest(NO_REGION)
            node, state = (first.client_region, first.node_id), new_state()
            state.receive(first)
            self.snapshots.of(*node)
            watch = self.publisher.watch(first.client_region, "", after=self.publisher.generation)
            until_us = partial(self.snapshots.next_change_us, *node)
            async with aclosing(watch) as tables, aclosing(_events(requests, tables, until_us)) as events:
                async for request in events:
                    if request is not None:
                        self.rejections.note(first.client_region, state.receive(request))
                    for response in state.due(self.snapshots.of(*node)):
                        yield write(response)


async def _events(
    requests: AsyncGenerator[Request, None], tables: AsyncGenerator[Any, None], until_us: Callable[[], int | None]
) -> AsyncGenerator[Request | None, None]:
    """Yield each request, and `None` now, for each table and once `until_us()` has passed, until one of the two end."""
    request, table = asyncio.ensure_future(anext(requests)), asyncio.ensure_future(anext(tables))
    try:
        yield None
        while True:
            wait_us = until_us()
            timeout = None if wait_us is None else wait_us / SECOND_US
            await asyncio.wait({request, table}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if request.done():
                found = request.result()
                request = asyncio.ensure_future(anext(requests))
                yield found
                continue
            if table.done():
                table.result()
                table = asyncio.ensure_future(anext(tables))
            yield None
    except StopAsyncIteration:
        return
    finally:
        request.cancel()
        table.cancel()
        await asyncio.gather(request, table, return_exceptions=True)
