"""Envoy's discovery services over gRPC, without an Envoy: what a stream needs, when it ends, and what it rejects."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from fixtures.web import Web
from isochrone_collector.auth.authenticator import MAX_WATCHES
from isochrone_collector.grpc_api import discovery
from isochrone_collector.grpc_api.discovery import DiscoveryServices
from isochrone_collector.grpc_api.guards import STREAMS_OF, AuthInterceptor
from isochrone_collector.xds import envoy_pb2
from isochrone_collector.xds.stream_state import CLUSTERS, ROUTES
from isochrone_common.channel import CLIENT_OPTIONS, SERVER_OPTIONS

TIMEOUT_S = 20.0
WORLD, DELTA = discovery.METHODS[:2]
AGGREGATED = "/envoy.service.discovery.v3.AggregatedDiscoveryService"


@pytest.fixture
async def channel(web: Web) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to the services on the tables of the test."""
    sources = web.sources
    server = grpc.aio.server(
        interceptors=[AuthInterceptor(sources.authenticator, on_refused=lambda *_: None)], options=SERVER_OPTIONS
    )
    services = DiscoveryServices(
        snapshots=sources.snapshots, publisher=sources.publisher, rejections=sources.rejections
    )
    services.add_to_server(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CLIENT_OPTIONS) as made:
        yield made
    await server.stop(None)


class Stream:
    """A stream of the state of the world."""

    def __init__(self, channel: grpc.aio.Channel, method: str = WORLD) -> None:
        call: Any = channel.stream_stream(
            method,
            request_serializer=envoy_pb2.DiscoveryRequest.SerializeToString,
            response_deserializer=envoy_pb2.DiscoveryResponse.FromString,
        )
        self.call = call(timeout=TIMEOUT_S)

    async def send(self, region: str = "us-east-2", **fields: Any) -> None:
        node = envoy_pb2.Node(id="n", locality=envoy_pb2.Locality(region=region))
        await self.call.write(envoy_pb2.DiscoveryRequest(node=node, **fields))

    async def receive(self) -> envoy_pb2.DiscoveryResponse:
        found = await self.call.read()
        assert isinstance(found, envoy_pb2.DiscoveryResponse)
        return found


def test_the_methods_are_envoy_s() -> None:
    """The first two methods are the aggregated ones, in either form; each has the limit of streams of a watch."""
    assert (f"{AGGREGATED}/StreamAggregatedResources", f"{AGGREGATED}/DeltaAggregatedResources") == (WORLD, DELTA)
    assert {STREAMS_OF[method] for method in discovery.METHODS} == {MAX_WATCHES}


@pytest.mark.parametrize(
    ("region", "code", "detail"),
    [
        ("mars", grpc.StatusCode.NOT_FOUND, "unknown client region 'mars'"),
        ("", grpc.StatusCode.INVALID_ARGUMENT, "node.locality.region"),
    ],
)
async def test_streams_need_regions(channel: grpc.aio.Channel, region: str, code: grpc.StatusCode, detail: str) -> None:
    """A region is never guessed: without a known one the stream ends with the reason."""
    stream = Stream(channel)
    await stream.send(region, type_url=CLUSTERS)
    with pytest.raises(grpc.aio.AioRpcError, match=detail) as caught:
        await stream.call.read()
    assert caught.value.code() is code


async def test_a_stream_without_a_request_ends(channel: grpc.aio.Channel) -> None:
    """A stream that is closed before its first request has no region, and is refused."""
    stream = Stream(channel)
    await stream.call.done_writing()
    with pytest.raises(grpc.aio.AioRpcError, match="the region is missing"):
        await stream.call.read()


async def test_a_rejection_is_counted_and_changes_nothing(channel: grpc.aio.Channel, web: Web) -> None:
    """After a rejection the stream stays, without the rejected version; the next request of another type is served."""
    stream = Stream(channel)
    await stream.send(type_url=ROUTES)
    rejected = await stream.receive()
    await stream.send(
        type_url=ROUTES, response_nonce=rejected.nonce, error_detail=envoy_pb2.Status(code=13, message="no")
    )
    await stream.send(type_url=CLUSTERS)
    assert (await stream.receive()).type_url == CLUSTERS
    assert web.sources.rejections.counts == {("us-east-2", "routes"): 1}
    stream.call.cancel()


async def test_a_stream_is_a_watcher_until_it_ends(channel: grpc.aio.Channel, web: Web) -> None:
    """Streams count as watchers; one that its client leaves makes room."""
    stream = Stream(channel)
    await stream.send(type_url=CLUSTERS)
    await stream.receive()
    assert web.publisher.watchers == 1
    await stream.call.done_writing()
    assert await stream.call.read() is grpc.aio.EOF
    other = Stream(channel)
    await other.send(type_url=CLUSTERS)
    await other.receive()
    other.call.cancel()
    async with asyncio.timeout(TIMEOUT_S):
        while web.publisher.watchers:
            await asyncio.sleep(0.01)


async def test_a_stream_ends_with_the_collector(channel: grpc.aio.Channel, web: Web) -> None:
    """When the collector stops, its streams end at once, so that an Envoy changes to another one."""
    stream = Stream(channel)
    await stream.send(type_url=CLUSTERS)
    await stream.receive()
    web.publisher.close()
    assert await stream.call.read() is grpc.aio.EOF
