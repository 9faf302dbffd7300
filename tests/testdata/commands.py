"""Commands of `isochrone`: what they print as JSON, and `routes export --follow` as a process."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from isochrone_client.cli import cli
from testdata.preforked import Program


def printed(address: str, *words: str) -> dict[str, Any]:
    """Return the document that a command prints about the collector at an address."""
    done = CliRunner().invoke(cli, [*words, "--collector", address, "--output", "json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def printed_rows(address: str, *words: str) -> list[dict[str, Any]]:
    """Return the rows of that document."""
    rows: list[dict[str, Any]] = printed(address, *words)["rows"]
    return rows


REGION = "us-east-2"
_END_S = 40.0


def options(file: Path, kind: str = "json") -> tuple[str, ...]:
    """The arguments of the command without `--follow`."""
    return ("routes", "export", "--region", REGION, "--output", kind, "--file", str(file))


@contextmanager
def following(collector: str, file: Path, *more: str, kind: str = "json") -> Iterator[Path]:
    """The command as a process; yield the path of its messages. It ends with exit code 0 when it is asked to."""
    messages = file.with_suffix(".log")
    with (
        messages.open("wb") as log,
        Program[bytes](
            "isochrone_client",
            *options(file, kind),
            "--follow",
            *more,
            env={**os.environ, "ISOCHRONE_COLLECTOR": collector},
            stdout=log,
            stderr=log,
        ) as process,
    ):
        try:
            yield messages
            process.send_signal(signal.SIGTERM)
            assert process.wait(_END_S) == 0, messages.read_text()
        finally:
            process.kill()
    assert "Traceback" not in messages.read_text()
