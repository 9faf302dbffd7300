"""Fixture for a wide-area network: network namespaces as two regions and a hub, each linked with a fixed delay."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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

    network: subprocess.Popen[str] = field(repr=False)
    places: Mapping[str, Sequence[str]]
    resolver: Path

    def command(self, place: str, words: Sequence[str]) -> list[str]:
        """Return the command that runs `words` in a namespace, with the hub's name server."""
        mount = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
        return [*self.places[place], "unshare", "--mount", "sh", "-c", mount, str(self.resolver), *words]

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
        assert self.network.stdin is not None
        assert self.network.stdout is not None
        command = f"{what} {place}\n"
        self.network.stdin.write(command)
        self.network.stdin.flush()
        assert self.network.stdout.readline() == command


def unavailable_reason() -> str | None:
    """Return the reason why this machine cannot create a network in namespaces, or `None`."""
    with network(near=1.0) as (_, answer):
        return answer if isinstance(answer, str) else None


@contextmanager
def network(**round_trips_ms: float) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any] | str]]:
    """Start a network in namespaces; yield its process and its ready line, or the reason why it is not possible."""
    regions = [f"{region}={round_trip_ms}" for region, round_trip_ms in round_trips_ms.items()]
    command = [sys.executable, "-m", "isochrone_sim.network", *regions]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        # The end of the block closes its standard input, and waits for its end.
        yield process, json.loads(line) if line else process.stderr.read().strip().splitlines()[-1]


@pytest.fixture
def wide_area(tmp_path: Path) -> Iterator[WideArea]:
    """Two regions and a hub, which end with the test."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a name server of its own for a namespace needs root and `unshare` (Debian: util-linux)")
    resolver = tmp_path / "resolv.conf"
    resolver.write_text(f"nameserver {HUB_ADDRESS}\n")
    with network(**{place: rtt_us / 1000 for place, rtt_us in ROUND_TRIPS_US.items()}) as (process, answer):
        if isinstance(answer, str):
            pytest.skip(answer)
        area = WideArea(process, {"hub": answer["hub"], **answer["regions"]}, resolver)
        names = [sys.executable, str(TESTDATA / "nameserver.py"), HUB_ADDRESS, HUB_NAME]
        with started(area.command("hub", names), "ready"):
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
