"""Graceful stop: a collector reports NOT_SERVING, and then answers the calls in progress."""

import signal
import time

import grpc
import psycopg
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fixtures.collector import Collector, StartCollector
from isochrone_wire import codec
from isochrone_wire.model import Batch, Outcome, Sample, Vantage
from isochrone_wire.operations import Receipt
from testdata.waiting import eventually

PLAN = "baseline: us-east-2\ntargets: [{model: a, provider: sim, base_url: http://h}]\n"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def a_batch(collector: Collector) -> Batch:
    at = time.time_ns() // 1000
    target_id = collector.call.targets().targets[0].id
    sample = Sample(target_id=target_id, round_at=at, outcome=Outcome.OK, dispatched_at=at)
    return Batch(vantage=Vantage(name="us-1", region="us-east-2"), epoch=5, seq=1, samples=(sample,))


def somebody_waits(connection: psycopg.Connection) -> bool:
    """Return whether a statement of this database waits for a lock."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    row = connection.execute(query).fetchone()
    return bool(row and row[0])


def test_calls_in_progress_are_answered(start_collector: StartCollector) -> None:
    """A push in flight at SIGTERM gets its receipt, while health says NOT_SERVING; then the process ends with 0."""
    collector = start_collector()
    collector.call.apply(PLAN)
    batch = codec.encode(a_batch(collector))
    watching = health_pb2_grpc.HealthStub(collector.call.channel).Watch(health_pb2.HealthCheckRequest(), timeout=30)
    states = (answer.status for answer in watching)
    assert next(states) == SERVING
    with psycopg.connect(collector.database_url) as connection:
        connection.execute("LOCK TABLE ingest_batch IN ACCESS EXCLUSIVE MODE")
        push = collector.call.fleet.Push.future(batch, timeout=30)
        eventually(20, lambda: somebody_waits(connection), "the push waits for its commit")
        collector.process.send_signal(signal.SIGTERM)
        assert next(states) == NOT_SERVING
        assert not push.done()
    assert codec.decode(Receipt, push.result(timeout=20)).stored == 1
    assert collector.process.wait(20) == 0
    with psycopg.connect(collector.database_url) as connection:
        assert connection.execute("SELECT count(*) FROM sample").fetchone() == (1,)


def test_later_calls_are_refused(start_collector: StartCollector) -> None:
    """A push after the stop has begun is UNAVAILABLE, which an agent retries."""
    collector = start_collector()
    collector.call.apply(PLAN)
    batch = codec.encode(a_batch(collector))
    assert collector.stop() == 0
    with pytest.raises(grpc.RpcError) as refused:
        collector.call.fleet.Push(batch, timeout=5)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
