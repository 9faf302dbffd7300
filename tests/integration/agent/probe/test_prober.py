"""The prober with a real server on a real socket: outcomes, and times that agree with the ground truth."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.agent import StartAgent
from fixtures.peer import ANSWER, STREAM_HEAD, peer
from fixtures.simulator import Simulator, StartSimulator
from isochrone_agent.clock import now_at
from isochrone_agent.probe import transport
from isochrone_agent.probe.prober import Prober
from isochrone_agent.settings import DialOptions
from isochrone_agent.spool.spool import Spool
from isochrone_wire import codec
from isochrone_wire.model import (
    SECOND_US,
    ConnectionUse,
    Outcome,
    Plan,
    Quality,
    Sample,
    Target,
    Timeouts,
    TlsFiles,
    Workload,
)
from isochrone_wire.v1 import sample_pb2
from testdata.trust import system_trust
from testdata.waiting import eventually

# Nothing here waits for a limit, and a busy machine may take long.
PATIENT = Timeouts(connect_us=30_000_000, first_token_us=30_000_000, gap_us=30_000_000, total_us=90_000_000)
FIRST = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'


def target(simulator: Simulator, model: str, **more: Any) -> Target:
    return target_at(more.pop("base_url", simulator.base_url), model, **more)


def target_at(base_url: str, model: str, *, timeouts: Timeouts = PATIENT, **more: Any) -> Target:
    workload = Workload(max_output_tokens=40, timeouts=timeouts)
    fields: dict[str, Any] = {"provider": "sim", "base_url": base_url, "workload": workload} | more
    return Target(id=7, name=model, model=model, **fields)


async def probe(at: Target, *, key: str | None = None, dial_options: DialOptions | None = None) -> Sample:
    prober = Prober(vantage="here", tls=system_trust(), dial_options=dial_options or DialOptions())
    return await prober.probe(at, round_at=now_at(), key=key)


@pytest.mark.parametrize(
    ("base_url", "sentence"),
    [
        ("http://127.0.0.1:1/v1", "Connection refused"),
        ("http://no-such-host.invalid/v1", "not known"),
        ("https://127.0.0.1:1/v1", "Connection refused"),
    ],
)
async def test_no_connection_is_a_sample(fault_simulator: Simulator, base_url: str, sentence: str) -> None:
    """A refused connection and an unknown host are samples with the system's message."""
    sample = await probe(target(fault_simulator, "m", base_url=base_url))
    assert sample.outcome is Outcome.CONNECT_FAILED
    assert sentence in (sample.error or "")


async def test_times_agree_with_the_truth(fault_simulator: Simulator) -> None:
    """TTFT and the span of the stream are what the simulator recorded, not what it was configured to do."""
    samples = [await probe(target(fault_simulator, "fault-crlf")) for _ in range(9)]
    truth = {record["request_id"]: record for record in fault_simulator.truth()}
    errors_us = []
    for sample in samples:
        record = truth[sample.request_id]
        true_ttft_us = (record["first_token_at_ns"] - record["request_at_ns"]) / 1000
        assert sample.ttft_us is not None
        errors_us.append(abs(sample.ttft_us - true_ttft_us))
        assert sample.output_tokens == 40
    # A busy machine delays some of them; what is measured wrong is wrong in each.
    assert sorted(errors_us)[1] < 1_000


async def test_connect_to_reaches_another_address(fault_simulator: Simulator) -> None:
    """The connection goes to the address of `connect_to`, while the request keeps the host of its URL."""
    port = int(fault_simulator.base_url.rsplit(":", 1)[1].split("/")[0])
    dial_options = DialOptions(connect_to={("llm.example", 80): ("127.0.0.1", port)})
    sample = await probe(
        target(fault_simulator, "fault-crlf", base_url="http://llm.example/v1"), dial_options=dial_options
    )
    assert (sample.outcome, sample.remote_address) == (Outcome.OK, "127.0.0.1")


