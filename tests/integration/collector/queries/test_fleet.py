"""Liveness and spend of vantages, as a real collector reports them from pushes."""

import time
from dataclasses import replace

import grpc
import pytest

from fixtures.collector import Caller, StartCollector
from isochrone_wire.answers import Selection, Window
from isochrone_wire.fleet import Liveness, VantageStatus
from isochrone_wire.model import DAY_US, SECOND_US, Batch, Budget, Heartbeat, Outcome, Sample, Spend, Vantage
from testdata.waiting import eventually

PLAN = """\
baseline: us-east-2
every: 60s
budgets:
  - {provider: sim, requests_per_day: 1000}
  - {provider: sim, vantage: sg-1, usd_per_day: 2.5}
targets:
  - {model: a, provider: sim, base_url: http://h, price: {usd_per_m_output: 2.5}}
  - {model: b, provider: other, base_url: http://h}
"""
US = Vantage(name="us-1", region="us-east-2")
SG = Vantage(name="sg-1", region="ap-southeast-1")
ANY = Selection(window=Window(from_at=0, until_at=0))
HEARTBEAT = Heartbeat(
    agent_version="0.3.0",
    plan_version=1,
    next_heartbeat_us=15 * SECOND_US,
    clock_offset_us=-1_500,
    clock_uncertainty_us=300,
    loop_lag_us=40,
)


def now_at() -> int:
    return time.time_ns() // 1000


def samples(call: Caller, n: int) -> tuple[Sample, ...]:
    at = now_at()
    target_id = call.targets().targets[0].id
    return tuple(
        Sample(target_id=target_id, round_at=at - k, outcome=Outcome.OK, dispatched_at=at) for k in range(1, n + 1)
    )


def status(call: Caller, name: str) -> VantageStatus:
    return next(vantage for vantage in call.vantages().vantages if vantage.name == name)


@pytest.fixture
def call(start_collector: StartCollector) -> Caller:
    caller = start_collector().call
    assert caller.apply(PLAN).problems == ()
    return caller


def test_samples_make_a_vantage_online(call: Caller) -> None:
    """A vantage is silent until its samples arrive, then online, with the heartbeat of its newest push."""
    call.push(Batch(vantage=US, epoch=5, seq=0, heartbeat=HEARTBEAT))
    silent = status(call, "us-1")
    assert (silent.liveness, silent.newest_sample_at) == (Liveness.SILENT, None)
    call.push(Batch(vantage=US, epoch=5, seq=1, samples=samples(call, 3), heartbeat=replace(HEARTBEAT, finished=3)))
    online = status(call, "us-1")
    assert (online.liveness, online.reason) == (Liveness.ONLINE, "samples arrive")
    assert online.newest_sample_at is not None
    assert (online.agent_version, online.plan_version, online.region) == ("0.3.0", 1, "us-east-2")
    assert (online.clock_offset_us, online.clock_uncertainty_us, online.loop_lag_us) == (-1_500, 300, 40)
    assert (online.finished, online.ledgered) == (3, 3)
    assert online.next_heartbeat_at == online.last_seen_at + 15 * SECOND_US


def test_a_region_has_its_place(start_collector: StartCollector) -> None:
    """A vantage has the published city of its region, the place that the operator states, or none."""
    call = start_collector(more=["--region-location", "lab=48.14,11.58"]).call
    assert call.apply(PLAN).problems == ()
    for name, region in (("us-1", "us-east-2"), ("lab-1", "lab"), ("attic-1", "attic")):
        call.push(Batch(vantage=Vantage(name=name, region=region), epoch=5, seq=0, heartbeat=HEARTBEAT))
    places = {one.region: (one.latitude, one.longitude, one.place) for one in call.vantages().vantages}
    assert places == {"us-east-2": (39.96, -83.0, "Columbus, Ohio"), "lab": (48.14, 11.58, None), "attic": (None,) * 3}


def test_an_overdue_heartbeat_is_late(call: Caller) -> None:
    """A vantage whose next heartbeat is overdue is late, however fresh its samples."""
    heartbeat = replace(HEARTBEAT, next_heartbeat_us=1)
    call.push(Batch(vantage=US, epoch=5, seq=1, samples=samples(call, 1), heartbeat=heartbeat))
    eventually(20, lambda: status(call, "us-1").liveness is Liveness.LATE, "the vantage is late")
    assert "the next was due" in status(call, "us-1").reason


def test_a_stopped_agent_is_stopped_until_its_next_start(call: Caller) -> None:
    """A goodbye makes a vantage stopped until the next start's heartbeat, also if it arrives after that."""
    goodbye = Batch(vantage=US, epoch=5, seq=0, heartbeat=replace(HEARTBEAT, stopped=True), epoch_history=(5,))
    call.push(replace(goodbye, seq=1, samples=samples(call, 1), heartbeat=HEARTBEAT))
    call.push(goodbye)
    assert status(call, "us-1").liveness is Liveness.STOPPED
    call.push(Batch(vantage=US, epoch=9, seq=0, heartbeat=HEARTBEAT, epoch_history=(9, 5)))
    assert status(call, "us-1").liveness is Liveness.ONLINE
    with pytest.raises(grpc.RpcError, match="another agent delivered"):
        call.push(goodbye)
    assert status(call, "us-1").liveness is Liveness.ONLINE


