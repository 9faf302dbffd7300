"""The agent under test: the real `isochrone-agent`, with a journal beside its spool and an adjustable wall clock.

The journal has one line per sample, written with a single system call right after the spool has committed the sample,
in the spool's own thread. A SIGKILL can therefore only occur before or after the line. A sample committed in that gap
is still in the spool, where the harness finds it. The agent's code knows neither the journal nor the clock.

A file holds the clock's offset in nanoseconds; the agent reads it at its start and on SIGUSR1.

usage: python -m chaos.agent_under_test JOURNAL CLOCK run --vantage …
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from chaos.journal import Status, line
from isochrone_wire.model import Sample

Record = Callable[..., None]


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
    journal = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

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


def main() -> None:
    """Run the agent."""
    journal, clock, *arguments = sys.argv[1:]
    step_with(Path(clock))
    from isochrone_agent.cli.main import cli
    from isochrone_agent.spool import spool  # not earlier: a module may bind the clock at import

    setattr(spool.Spool, "record", journalled(spool.Spool.record, Path(journal)))  # noqa: B010  # replaces a method
    cli(arguments, prog_name="isochrone-agent")


if __name__ == "__main__":
    main()
