"""The processes of a benchmark: our programs, what they report when ready, and their memory and CPU from /proc."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from psycopg.conninfo import conninfo_to_dict

from isochrone_common.address import parse_address
from isochrone_common.trust import PLAIN, Trust, presented_certificate
from testdata.preforked import Program

TICKS = os.sysconf("SC_CLK_TCK")


def start(module: str, *options: str) -> subprocess.Popen[bytes]:
    """Start one of our programs without output."""
    command = [sys.executable, "-m", module, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def start_dialog(module: str) -> subprocess.Popen[str]:
    """Start a module of a benchmark that is controlled over stdin and answers on stdout, by lines of text."""
    return Program[str](module, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ready(process: subprocess.Popen[bytes]) -> dict[str, str]:
    """Return the line of JSON that reports readiness. Exits the benchmark if the process has ended."""
    assert process.stdout is not None
    text = process.stdout.readline()
    if not text:
        raise SystemExit(f"{process.args!r} exited with {process.wait()} before it was ready")
    line: dict[str, str] = json.loads(text)
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

    process: subprocess.Popen[bytes]
    log: Path
    reported: Mapping[str, str]
    trust: Trust = PLAIN

    @property
    def address(self) -> str:
        """The address of its gRPC services."""
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