def test_without_a_plan_every_vantage_is_empty(start_collector: StartCollector) -> None:
    """Before the first plan a vantage without samples is empty, not silent."""
    call = start_collector().call
    assert call.vantages().vantages == ()
    call.push(Batch(vantage=US, epoch=5, seq=0, heartbeat=replace(HEARTBEAT, plan_version=0)))
    assert status(call, "us-1").liveness is Liveness.EMPTY
    assert call.vantages().plan_version == 0


def test_the_ledger_counts_the_current_spool(call: Caller) -> None:
    """The ledger counts only the batches of the spool that pushed last."""
    call.push(Batch(vantage=US, epoch=5, seq=1, samples=samples(call, 4), heartbeat=replace(HEARTBEAT, finished=4)))
    call.push(Batch(vantage=US, epoch=9, seq=1, samples=samples(call, 2), heartbeat=replace(HEARTBEAT, finished=2)))
    call.push(Batch(vantage=US, epoch=9, seq=2, samples=samples(call, 1), heartbeat=replace(HEARTBEAT, finished=3)))
    assert (status(call, "us-1").finished, status(call, "us-1").ledgered) == (3, 3)


def test_a_heartbeat_is_returned(call: Caller) -> None:
    """A refused plan, drops, quarantine and missed rounds are returned as the agent reported them."""
    heartbeat = replace(
        HEARTBEAT,
        plan_version=0,
        refused_plan_version=1,
        refused_plan_reason="sim/a would send the credential 'x' to h",
        missing_keys="sim/a needs the credential 'y', which this agent does not have",
        refused_targets="sim/b: 10.0.0.1 is not a public address, nor in an allowed network",
        dropped={"spool_full": 7},
        quarantined=2,
        rounds_missed=3,
        spool_depth=5,
        spool_oldest_at=now_at() - 60 * SECOND_US,
    )
    call.push(Batch(vantage=US, epoch=5, seq=0, heartbeat=heartbeat))
    told = status(call, "us-1")
    assert (told.refused_plan_version, told.refused_plan_reason) == (1, heartbeat.refused_plan_reason)
    assert told.missing_keys == heartbeat.missing_keys
    assert told.refused_targets == heartbeat.refused_targets
    assert (told.dropped, told.quarantined, told.rounds_missed) == ({"spool_full": 7}, 2, 3)
    assert (told.spool_depth, told.spool_oldest_at) == (5, heartbeat.spool_oldest_at)
    assert told.reason.endswith("it refuses plan 1")


def test_spend_and_forecast(call: Caller) -> None:
    """Spend is returned per vantage and provider with its budget, and the forecast is never below it."""
    day_at = now_at() // DAY_US * DAY_US
    spent = (Spend(provider="sim", day_at=day_at, usd=0.5, tokens=1_000, requests=10),)
    call.push(Batch(vantage=US, epoch=5, seq=0, heartbeat=replace(HEARTBEAT, spend=spent)))
    call.push(Batch(vantage=SG, epoch=6, seq=0, heartbeat=HEARTBEAT))
    lines = {(line.vantage, line.provider): line for line in call.spend(ANY)}
    assert lines.keys() == {("us-1", "sim"), ("us-1", "other"), ("sg-1", "sim"), ("sg-1", "other")}
    us = lines["us-1", "sim"]
    assert (us.usd, us.tokens, us.requests, us.day_at) == (0.5, 1_000, 10, day_at)
    assert us.forecast_usd is not None
    assert us.forecast_usd == pytest.approx(0.5 + (us.forecast_requests - 10) * 0.05)
    assert us.budget == Budget(provider="sim", requests_per_day=1000)
    sg = lines["sg-1", "sim"].budget
    assert sg is not None
    assert (sg.vantage, sg.usd_per_day) == ("sg-1", 2.5)
    assert lines["us-1", "other"].forecast_usd is None


def test_spend_is_selected(call: Caller) -> None:
    """Regions and targets restrict the spend; an unknown name is refused with the known ones."""
    for vantage in (US, SG):
        call.push(Batch(vantage=vantage, epoch=5, seq=0, heartbeat=HEARTBEAT))
    assert {line.vantage for line in call.spend(replace(ANY, regions=("us-east-2",)))} == {"us-1"}
    assert {line.provider for line in call.spend(replace(ANY, targets=("other/*",)))} == {"other"}
    with pytest.raises(grpc.RpcError, match="unknown region 'mars'"):
        call.spend(replace(ANY, regions=("mars",)))
