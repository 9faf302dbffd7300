"""The wide-area network in namespaces: its round trips, who may create it, and that nothing of it remains."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fixtures.network import network
from testdata.waiting import eventually

PACKAGE = Path(__file__).resolve().parents[4] / "deploy" / "simulator" / "isochrone_sim"
ROUND_TRIPS_MS = {"near": 20.0, "far": 90.0}
SYSTEM_PYTHON = "/usr/bin/python3"
NOBODY = "65534"
# Packets pass two processes on the way, which wait for a free core.
LATE_MS = 15.0
ECHO = """
import socket
with socket.create_server(("10.77.0.1", 9999)) as server:
    print("ready", flush=True)
    while True:
        with server.accept()[0] as connection:
            connection.sendall(connection.recv(1))
"""
MEASURE = """
import json, socket, time
def once():
    started = time.perf_counter()
    with socket.create_connection(("10.77.0.1", 9999)) as connection:
        connected = time.perf_counter()
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"
        return connected - started, time.perf_counter() - connected
print(json.dumps([once() for _ in range(9)]))
"""


@contextmanager
def echoing(python: str, answer: dict[str, Any]) -> Iterator[None]:
    with subprocess.Popen([*answer["hub"], python, "-c", ECHO], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()


def least_ms(python: str, within: Sequence[str]) -> tuple[float, float]:
    """The least time to connect from a region to the hub, and that of an echo, in milliseconds."""
    done = subprocess.run([*within, python, "-c", MEASURE], capture_output=True, text=True, check=True, timeout=60)
    connects, echoes = zip(*json.loads(done.stdout), strict=True)
    return min(connects) * 1000, min(echoes) * 1000


@pytest.fixture
def answer() -> Iterator[dict[str, Any]]:
    """The ready line of a network."""
    with network(**ROUND_TRIPS_MS) as (_, ready):
        if isinstance(ready, str):
            pytest.skip(ready)
        yield ready


def test_a_round_trip_takes_its_time(answer: dict[str, Any]) -> None:
    """A connection and an echo take a round trip each, never less; a region has no other device."""
    with echoing(sys.executable, answer):
        for region, round_trip_ms in ROUND_TRIPS_MS.items():
            for found_ms in least_ms(sys.executable, answer["regions"][region]):
                assert round_trip_ms <= found_ms <= round_trip_ms + LATE_MS, region
    listing = [*answer["regions"]["near"], "cat", "/proc/net/dev"]
    listed = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.splitlines()[2:]
    assert sorted(line.split(":")[0].strip() for line in listed) == ["hub", "lo"]


def test_the_network_ends_with_its_input() -> None:
    """When the process that holds its standard input is gone, even by SIGKILL, the network process ends."""
    code = (
        "import subprocess, sys, time\n"
        "command = [sys.executable, '-m', 'isochrone_sim.network', 'near=1']\n"
        "process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "print(process.pid, bool(process.stdout.readline()), flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        pid, is_ready = holder.stdout.readline().split()
        holder.send_signal(signal.SIGKILL)
    if is_ready != "True":
        pytest.skip("this machine does not allow network namespaces")
    eventually(10, lambda: not Path(f"/proc/{pid}").exists(), "the end of the network")


@pytest.fixture
def as_nobody() -> Iterator[list[str]]:
    """The words to put before a command that runs as `nobody`, with this package and a device that everyone may open,
    as is usual outside of containers.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can become another user; without root, the other tests of this file show the same")
    if not Path(SYSTEM_PYTHON).exists() or shutil.which("setpriv") is None:
        pytest.skip(f"another user cannot run the interpreter of this test; needs {SYSTEM_PYTHON} and setpriv")
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copytree(PACKAGE / "network", folder / "isochrone_sim" / "network")
        (folder / "isochrone_sim" / "__init__.py").touch()
        device = folder / "tun"
        try:
            os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(10, 200))
        except PermissionError:
            pytest.skip("this machine does not allow devices")
        device.chmod(0o666)
        change = (
            f'mount --bind {device} /dev/net/tun && exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups "$@"'
        )
        yield ["unshare", "--mount", "sh", "-c", change, "sh", "env", f"PYTHONPATH={folder}"]


def test_a_network_needs_no_privilege(as_nobody: list[str]) -> None:
    """A user without privileges creates the same network, in a user namespace, and commands in it run as that user."""
    command = [*as_nobody, SYSTEM_PYTHON, "-m", "isochrone_sim.network", "near=20"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        if not line:
            pytest.skip(process.stderr.read().decode().strip().splitlines()[-1])
        ready = {place: [*as_nobody, *words] for place, words in flattened(json.loads(line)).items()}
        who = subprocess.run([*ready["near"], "id", "-u"], capture_output=True, text=True, check=True).stdout
        assert who.strip() == NOBODY
        with echoing(SYSTEM_PYTHON, ready):
            assert min(least_ms(SYSTEM_PYTHON, ready["near"])) >= ROUND_TRIPS_MS["near"]


def flattened(answer: dict[str, Any]) -> dict[str, list[str]]:
    """The words to put before a command, by the name of the place."""
    return {"hub": answer["hub"], **answer["regions"]}
