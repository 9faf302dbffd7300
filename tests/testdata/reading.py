"""The `isochrone` command against a collector, real or fake: in this process, and as a process of its own."""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from isochrone_client.cli import cli
from testdata.preforked import Program

PATIENCE = 60.0
REGION = "us-east-2"
Process = subprocess.Popen[bytes]


def variables(where: Any, **more: str) -> dict[str, str]:
    """The variables that name a collector, or an address."""
    address = where if isinstance(where, str) else getattr(where, "http_address", where.address)
    return {"ISOCHRONE_COLLECTOR": address, **more}


def run(where: Any, *words: str, **more: str) -> Result:
    return CliRunner().invoke(cli, words, env=variables(where, **more), prog_name="isochrone")


@contextmanager
def started(where: Any, *words: str, **more: str) -> Iterator[Process]:
    """The command as a process with pipes, killed at the end of the block."""
    environment = {**os.environ, **variables(where, **more)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Program[bytes]("isochrone_client", *words, env=environment, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def lines_of(process: Process) -> Iterator[str]:
    """Yield the lines of standard output as they arrive; fail if one takes too long."""
    assert process.stdout is not None
    pending, until = b"", time.monotonic() + PATIENCE
    while True:
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
        assert ready, "no line came in time"
        piece = os.read(process.stdout.fileno(), 65_536)
        if not piece:
            return
        *lines, pending = (pending + piece).split(b"\n")
        yield from (line.decode() for line in lines)
        until = time.monotonic() + PATIENCE


def stopped(process: Process) -> tuple[str, str]:
    """Interrupt the process as Ctrl-C does, and return what else it printed; the exit code must be 0."""
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    return stdout.decode(), stderr.decode()


def printed(address: str, *words: str) -> dict[str, Any]:
    done = run(address, *words, "--output", "json")
    assert done.exit_code == 0, (done.output, done.exception)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def printed_rows(address: str, *words: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = printed(address, *words)["rows"]
    return rows


def options(file: Path, kind: str = "json") -> tuple[str, ...]:
    """The arguments of the command without `--follow`."""
    return ("routes", "export", "--region", REGION, "--output", kind, "--file", str(file))


@contextmanager
def following(collector: str, file: Path, *more: str, kind: str = "json") -> Iterator[Path]:
    """The command as a process; yield the path of its messages. It ends with exit code 0 when it is asked to."""
    messages, words = file.with_suffix(".log"), [*options(file, kind), "--follow", *more]
    environment = {**os.environ, **variables(collector)}
    with messages.open("wb") as log:
        process = Program[bytes]("isochrone_client", *words, env=environment, stdout=log, stderr=log)
    with process:
        try:
            yield messages
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0, messages.read_text()
        finally:
            process.kill()
    assert "Traceback" not in messages.read_text()
