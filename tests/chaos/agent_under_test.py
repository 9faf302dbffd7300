"""The agent under test: the real `isochrone-agent`, with a journal beside its spool and an adjustable wall clock.

The spool's own thread writes one line per sample with a single system call right after the commit, so that a SIGKILL
can only occur before or after it. A sample committed in that gap is still in the spool, where the harness finds it.
The folder HOME has the journal, a file with an instant per acknowledged batch, and one with the clock's offset in
nanoseconds, which is read at the start and on SIGUSR1.

usage: python -m chaos.agent_under_test HOME run --vantage …
"""

import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from chaos.journal import ACKNOWLEDGED, FILE, Status, line
from isochrone_wire.model import Batch, Sample
from isochrone_wire.operations import Receipt

Record = Callable[..., None]
LATER = "CHAOS_LATER_VERSION"
"""The environment variable with which pushes have a field that this version does not know."""
# Field 999 of a message, with the text "later".
UNKNOWN_FIELD = b"\xba\x3e\x05later"


def step_with(file: Path) -> None:
    """Offset the wall clock of this process by the nanoseconds in `file`."""
    real_ns, offset_ns = time.time_ns, 0

    def read(*_signal: object) -> None:
        nonlocal offset_ns
        offset_ns = int(file.read_text())

    # Order matters: until the handler is installed, the signal is ignored, as arranged by the harness.
    signal.signal(signal.SIGUSR1, read)
    read()
    time.time_ns = lambda: real_ns() + offset_ns
    # `time.time` is unchanged: gRPC computes deadlines from it for a core that reads the true clock, and the agent does
    # not use it.


def journalled(record: Record, file: Path) -> Record:
    """Wrap `Spool.record` so that it appends a line to `file` about its result."""
    journal = _open(file)

    def write(status: Status, sample: Sample) -> None:
        os.write(journal, line(status, at_ns=time.monotonic_ns(), sample=sample))

    def recorded(spool: object, sample: Sample, *more: object) -> None:
        try:
            record(spool, sample, *more)
        except BaseException:
            write(Status.REFUSED, sample)
            raise
        write(Status.KEPT, sample)

    return recorded


def timed(acknowledge: Callable[..., None], file: Path) -> Callable[..., None]:
    """Wrap `Spool.acknowledge` so that it appends the instant of CLOCK_MONOTONIC, in nanoseconds, to `file`."""
    instants = _open(file)

    def acknowledged(*arguments: object, **options: object) -> None:
        acknowledge(*arguments, **options)
        os.write(instants, f"{time.monotonic_ns()}\n".encode())

    return acknowledged


def extended(push: Callable[..., Awaitable[Receipt]]) -> Callable[..., Awaitable[Receipt]]:
    """Wrap `CollectorClient.push` so that every request has an unknown field."""

    def push_more(client: object, batch: Batch, content: bytes = b"") -> Awaitable[Receipt]:
        return push(client, batch, content + UNKNOWN_FIELD)

    return push_more


def main() -> None:
    home, *arguments = sys.argv[1:]
    step_with(Path(home, "clock"))
    from isochrone_agent.cli.main import cli
    from isochrone_agent.collector_client import CollectorClient
    from isochrone_agent.spool.spool import Spool  # not earlier: a module may bind the clock at import

    replaced: list[tuple[type, str, Callable[..., object]]] = [
        (Spool, "record", journalled(Spool.record, Path(home, FILE))),
        (Spool, "acknowledge", timed(Spool.acknowledge, Path(home, ACKNOWLEDGED))),
    ]
    if LATER in os.environ:
        replaced.append((CollectorClient, "push", extended(CollectorClient.push)))
    for owner, name, wrapped in replaced:
        setattr(owner, name, wrapped)
    cli(arguments, prog_name="isochrone-agent")


def _open(file: Path) -> int:
    return os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


if __name__ == "__main__":
    main()
