"""Fixture for a wide-area network: network namespaces as two regions and a hub, each linked with a fixed delay."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

TESTDATA = Path(__file__).resolve().parent / "testdata"
HUB_ADDRESS = "10.77.0.1"
HUB_NAME = "llm.example"
# Round trips in microseconds, typical for the same country and for the other side of the world.
ROUND_TRIPS_US = {"near": 30_000, "far": 220_000}
END_SECONDS = 10.0


@dataclass(slots=True)
class WideArea:
    """Namespaces `near` and `far`, each one round trip away from `hub`, where `HUB_NAME` is `HUB_ADDRESS`."""

    prefix: str
    cable: subprocess.Popen[str] = field(repr=False)

    def command(self, place: str, words: Sequence[str]) -> list[str]:
        """Return the command that runs `words` in a namespace, with the hub's name server."""
        return ["ip", "netns", "exec", f"{self.prefix}-{place}", *words]

    def run(self, place: str, *words: str, fine: Sequence[int] = (0,), seconds: float = 120) -> str:
        """Run a Python module in a namespace and return its output; its exit code must be in `fine`."""
        command = self.command(place, [sys.executable, "-m", *words])
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=seconds)
        assert done.returncode in fine, done.stderr
        return done.stdout

    def cut(self, place: str) -> None:
        """Drop all packets between a region and the hub."""
        self._order("cut", place)

    def mend(self, place: str) -> None:
        """Restore the link."""
        self._order("mend", place)

    def _order(self, what: str, place: str) -> None:
        assert self.cable.stdin is not None
        assert self.cable.stdout is not None
        command = f"{what} {list(ROUND_TRIPS_US).index(place)}\n"
        self.cable.stdin.write(command)
        self.cable.stdin.flush()
        assert self.cable.stdout.readline() == command


def unavailable_reason() -> str | None:
    """Return the reason why this machine cannot create the network, or `None`."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need `ip` (Debian: iproute2)"
    if not Path("/dev/net/tun").exists():
        return "/dev/net/tun does not exist"
    made = subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True)
    return None if made.returncode == 0 else "this machine does not allow network namespaces"


@pytest.fixture
def wide_area() -> Iterator[WideArea]:
    """Two regions and a hub, removed with all their processes after the test."""
    if reason := unavailable_reason():
        pytest.skip(reason)
    with _wide_area(f"isochrone{os.getpid()}") as area:
        yield area


@contextmanager
def started(command: Sequence[str], sign: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process, wait for its ready line, and kill it after the block."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.strip() == sign, f"{command} said {line!r}"
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def started_with_json(command: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Start one of our programs, yield its ready line as JSON, and stop it after the block."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"{command} did not start"
        yield json.loads(line)
    finally:
        process.terminate()
        process.communicate(timeout=END_SECONDS)


@contextmanager
def _wide_area(prefix: str) -> Iterator[WideArea]:
    with ExitStack() as stack:
        for place in ("hub", *ROUND_TRIPS_US):
            stack.enter_context(_namespace(f"{prefix}-{place}"))
        links = [
            {"ends": [[f"{prefix}-hub", f"to-{place}"], [f"{prefix}-{place}", "to-hub"]], "delay_us": rtt_us // 2}
            for place, rtt_us in ROUND_TRIPS_US.items()
        ]
        cable = [sys.executable, str(TESTDATA / "delay_line.py"), json.dumps(links)]
        area = WideArea(prefix, stack.enter_context(started(cable, "ready")))
        _ip("-n", f"{prefix}-hub", "addr", "add", f"{HUB_ADDRESS}/32", "dev", "lo")
        for number, place in enumerate(ROUND_TRIPS_US, 1):
            _plug(prefix, place, number)
        names = [sys.executable, str(TESTDATA / "nameserver.py"), HUB_ADDRESS, HUB_NAME]
        stack.enter_context(started(area.command("hub", names), "ready"))
        yield area


@contextmanager
def _namespace(name: str) -> Iterator[None]:
    # `ip netns exec` mounts the files of this folder over those of /etc.
    folder = Path("/etc/netns") / name
    folder.mkdir(parents=True)
    (folder / "resolv.conf").write_text(f"nameserver {HUB_ADDRESS}\n")
    _ip("netns", "add", name)
    try:
        _ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        for pid in subprocess.run(
            ["ip", "netns", "pids", name], capture_output=True, text=True, check=True
        ).stdout.split():
            os.kill(int(pid), signal.SIGKILL)
        _ip("netns", "del", name)
        shutil.rmtree(folder)


def _plug(prefix: str, place: str, number: int) -> None:
    """Assign addresses to both ends of a link, and a default route to the region."""
    hub, region = f"10.77.{number}.1", f"10.77.{number}.2"
    _ip("-n", f"{prefix}-hub", "addr", "add", hub, "peer", region, "dev", f"to-{place}")
    _ip("-n", f"{prefix}-hub", "link", "set", f"to-{place}", "up")
    _ip("-n", f"{prefix}-{place}", "addr", "add", region, "peer", hub, "dev", "to-hub")
    _ip("-n", f"{prefix}-{place}", "link", "set", "to-hub", "up")
    _ip("-n", f"{prefix}-{place}", "route", "add", "default", "dev", "to-hub")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