async def test_the_kernel_stamps_on_linux(fault_simulator: Simulator) -> None:
    """Kernel receive timestamps are used if available, and the round trip is the kernel's."""
    sample = await probe(target(fault_simulator, "fault-crlf"))
    if Quality.USER_STAMPS in sample.quality:
        pytest.skip("this kernel gives no receive timestamps")
    assert sample.loop_lag_us is not None
    assert sample.rtt_us


async def test_a_busy_loop_shows_without_kernel_stamps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without kernel timestamps the lag of the event loop is measured, and flags the sample as well."""
    monkeypatch.setattr(transport, "enable_receive_stamps", lambda _sock: False)

    async def handle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        await writer.drain()
        time.sleep(0.08)  # noqa: ASYNC251  # the point: the loop is blocked
        await asyncio.sleep(0.1)
        writer.write(ANSWER)

    async with peer(handle) as port:
        sample = await probe(target_at(f"http://127.0.0.1:{port}/v1", "m"))
    assert sample.outcome is Outcome.OK
    # A beat may have been due up to 10 ms after the loop stopped.
    assert sample.loop_lag_us is not None
    assert sample.loop_lag_us > 65_000
    assert {"lagged", "user_stamps"} <= set(sample.quality.labels)


async def test_a_warm_connection_is_kept_and_said_to_be(fault_simulator: Simulator) -> None:
    """With `connection: warm` the second probe uses the first one's connection: no phases, a flag, a round trip."""
    prober = Prober(vantage="here", tls=system_trust())
    warm = Workload(max_output_tokens=40, timeouts=PATIENT, connection=ConnectionUse.WARM)
    at = target(fault_simulator, "fault-crlf", workload=warm)
    first, second = [await prober.probe(at, round_at=now_at()) for _ in range(2)]
    await prober.aclose()
    assert (first.tcp_us is None, Quality.REUSED in first.quality) == (False, False)
    assert (second.connect_us, Quality.REUSED in second.quality) == (None, True)
    assert (second.outcome, second.remote_address, second.rtt_us is None) == (Outcome.OK, "127.0.0.1", False)


@pytest.mark.parametrize("change", [{"tls": TlsFiles()}, {"happy_eyeballs": True}])
async def test_a_warm_connection_closes_with_other_targets(fault_simulator: Simulator, change: dict[str, Any]) -> None:
    """With other TLS files in a new plan, the next probe opens a connection; without, it reuses the old one."""
    prober = Prober(vantage="here", tls=system_trust())
    warm = Workload(max_output_tokens=40, timeouts=PATIENT, connection=ConnectionUse.WARM)
    at = target(fault_simulator, "fault-crlf", workload=warm)
    samples = []
    for planned in (at, at, replace(at, **change)):
        await prober.retain([planned])
        samples.append(await prober.probe(planned, round_at=now_at()))
    await prober.aclose()
    assert [Quality.REUSED in sample.quality for sample in samples] == [False, True, False]


async def test_a_warm_connection_that_was_dropped_is_made_anew(fault_simulator: Simulator) -> None:
    """After a stream that the provider cut, the next probe opens a new connection and succeeds."""
    prober = Prober(vantage="here", tls=system_trust())
    warm = Workload(max_output_tokens=40, timeouts=PATIENT, connection=ConnectionUse.WARM)
    cut = await prober.probe(target(fault_simulator, "fault-cut", workload=warm), round_at=now_at())
    fine = await prober.probe(target(fault_simulator, "fault-crlf", workload=warm), round_at=now_at())
    await prober.aclose()
    assert (cut.outcome, fine.outcome) == (Outcome.TRUNCATED, Outcome.OK)
    assert fine.tcp_us is not None


async def test_a_burst_is_so_many_samples(fault_simulator: Simulator) -> None:
    """A burst of six is six concurrent streams, each with its own sample; none waits for another."""
    prober = Prober(vantage="here", tls=system_trust())
    workload = Workload(max_output_tokens=40, timeouts=PATIENT, concurrency=6)
    samples = await prober.burst(target(fault_simulator, "fault-crlf", workload=workload), round_at=now_at())
    assert [s.outcome for s in samples] == [Outcome.OK] * 6
    assert {(s.chunks, s.output_tokens) for s in samples} == {(40, 40)}
    assert len({s.request_id for s in samples}) == 6
    spread_us = max(s.dispatched_at for s in samples) - min(s.dispatched_at for s in samples)
    assert spread_us < min(s.e2e_us or 0 for s in samples)


