"""`isochrone routes export --follow` as a process."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testdata.preforked import Program

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
