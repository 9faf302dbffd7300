"""The processes of a benchmark: our programs, what they report when ready, and their memory and CPU from /proc."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import grpc
import grpc.aio
from psycopg.conninfo import conninfo_to_dict

from isochrone_common.address import parse_address
from isochrone_common.trust import PLAIN, Trust, presented_certificate
from isochrone_wire.plan_document.document import load
from isochrone_wire.v1 import operations_pb2, operations_pb2_grpc
from testdata.preforked import Program

TICKS = os.sysconf("SC_CLK_TCK")
Options = Sequence[tuple[str, int | str]]


def start(module: str, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", module, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


class Dialog:
    """A module of a benchmark in a process that is controlled by lines of JSON, and answers with such lines."""

    def __init__(self, module: str, *first: object) -> None:
        self._module = module
        self.process = Program[str](module, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for line in first:
            self.send(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def send(self, what: object = None) -> None:
        assert self.process.stdin is not None
        plain = asdict(what) if is_dataclass(what) and not isinstance(what, type) else what
        self.process.stdin.write(json.dumps(plain) + "\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        """Return the next answer. Exits the benchmark if the process has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._module} has ended")
        return json.loads(line)

    def ask(self, what: object = None) -> Any:
        self.send(what)
        return self.receive()

    def end(self) -> None:
        with self.process:
            self.process.kill()


def next_line() -> Any:
    """Return the next line of the benchmark that controls this process; `None` at its end."""
    return json.loads(sys.stdin.readline() or "null")


def reply(what: object = None) -> None:
    print(json.dumps(what), flush=True)  # noqa: T201  # the answer


def exit_on_sigterm() -> None:
    """Exit normally on SIGTERM, so that child processes are stopped."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def raise_limit(descriptors: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = descriptors if hard == resource.RLIM_INFINITY else min(descriptors, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def ready(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return the line of JSON that reports readiness. Exits the benchmark if the process has ended."""
    assert process.stdout is not None
    text = process.stdout.readline()
    if not text:
        raise SystemExit(f"{process.args!r} exited with {process.wait()} before it was ready")
    line: dict[str, Any] = json.loads(text)
    return line


def rss_mb(pid: int) -> float:
    """Return the resident memory in megabytes (10^6 bytes)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024 / 1e6


def peak_mb(pid: int) -> float:
    """Return the most resident memory that a process and its children had, in megabytes (10^6 bytes)."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    statuses = [Path(f"/proc/{own}/status").read_text() for own in (pid, *children)]
    return sum(int(status.split("VmHWM:")[1].split()[0]) for status in statuses) * 1024 / 1e6


def cpu_seconds(pid: int) -> float:
    """Return the user and system time so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A running server: its process and log, what it reported when ready, and the trust of its clients."""

    process: subprocess.Popen[Any]
    reported: Mapping[str, str]
    trust: Trust = PLAIN
    log: Path = Path(os.devnull)

    @property
    def address(self) -> str:
        return self.reported["listen"]

    @property
    def pid(self) -> int:
        """The process id. Exits the benchmark if the process has ended."""
        if self.process.poll() is not None:
            raise SystemExit(f"the server exited with {self.process.returncode}: {self.log.read_text()[-1000:]}")
        return self.process.pid


@contextmanager
def running_collector(folder: Path, conninfo: str, *options: str) -> Iterator[RunningServer]:
    """Run the collector with `options` on a free port, with its data and log in `folder`."""
    url = f"postgresql:///?{urlencode({key: value for key, value in conninfo_to_dict(conninfo).items() if value})}"
    where = ("--listen", "127.0.0.1:0", "--database-url", url, "--data-dir", str(folder / "collector"))
    has_tls = "--tls" in options
    more = options if has_tls else ("--trust-loopback", *options)
    command = [sys.executable, "-m", "isochrone_collector", "serve", *where, *more]
    log = folder / "collector.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output)
    try:
        reported = ready(process)
        trust = presented_certificate(parse_address(reported["listen"])).pinned if has_tls else PLAIN
        yield RunningServer(process=process, log=log, reported=reported, trust=trust)
    finally:
        with process:
            process.terminate()
            process.wait(30)


def own_channel(
    address: str, *, roots: str | None, server_name: str | None, credential: str = "", options: Options = ()
) -> grpc.aio.Channel:
    """Open a separate connection (gRPC shares one of equal options), in plain text without the certificates `roots`."""
    options = [*options, ("grpc.use_local_subchannel_pool", 1)]
    if roots is None:
        return grpc.aio.insecure_channel(address, options=options)
    if server_name:
        options.append(("grpc.ssl_target_name_override", server_name))
    trust = grpc.ssl_channel_credentials(root_certificates=roots.encode())
    if credential:
        trust = grpc.composite_channel_credentials(trust, grpc.access_token_call_credentials(credential))
    return grpc.aio.secure_channel(address, trust, options=options)


def apply_plan(channel: Any, plan: Mapping[str, Any]) -> dict[str, int]:
    """Apply a plan over an operator's channel; return the ids of its targets by name."""
    text = json.dumps(plan)
    request = operations_pb2.ApplyPlanRequest(document=text, applied_by="bench")
    change = operations_pb2_grpc.OperationsStub(channel).ApplyPlan(request, timeout=30)
    read = load(text, version=1).plan
    if change.problems or read is None:
        raise SystemExit(f"the plan was refused: {change.problems}")
    return {target.name: target.id for target in read.targets}


class Chain(ExitStack):
    """A collector with its own database, a plan, and agents: real processes, with their data in `folder`."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self.socket = f"unix:{folder / 'collector' / 'collector.sock'}"
        where = ("--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--data-dir", str(folder / "collector"))
        self.reported = ready(self.start("isochrone_collector", "serve", "--trust-loopback", *where))

    def start(self, module: str, *options: str) -> subprocess.Popen[bytes]:
        process = self.enter_context(start(module, *options))
        self.callback(process.terminate)
        return process

    def apply(self, plan: Mapping[str, Any]) -> None:
        document = self._folder / "plan.yaml"
        document.write_text(json.dumps(plan))
        apply = ("apply", str(document), "--collector", self.reported["listen"], "--yes")
        with start("isochrone_collector", *apply) as applying:
            if applying.wait(60):
                raise SystemExit("the plan was not applied")

    def start_agent(self, name: str, region: str, *options: str) -> subprocess.Popen[bytes]:
        where = ("--vantage", name, "--region", region, "--data-dir", str(self._folder / name))
        return self.start("isochrone_agent", "run", *where, "--collector", self.reported["listen"], *options)

    def samples(self) -> list[dict[str, Any]]:
        command = [sys.executable, "-m", "isochrone_client", "samples", "--collector", self.socket, "--output", "json"]
        done = subprocess.run([*command, "--limit", "10000"], capture_output=True, text=True, check=True)
        rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
        return rows
