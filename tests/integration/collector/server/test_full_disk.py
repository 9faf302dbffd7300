"""A disk of the embedded PostgreSQL that fills up: an alert, then no backlogs, then no pushes, and a recovery."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from chaos import disk
from fixtures.collector import Collector, StartCollector
from isochrone_wire.answers import Selection, Window
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import DAY_US, SECOND_US, Batch, Outcome, Sample, Vantage
from testdata.waiting import eventually

PLAN = "baseline: us\ntargets: [{model: a, provider: sim, base_url: http://h}]\n"
REASON = disk.unavailable_reason()
DISK_MB = 600
MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own for the data folder. Request it before the collectors, whose servers must end first."""
    folder = tmp_path / "small"
    disk.mount(folder, size_mb=DISK_MB)
    yield folder
    disk.unmount(folder, idle=True)


def leave(folder: Path, free_mb: int) -> None:
    with Path(folder, "ballast").open("ab") as ballast:
        while shutil.disk_usage(folder).free > free_mb * MIB:
            ballast.write(bytes(MIB))
            ballast.flush()


def now_at() -> int:
    return time.time_ns() // 1000


def refusal(collector: Collector, batch: Batch) -> str:
    """Push; return the details of the refusal, empty if it is stored."""
    try:
        collector.call.push(batch)
    except grpc.RpcError as error:
        call: Any = error
        assert call.code() is grpc.StatusCode.UNAVAILABLE, call.details()
        return str(call.details())
    return ""


@pytest.mark.slow
@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_a_disk_that_fills_up(small_disk: Path, start_collector: StartCollector) -> None:
    """Backlogs are refused before current samples, all pushes before the disk is full; every batch is stored once."""
    # Little is less than 240 MB, no backlog less than 120 MB, full less than 60 MB.
    collector = start_collector(data_dir=small_disk / "data", more=["--disk-low", "40"])
    collector.call.apply(PLAN)
    target = collector.call.targets().targets[0].id
    sample = Sample(target_id=target, round_at=now_at(), outcome=Outcome.OK, dispatched_at=now_at(), ttft_us=1)
    live = Batch(vantage=Vantage(name="us-1", region="us"), epoch=7, seq=1, samples=(sample,))
    old = replace(live, epoch=8, samples=(replace(sample, round_at=now_at() - 3600 * SECOND_US),))
    assert (refusal(collector, live), refusal(collector, old)) == ("", "")

    leave(small_disk, 90)
    eventually(20, lambda: "no_backlog" in collector.log(), "the level noticed")
    assert refusal(collector, replace(live, seq=2)) == ""
    assert "disk_low" in refusal(collector, replace(old, seq=2))
    assert collector.scrape()["isochrone_disk_level"] == 2

    leave(small_disk, 40)
    eventually(20, lambda: '"full"' in collector.log(), "the level noticed")
    assert "disk_low" in refusal(collector, replace(live, seq=3))
    collector.call.push(replace(live, seq=0, samples=()))

    disk.fill(small_disk)
    server = int((small_disk / "data/postgres/postmaster.pid").read_text().split()[0])
    os.kill(server, signal.SIGKILL)
    eventually(20, lambda: "waits for room" in collector.log(), "the server down")
    time.sleep(2)
    assert "postgres.restarted" not in collector.log()
    disk.free(small_disk)
    eventually(60, lambda: refusal(collector, replace(live, seq=3)) == "", "pushes accepted again")
    assert refusal(collector, replace(old, seq=2)) == ""
    window = Window(from_at=now_at() - DAY_US, until_at=now_at() + DAY_US)
    assert len(collector.call.samples(Selection(window=window))) == 5
    assert [one.kind for one in collector.call.alerts(window).alerts] == [AlertKind.DISK_LOW]
    assert collector.log().count("postgres.restarted") == 1
