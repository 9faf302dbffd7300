"""Bursts of a real agent under the limit of tasks of its systemd unit: `pids.max` of a cgroup, as by `TasksMax`."""

import re
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fixtures.agent import StartAgent
from fixtures.simulator import StartSimulator
from isochrone_agent.clock import now_at
from isochrone_agent.spool.spool import Spool
from isochrone_wire import codec
from isochrone_wire.model import SECOND_US, Outcome, Plan, Sample, Target, Workload
from isochrone_wire.v1 import sample_pb2
from testdata.waiting import eventually

STREAMS = 100
EVERY_US = 10 * SECOND_US
UNIT = Path(__file__).resolve().parents[4] / "deploy" / "agent" / "isochrone-agent.service"
# The real agent. Each lookup takes as long as one over the network, so that all its threads are needed at once.
SLOW_LOOKUPS = """
import runpy, time
from isochrone_agent.probe import transport
look_up = transport._look_up
transport._look_up = lambda *arguments: time.sleep(0.3) or look_up(*arguments)
runpy.run_module("isochrone_agent", run_name="__main__", alter_sys=True)
"""


def tasks_max() -> int:
    found = re.search(r"^TasksMax=(\d+)$", UNIT.read_text(), re.MULTILINE)
    assert found
    return int(found[1])


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A new cgroup whose tasks can be limited."""
    folder = next(_new_cgroups(), None)
    if folder is None:
        pytest.skip("no cgroup with pids.max can be made here, which takes root and a writable cgroup")
    yield folder
    eventually(10, lambda: not (folder / "cgroup.procs").read_text(), "the end of its processes")
    folder.rmdir()


def _new_cgroups() -> Iterator[Path]:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind, options, *_ = line.split()
        if kind == "cgroup2" or (kind == "cgroup" and "pids" in options.split(",")):
            folder = Path(mount, f"isochrone-test-{uuid.uuid4().hex}")
            with suppress(OSError):
                folder.mkdir()
                if (folder / "pids.max").exists():
                    yield folder
                else:
                    folder.rmdir()


@pytest.mark.parametrize("limit", [tasks_max(), 48])
def test_a_burst_of_cold_streams_under_a_limit_of_tasks(
    cgroup: Path, simulator: StartSimulator, start_agent: StartAgent, tmp_path: Path, limit: int
) -> None:
    """All streams of a burst are measured under the limit of the unit. Under a lower one some are skipped with the
    reason; either way there is a sample for each stream, and no request without one.
    """
    provider = simulator()
    url = provider.base_url.replace("127.0.0.1", "localhost")
    begins_at = now_at() + 2 * SECOND_US
    target = Target(
        # A round is due in two seconds.
        id=begins_at % EVERY_US,
        name="burst",
        model="fault-crlf",
        provider="sim",
        base_url=url,
        every_us=EVERY_US,
        workload=Workload(max_output_tokens=2, concurrency=STREAMS),
    )
    spool = Spool(tmp_path / "agents" / "us-1" / "spool.sqlite3")
    spool.save_plan(Plan(version=1, baseline="us", targets=(target,)))
    spool.close()
    script = tmp_path / "agent.py"
    script.write_text(SLOW_LOOKUPS)
    agent = start_agent(vantage="us-1", region="us", collector="127.0.0.1:1", script=script)
    (cgroup / "pids.max").write_text(str(limit))
    (cgroup / "cgroup.procs").write_text(str(agent.process.pid))
    eventually(20, lambda: agent.recorded() >= STREAMS, "a sample for each stream")
    assert agent.stop() == 0
    samples = recorded(agent.spool)
    sent = [sample for sample in samples if sample.sent]
    assert set(Counter(sample.round_at for sample in samples).values()) == {STREAMS}
    assert len(sent) == len(provider.truth())
    outcomes = Counter(sample.outcome for sample in samples)
    if limit == tasks_max():
        assert outcomes.keys() == {Outcome.OK}
    else:
        assert outcomes.keys() == {Outcome.OK, Outcome.SKIPPED_NOT_READY}
        assert {sample.error for sample in samples if not sample.sent} == {
            "no thread for the name lookup: can't start new thread"
        }


def recorded(path: Path) -> list[Sample]:
    """Return the samples in the spool of an agent that has ended."""
    spool, found = Spool(path), list[Sample]()
    while batch := spool.lease():
        found += [codec.decode(Sample, sample_pb2.Sample.FromString(body)) for body in batch.bodies]
    spool.close()
    return found