async def test_a_burst_without_threads_is_complete(fault_simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams without a thread for their lookup are skipped, the others are measured, and each has a sample."""
    transport._pool.cache_clear()
    start, started = threading.Thread.start, Counter[str]()

    def few(thread: threading.Thread) -> None:
        pool = thread.name.partition("_")[0]
        if pool == "resolver" and started[pool] == 8:
            raise RuntimeError("can't start new thread")
        started[pool] += 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", few)
    monkeypatch.setattr(transport, "_look_up", _slowly(transport._look_up))
    prober = Prober(vantage="here", tls=system_trust())
    workload = Workload(max_output_tokens=2, timeouts=PATIENT, concurrency=20)
    url = fault_simulator.base_url.replace("127.0.0.1", "localhost")
    at = target_at(url, "fault-crlf", workload=workload)
    samples = await prober.burst(at, round_at=now_at())
    transport._pool.cache_clear()
    found = Counter(sample.outcome for sample in samples)
    assert found == {Outcome.OK: 8, Outcome.SKIPPED_NOT_READY: 12}
    skipped = [sample for sample in samples if sample.outcome.skipped]
    assert {(sample.sent, sample.error) for sample in skipped} == {
        (False, "no thread for the name lookup: can't start new thread")
    }


def _slowly(look_up: Callable[..., transport.Resolved]) -> Callable[..., transport.Resolved]:
    def slow(*arguments: Any) -> transport.Resolved:
        time.sleep(0.2)
        return look_up(*arguments)

    return slow


async def test_a_stream_that_fails_inside_the_agent_does_not_leave_its_siblings(
    fault_simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug in one stream of a burst costs that stream only: the burst ends when all have ended, with a sample each."""
    prober = Prober(vantage="here", tls=system_trust())
    workload = Workload(max_output_tokens=2, timeouts=PATIENT, concurrency=3)
    probing = Prober.probe

    async def faulty(self: Prober, at: Target, *, stream: int = 0, **how: Any) -> Sample:
        if stream == 1:
            raise KeyError("a bug")
        return await probing(self, at, stream=stream, **how)

    monkeypatch.setattr(Prober, "probe", faulty)
    samples = await prober.burst(target(fault_simulator, "fault-crlf", workload=workload), round_at=now_at())
    assert [s.outcome for s in samples] == [Outcome.OK, Outcome.SKIPPED_NOT_READY, Outcome.OK]
    assert samples[1].error == "the agent failed: KeyError"
    assert samples[1].sent, "a request may have been sent, so it counts towards budgets"


@pytest.mark.parametrize("step_s", [3600, -3600])
async def test_a_wall_clock_that_steps_moves_no_duration(monkeypatch: pytest.MonkeyPatch, step_s: int) -> None:
    """A step of one hour in the middle of a stream changes no duration, and flags the sample."""
    honest, step_ns = time.time_ns, [0]
    monkeypatch.setattr(time, "time_ns", lambda: honest() + step_ns[0])

    async def handle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + FIRST)
        await asyncio.sleep(0.15)
        step_ns[0] = step_s * 1_000_000_000
        await asyncio.sleep(0.15)
        writer.write(ANSWER)

    began_ns = time.monotonic_ns()
    async with peer(handle) as port:
        sample = await probe(target_at(f"http://127.0.0.1:{port}/v1", "m", timeouts=Timeouts()))
    took_us = (time.monotonic_ns() - began_ns) / 1000
    assert sample.ttft_us is not None
    assert sample.e2e_us is not None
    assert 0 <= sample.ttft_us < sample.e2e_us - 250_000
    assert sample.e2e_us <= took_us
    assert Quality.CLOCK_STEPPED in sample.quality


