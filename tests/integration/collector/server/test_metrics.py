"""Prometheus metrics of a collector: every push is counted, also a refused one."""

import ssl
import time
import urllib.error
import urllib.request
from dataclasses import replace

import grpc
import pytest

from fixtures.collector import Collector, StartCollector, run_command
from isochrone_common import enrolment
from isochrone_common.address import parse_address
from isochrone_wire.model import DAY_US, Batch, Outcome, Sample, Vantage
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
    strange = replace(good, chunks=-1)
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
    assert metrics['isochrone_samples_rejected_total{reason="out_of_bounds"}'] == 2
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


def test_what_was_measured_is_exported(collector: Collector) -> None:
    """A stored sample counts once in the histograms of its target and region, however often it is pushed."""
    collector.call.apply(PLAN)
    at = time.time_ns() // 1000
    target_id = collector.call.targets().targets[0].id
    good = Sample(target_id=target_id, round_at=at, outcome=Outcome.OK, dispatched_at=at, ttft_us=250_000)
    failed = Sample(target_id=target_id, round_at=at + 1, outcome=Outcome.HTTP_ERROR, dispatched_at=at)
    old = Sample(target_id=target_id, round_at=at - 60 * DAY_US, outcome=Outcome.OK, dispatched_at=at, ttft_us=1)
    batch = Batch(vantage=US, epoch=5, seq=1, samples=(good, failed, old))
    collector.call.push(batch)
    collector.call.push(batch)
    metrics = collector.scrape()
    labels = 'model="a",provider="sim",region="us-east-2",target="sim/a"'
    assert metrics[f'isochrone_ttft_seconds_bucket{{le="0.2",{labels}}}'] == 0
    assert metrics[f'isochrone_ttft_seconds_bucket{{le="0.3",{labels}}}'] == 1
    assert metrics[f"isochrone_ttft_seconds_sum{{{labels}}}"] == 0.25
    assert metrics[f"isochrone_last_success_timestamp_seconds{{{labels}}}"] == at / 1e6
    outcomes = {name: value for name, value in metrics.items() if name.startswith("isochrone_probes_total")}
    assert sorted(outcomes.values()) == [1, 1]
    assert metrics['isochrone_metrics_left_out_samples_total{reason="limit"}'] == 0


def test_a_large_batch_counts_like_a_small_one(collector: Collector) -> None:
    """Batches that the encoder process encodes are counted too."""
    collector.call.apply(PLAN)
    at = time.time_ns() // 1000
    target_id = collector.call.targets().targets[0].id
    samples = tuple(
        Sample(target_id=target_id, round_at=at + one, outcome=Outcome.OK, dispatched_at=at, e2e_us=one * 1000)
        for one in range(1000)
    )
    for seq in (1, 2):  # the first large batch starts the process
        collector.call.push(Batch(vantage=US, epoch=5, seq=seq, samples=samples))
        eventually(20, lambda: "row_encoder.started" in collector.log(), "the encoder process has started")
    labels = 'model="a",provider="sim",region="us-east-2",target="sim/a"'
    metrics = collector.scrape()
    assert metrics[f"isochrone_e2e_seconds_count{{{labels}}}"] == 2000
    assert metrics[f'isochrone_e2e_seconds_bucket{{le="0.5",{labels}}}'] == 2 * 501


def test_a_reader_s_credential_is_required_with_tls(start_collector: StartCollector) -> None:
    """Metrics have the access rule of the other paths: 401 without a credential, 200 for a reader."""
    collector = start_collector(more=["--tls"])
    trust = ssl._create_unverified_context()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{collector.http}/metrics", timeout=10, context=trust)
    refused.value.close()
    assert refused.value.code == 401
    reader = enrolment.join(
        parse_address(collector.address),
        collector.call.invite("prometheus", role="reader", region=None),
        version="test",
    )
    headers = {"Authorization": f"Bearer {reader.credential}"}
    request = urllib.request.Request(f"{collector.http}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=10, context=trust) as page:
        assert page.headers["Content-Type"].startswith("text/plain")
        assert b"isochrone_plan_version 0.0" in page.read()


def test_the_former_listener_is_gone() -> None:
    """The option of the separate listener is an error that names the option."""
    done = run_command("serve", "--listen", "127.0.0.1:0", "--metrics-listen", "off")
    assert done.returncode == 2
    assert "--metrics-listen" in done.stderr
