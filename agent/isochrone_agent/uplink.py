"""The agent's side of delivery: sealed batches to the collector, oldest first, each until it is acknowledged."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import grpc
import grpc.aio
import structlog

from isochrone_agent.errors import CollectorRefused, SpoolError
from isochrone_agent.keeper import Keeper
from isochrone_agent.spool import SealedBatch
from isochrone_agent.verdict import Backoff, Reaction, draw, react
from isochrone_wire import __version__, codec
from isochrone_wire.model import SECOND_US, Batch, Plan, Receipt, Vantage, Vitals
from isochrone_wire.v1 import fleet_pb2, fleet_pb2_grpc

CALL_SECONDS = 30
LINGER_SECONDS = 0.5
SPOOL_SECONDS = 5.0
HEARTBEAT_US = 15 * SECOND_US

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """The collector as an agent sees it: two calls over one channel."""

    channel: grpc.aio.Channel
    vantage: Vantage

    async def fetch_plan(self, running: int | None) -> Plan | None:
        """The plan in force, or `None` when version `running` is. Raises `grpc.aio.AioRpcError`."""
        request = fleet_pb2.FetchPlanRequest(vantage=codec.encode(self.vantage), if_version=running)
        response = await fleet_pb2_grpc.FleetStub(self.channel).FetchPlan(request, timeout=CALL_SECONDS)
        return codec.decode(Plan, response.plan) if response.HasField("plan") else None

    async def push(self, batch: Batch) -> Receipt:
        """Hand over one batch; the receipt means it is committed. Raises `grpc.aio.AioRpcError`."""
        stub = fleet_pb2_grpc.FleetStub(self.channel)
        response = await stub.Push(
            codec.encode(batch), timeout=CALL_SECONDS, compression=grpc.Compression.Gzip if batch.samples else None
        )
        return codec.decode(Receipt, response)


class Uplink:
    """Pushes what the spool holds, and a heartbeat when it holds nothing for a while.

    `on_plan_version` is told the version in force with every reply.
    """

    def __init__(
        self, collector: Collector, keeper: Keeper, *, on_plan_version: Callable[[int], Awaitable[int]]
    ) -> None:
        self._collector = collector
        self._keeper = keeper
        self._on_plan_version = on_plan_version
        self._backoff = Backoff()
        self._plan_version = 0

    async def run(self) -> None:
        """Deliver for ever. Raises `CollectorRefused` when there is no use in going on."""
        while True:
            try:
                await self.deliver(await self._next_batch())
            except SpoolError as error:
                # What can be read and written again later is not lost, and measuring goes on meanwhile.
                log.error("spool.failed", reason=str(error), hint=error.hint)  # noqa: TRY400  # no traceback
                await asyncio.sleep(SPOOL_SECONDS)

    async def _next_batch(self) -> SealedBatch | None:
        """What is there, else what comes before the next heartbeat is due, else `None`."""
        batch = await self._keeper.next_batch()
        if batch is not None:
            return batch
        await self._keeper.wait_for_more(HEARTBEAT_US / SECOND_US)
        # A moment's patience turns many small commits into one.
        await asyncio.sleep(LINGER_SECONDS)
        return await self._keeper.next_batch()

    async def drain(self) -> None:
        """Deliver what is there, once, and give up at the first failure; the spool keeps the rest."""
        while (batch := await self._keeper.next_batch()) is not None:
            if await self._push(batch) is not Reaction.STORED:
                return

    async def deliver(self, sealed: SealedBatch | None) -> None:
        """Push one batch, or a heartbeat for `None`, and react to the answer."""
        reaction = await self._push(sealed)
        if reaction is Reaction.RETRY:
            wait_us = self._backoff.next_wait_us(draw())
            log.info("push.waiting", wait_ms=wait_us // 1000)
            await asyncio.sleep(wait_us / SECOND_US)

    async def _push(self, sealed: SealedBatch | None) -> Reaction:
        batch = await self._batch(sealed)
        try:
            receipt = await self._collector.push(batch)
        except grpc.aio.AioRpcError as error:
            return await self._refused(sealed, error)
        self._backoff.reset()
        if sealed is not None:
            _check(receipt, sealed)
            await self._keeper.acknowledge(sealed.seq)
            log.info("batch.stored", seq=sealed.seq, stored=receipt.stored, duplicate=receipt.duplicate)
            for rejection in receipt.rejections:
                log.warning("sample.rejected", seq=sealed.seq, index=rejection.index, reason=rejection.reason)
        self._plan_version = await self._on_plan_version(receipt.plan_version)
        return Reaction.STORED

    async def _refused(self, sealed: SealedBatch | None, error: grpc.aio.AioRpcError) -> Reaction:
        status, details = error.code().name, error.details() or ""
        reaction = react(status)
        log.warning("push.failed", status=status, details=details, reaction=reaction.value)
        if reaction is Reaction.STOP:
            raise CollectorRefused(f"the collector refuses this agent: {details}", hint=f"gRPC status {status}")
        if reaction is Reaction.SET_ASIDE and sealed is not None:
            await self._keeper.set_aside(sealed.seq, details)
        return reaction

    async def _batch(self, sealed: SealedBatch | None) -> Batch:
        depth = await self._keeper.depth()
        vitals = Vitals(
            agent_version=__version__,
            plan_version=self._plan_version,
            spool_depth=depth.waiting,
            spool_oldest_at=depth.oldest_at,
            next_heartbeat_us=HEARTBEAT_US,
        )
        seq, samples = (sealed.seq, sealed.samples) if sealed else (0, ())
        return Batch(vantage=self._collector.vantage, epoch=self._keeper.epoch, seq=seq, samples=samples, vitals=vitals)


def _check(receipt: Receipt, sealed: SealedBatch) -> None:
    accounted = receipt.stored + receipt.duplicate + receipt.rejected
    if accounted != len(sealed.samples):
        reason = f"the collector accounts for {accounted} of the {len(sealed.samples)} samples of batch {sealed.seq}"
        raise CollectorRefused(reason, hint="agent and collector disagree on the wire; compare their versions")
