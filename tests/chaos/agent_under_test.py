"""An agent under test: the real `isochrone-agent`, a journal beside its spool, and a wall clock that can be set.

The journal has a line per sample, written with one system call right after the spool said that it has committed it,
in the spool's own thread, so that a SIGKILL can only fall before the line or after it. A sample committed in that gap
still waits in the spool, where the harness finds it. Nothing in the agent knows of either.

The clock is as many nanoseconds off as a file says; SIGUSR1 makes the agent read it again, and so does a start.

usage: python -m chaos.agent_under_test JOURNAL CLOCK run --vantage …
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from chaos.journal import Word, line
from isochrone_wire.model import Sample

Record = Callable[..., None]


def step_with(file: Path) -> None:
    """From now on the wall clock of this process is off by what `file` says, in nanoseconds."""
    real_ns, offset_ns = time.time_ns, 0

    def read(*_signal: object) -> None:
        nonlocal offset_ns
        offset_ns = int(file.read_text())

    # In this order: a signal that comes before there is a handler is ignored, as the harness has seen to.
    signal.signal(signal.SIGUSR1, read)
    read()
    time.time_ns = lambda: real_ns() + offset_ns
    # `time.time` stays right: gRPC makes deadlines of it for a core that reads the true clock. The agent never uses it.


def journalled(record: Record, file: Path) -> Record:
    """`Spool.record`, and a line in `file` about how it ended."""
    journal = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(word: Word, sample: Sample) -> None:
        os.write(journal, line(word, at_ns=time.monotonic_ns(), sample=sample))

    def recorded(spool: object, sample: Sample, *more: object) -> None:
        try:
            record(spool, sample, *more)
        except BaseException:
            write(Word.REFUSED, sample)
            raise
        write(Word.KEPT, sample)

    return recorded


def main() -> None:
    """Be the agent."""
    journal, clock, *arguments = sys.argv[1:]
    step_with(Path(clock))
    from isochrone_agent.cli.main import cli
    from isochrone_agent.spool import spool  # only now: a module may keep the clock it found when it was imported

    setattr(spool.Spool, "record", journalled(spool.Spool.record, Path(journal)))  # noqa: B010  # not a method of its own
    cli(arguments, prog_name="isochrone-agent")


if __name__ == "__main__":
    main()