MEGABYTE = 1_000_000
SCRIPT = """
import pathlib, runpy, sys
sys.argv[0] = "isochrone-agent"
try:
    runpy.run_module("isochrone_agent", run_name="__main__")
finally:
    # Not ru_maxrss: that one remembers the process this one was forked from.
    status = pathlib.Path("/proc/self/status")
    kilobytes = status.read_text().split("VmHWM:")[1].split()[0] if status.exists() else "0"
    sys.stderr.write(f"peak {int(kilobytes) * 1024}")
"""


def test_a_stream_of_a_gigabyte(fault_simulator: Simulator) -> None:
    """A flood of 1 GiB of healthy-looking tokens is given up at its limit, and the agent stays under 200 MB."""
    options = ["probe", "--base-url", fault_simulator.base_url, "--model", "fault-flood", "--output", "json"]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *options],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ,
        check=False,
    )
    [sample] = json.loads(done.stdout)["samples"]
    assert (sample["outcome"], "larger than" in sample["error"]) == ("garbled", True)
    assert int(done.stderr.rpartition("peak ")[2]) < 200 * MEGABYTE


RATES = (100, 400, 1_000)
WORLD = {
    "title": "Steady models of several speeds",
    "baseline": "us-east-2",
    "regions": {"us-east-2": "here"},
    "load_amplitude": 0,
    "pace_amplitude": 0,
    "models": [
        {
            "id": f"at-{rate}",
            "provider": "sim",
            "ttft_ms": 20,
            "tokens_per_second": rate,
            "answer_tokens": 200,
            "jitter_ms": 0.0,
        }
        for rate in RATES
    ],
}


def fast_target(base_url: str, rate: int, tokens: int) -> Target:
    model = f"at-{rate}"
    workload = Workload(max_output_tokens=tokens)
    return Target(id=rate, name=model, provider="sim", model=model, base_url=base_url, workload=workload)


def true_speed(record: Mapping[str, Any], tokens: int) -> float:
    """The tokens after the first, by the time in which they were written."""
    span_ns: int = record["last_token_at_ns"] - record["first_token_at_ns"]
    return (tokens - 1) / (span_ns / 1e9)


@pytest.mark.parametrize("tokens", [8, 20])
async def test_short_answers_have_the_speed_of_writing(simulator: StartSimulator, tmp_path: Path, tokens: int) -> None:
    """Answers that take 7 to 190 ms have a speed, and it is what the simulator recorded, at every rate."""
    world = tmp_path / "world.json"
    world.write_text(json.dumps(WORLD))
    running = simulator(more=["--world", str(world)])
    prober = Prober(vantage="here", tls=system_trust())
    samples: dict[int, list[Sample]] = {}
    for rate in RATES:
        at = fast_target(running.base_url, rate, tokens)
        samples[rate] = [await prober.probe(at, round_at=now_at()) for _ in range(9)]
    truth = {record["request_id"]: record for record in running.truth()}
    for found in samples.values():
        assert {sample.output_tokens for sample in found} == {tokens}
        # A busy machine merges the chunks of some of them; what the rule excludes, it excludes in each.
        ratios = [
            sample.tokens_per_second / true_speed(truth[sample.request_id], tokens)
            for sample in found
            if sample.tokens_per_second and sample.request_id
        ]
        assert ratios
        assert min(abs(ratio - 1) for ratio in ratios) < 0.05


# Under the limit of tasks of the agent's systemd unit: `pids.max` of a cgroup, as by `TasksMax`.
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


def test_the_agents_unit_has_room_for_its_threads() -> None:
    """`TasksMax` of the unit covers the threads for lookups, and as many again for gRPC, the spool and the runtime."""
    assert tasks_max() >= 2 * transport.MAX_THREADS


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
    """All streams are measured under the unit's limit; under a lower one, some are skipped with the reason."""
    provider = simulator()
    url = provider.base_url.replace("127.0.0.1", "localhost")
    begins_at = now_at() + 2 * SECOND_US
    burst = Target(
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
    spool.save_plan(Plan(version=1, baseline="us", targets=(burst,)))
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
    with closing(Spool(path)) as spool:
        bodies = [body for batch in iter(spool.lease, None) for body in batch.bodies]
    return [codec.decode(Sample, sample_pb2.Sample.FromString(body)) for body in bodies]
