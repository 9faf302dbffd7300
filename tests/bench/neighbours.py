"""Two conditions of a benchmark: an idle machine, and one with a busy process pinned to each core.

usage: python -m bench.neighbours CORE started by other benchmarks; spins on this core until its standard input ends
"""

import os
import select
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from bench.result import Goal
from testdata.preforked import Program

BUSY = "busy_"
"""The prefix of figures beside busy processes; others are of an idle machine."""

_PREFIXES = {"idle": "", "busy": BUSY}
# Some milliseconds of work between two looks at the standard input.
_TURNS = 100_000


def add_part(parser: ArgumentParser) -> None:
    parser.add_argument("--part", choices=_PREFIXES, help="measure only without, or only with, a busy process per core")


def prefixes_of(options: Namespace) -> list[str]:
    return [_PREFIXES[options.part]] if options.part else list(_PREFIXES.values())


def measured(prefixes: Sequence[str], measure: Callable[[str], Mapping[str, float]]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for prefix in prefixes:
        with busy_neighbours(wanted=prefix == BUSY):
            figures |= {prefix + name: figure for name, figure in measure(prefix).items()}
    return figures


def goals_of(prefixes: Sequence[str], goals: Mapping[str, Goal]) -> dict[str, Goal]:
    return {prefix + name: goal for prefix in prefixes for name, goal in goals.items()}


@contextmanager
def busy_neighbours(*, wanted: bool = True) -> Iterator[list[int]]:
    """Keep a process spinning on each core that this one may use, until the block or this process ends; yield ids."""
    with ExitStack() as stack:
        yield [stack.enter_context(_spinning(core)) for core in sorted(os.sched_getaffinity(0)) if wanted]


def spin(core: int) -> None:
    os.sched_setaffinity(0, {core})
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(_TURNS):
            pass


@contextmanager
def _spinning(core: int) -> Iterator[int]:
    with Program[bytes]("bench.neighbours", str(core), stdin=subprocess.PIPE) as process:
        try:
            yield process.pid
        finally:
            process.kill()


if __name__ == "__main__":
    spin(int(sys.argv[1]))
