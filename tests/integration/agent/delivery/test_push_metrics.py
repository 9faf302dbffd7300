"""Pushes are counted by status, and counting changes neither the answer nor the error of a call."""

import grpc
import grpc.aio
import pytest

from isochrone_agent.delivery.push_metrics import PushMetrics
from isochrone_agent.delivery.uplink import CollectorClient
from isochrone_agent.delivery.verdict import Backoff
from isochrone_wire.model import Batch, Heartbeat, Vantage
from testdata.faulty_collector import Context, FaultyCollector, serving

BATCH = Batch(
    vantage=Vantage(name="t-1", region="test"), epoch=1, seq=0, heartbeat=Heartbeat(plan_version=7), sent_at=1
)


async def test_pushes_are_counted_by_status() -> None:
    """Stored and refused pushes are counted under their gRPC status; other calls are not counted."""
    refused: list[bool] = []

    async def refuse_once(_request: object, _response: object, context: Context) -> None:
        if not refused:
            refused.append(True)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy", (("grpc-retry-pushback-ms", "400"),))

    metrics = PushMetrics()
    assert metrics.heartbeat == Heartbeat()
    async with serving(FaultyCollector(before=refuse_once), interceptors=[metrics]) as channel:
        collector = CollectorClient(channel=lambda: channel, vantage=BATCH.vantage)
        with pytest.raises(grpc.aio.AioRpcError, match="busy") as caught:
            await collector.push(BATCH)
        receipt = await collector.push(BATCH)
        await collector.fetch_plan(None)
    assert Backoff().next_wait_us(caught.value.trailing_metadata() or (), 0.0) == 400_000
    assert receipt.plan_version == 1
    assert metrics.pushes == {"RESOURCE_EXHAUSTED": 1, "OK": 1}
    assert metrics.heartbeat.plan_version == 7
