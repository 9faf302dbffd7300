"""A faulty collector for the agent's tests: a real gRPC server in this process that records its pushes and fails on
request.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from isochrone_wire.v1 import fleet_pb2, fleet_pb2_grpc

Context = Any
Answer = Callable[[fleet_pb2.Batch, fleet_pb2.Receipt, Context], Awaitable[None]]


async def unchanged(_request: fleet_pb2.Batch, _response: fleet_pb2.Receipt, _context: Context) -> None:
    """Leave the answer unchanged."""


@dataclass(slots=True)
class FaultyCollector(fleet_pb2_grpc.FleetServicer):
    """Stores each batch once, like a collector, under (epoch, seq). `before` may refuse a push before it is stored;
    `after` may change or withhold the answer. The clock is ahead by `clock_ahead_us`.
    """

    before: Answer = unchanged
    after: Answer = unchanged
    clock_ahead_us: int = 0
    delay_seconds: float = 0.0
    batches: dict[tuple[int, int], bytes] = field(default_factory=dict)
    pushes: list[fleet_pb2.Batch] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    altered: int = 0
    in_flight: int = 0
    max_in_flight: int = 0

    async def Push(self, request: fleet_pb2.Batch, context: Context) -> fleet_pb2.Receipt:  # noqa: N802  # the name in the .proto
        """Store the push, then answer."""
        received_at = self._now_at()
        self.pushes.append(request)
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.delay_seconds)
            response = fleet_pb2.Receipt(plan_version=1, received_at=received_at)
            await self.before(request, response, context)
            self._store(request, response)
            response.server_at = self._now_at()
            await self.after(request, response, context)
            return response
        finally:
            self.in_flight -= 1

    async def FetchPlan(self, _request: fleet_pb2.FetchPlanRequest, _context: Context) -> fleet_pb2.FetchPlanResponse:  # noqa: N802  # the name in the .proto
        return fleet_pb2.FetchPlanResponse()

    async def Join(self, _request: fleet_pb2.JoinRequest, context: Context) -> fleet_pb2.Joined:  # noqa: N802  # the name in the .proto
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this collector does not admit agents")
        raise AssertionError("abort raises")

    async def Renew(self, _request: fleet_pb2.RenewRequest, _context: Context) -> fleet_pb2.Renewed:  # noqa: N802  # the name in the .proto
        return fleet_pb2.Renewed()

    @property
    def stored(self) -> list[int]:
        pushes = [fleet_pb2.Batch.FromString(content) for content in self.batches.values()]
        return sorted(sample.round_at for push in pushes for sample in push.samples)

    def _store(self, request: fleet_pb2.Batch, response: fleet_pb2.Receipt) -> None:
        if not request.seq:
            return
        content = fleet_pb2.Batch(samples=request.samples).SerializeToString()
        known = self.batches.setdefault((request.epoch, request.seq), content)
        self.altered += known != content
        if known is content:
            response.stored = len(request.samples)
            self.order += [sample.round_at for sample in request.samples]
        else:
            response.duplicate = len(request.samples)

    def _now_at(self) -> int:
        return time.time_ns() // 1000 + self.clock_ahead_us


@asynccontextmanager
async def serving(collector: FaultyCollector) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to the collector, which runs for the duration of the block."""
    server = grpc.aio.server()
    fleet_pb2_grpc.add_FleetServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(None)
