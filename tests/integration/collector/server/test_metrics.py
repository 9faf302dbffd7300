"""Prometheus metrics of a collector: every push is counted, also a refused one."""

import json
import time

import grpc
import pytest

from fix_collector import Collector, StartCollector, run_command
from isochrone_wire.model import Batch, Outcome, Sample, Vantage
from testdata.waiting import eventually

PLAN = "baseline: us-east-2\ntargets: [{model: a, provider: sim, base_url: http://h}]\n"
US = Vantage(name="us-1", region="us-east-2")


@pytest.fixture
def collector(start_collector: StartCollector) -> Collector:
    return start_collector()


def test_pushes_are_counted(collector: Collector) -> None:
    """Samples by result, batches, statuses, durations and the last push are those of the pushes made."""
    collector.call.apply(PLAN)
    at = time.time_ns() // 1000
    target_id = collector.call.targets().targets[0].id
    good = Sample(target_id=target_id, round_at=at, outcome=Outcome.OK, dispatched_at=at)
    strange = Sample(target_id=7, round_at=at, outcome=Outcome.OK, dispatched_at=at)
    batch = Batch(vantage=US, epoch=5, seq=1, samples=(good, good, strange))
    collector.call.push(batch)
    collector.call.push(batch)
    collector.call.push(Batch(vantage=US, epoch=5, seq=0))
    with pytest.raises(grpc.RpcError):
        collector.call.push(Batch(vantage=US, epoch=5, seq=-1))
    # A refused push is counted once its reply has been sent.
    refused = 'isochrone_pushes_total{status="INVALID_ARGUMENT"}'
    eventually(10, lambda: refused in collector.scrape(), "the refused push is counted")
    metrics = collector.scrape()
    assert metrics["isochrone_samples_stored_total"] == 2
    assert metrics["isochrone_samples_duplicate_total"] == 2
    assert metrics['isochrone_samples_rejected_total{reason="unknown_target"}'] == 2
    assert metrics['isochrone_pushes_total{status="OK"}'] == 3
    assert metrics[refused] == 1
    assert metrics['isochrone_ledger_claims_total{result="new"}'] == 1
    assert metrics['isochrone_ledger_claims_total{result="known"}'] == 1
    assert metrics["isochrone_push_duration_seconds_count"] == 4
    assert metrics['isochrone_push_duration_seconds_bucket{le="+Inf"}'] == 4
    assert 0 < metrics["isochrone_push_duration_seconds_sum"] < 60
    assert metrics['isochrone_vantage_last_push_timestamp_seconds{vantage="us-1"}'] >= at / 1e6
    assert metrics["isochrone_plan_version"] == 1
    assert metrics['isochrone_pool_connections{state="all"}'] >= 1
    assert metrics["process_resident_memory_bytes"] > 1e6


def test_every_name_has_its_prefix(collector: Collector) -> None:
    """Metrics of Isochrone begin with `isochrone_`, those of the process with `process_`."""
    names = {name.partition("{")[0] for name in collector.scrape()}
    assert {name for name in names if not name.startswith(("isochrone_", "process_"))} == set()


def test_a_port_in_use_is_logged(collector: Collector, start_collector: StartCollector) -> None:
    """A collector that cannot serve metrics logs it, and stores samples all the same."""
    [line] = [line for line in collector.log().splitlines() if "metrics.started" in line]
    second = start_collector(more=["--metrics-listen", json.loads(line)["listen"]])
    assert "metrics.unavailable" in second.log()
    assert second.call.push(Batch(vantage=US, epoch=5, seq=0)).plan_version == 0


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "192.0.2.1:4690", "nonsense:x"])
def test_metrics_stay_on_this_machine(listen: str) -> None:
    """An address that others could reach is exit code 2 and an error, before anything is started."""
    done = run_command("serve", "--listen", "127.0.0.1:0", "--metrics-listen", listen)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "hint: --metrics-listen 127.0.0.1:4690, or off" in done.stderr
