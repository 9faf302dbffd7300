"""Busy neighbours of a benchmark: one on each core, as long as the benchmark runs."""

import os
import subprocess
import sys
from pathlib import Path

from bench.neighbours import BUSY, busy_neighbours, goals_of, measured
from bench.processes import cpu_seconds
from bench.result import at_most
from testdata.waiting import eventually

TESTS = Path(__file__).parents[2]
HOST = (
    "from bench.neighbours import busy_neighbours\nwith busy_neighbours() as pids:\n  print(*pids, flush=True); input()"
)


def test_every_core_has_one_that_computes() -> None:
    """Each is pinned to a core of its own and uses its processor time; all have ended after the block."""
    with busy_neighbours() as pids:
        eventually(10, lambda: all(cpu_seconds(pid) > 0.2 for pid in pids), "every neighbour computes")
        assert [os.sched_getaffinity(pid) for pid in pids] == [{core} for core in sorted(os.sched_getaffinity(0))]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_they_end_with_a_benchmark_that_is_killed() -> None:
    """None is left when the benchmark had no chance to end them."""
    command = [sys.executable, "-c", HOST]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=TESTS) as host:
        assert host.stdout is not None
        pids = host.stdout.readline().split()
        host.kill()
    assert pids
    eventually(10, lambda: not any(_runs(pid.decode()) for pid in pids), "the neighbours end")


def test_both_parts_have_figures_and_the_same_goals() -> None:
    """The idle part is measured without neighbours; figures and goals of the busy part have a prefix."""
    asked: list[str] = []

    def measure(prefix: str) -> dict[str, float]:
        asked.append(prefix)
        return {"x": len(asked)}

    assert measured(["", BUSY], measure) == {"x": 1, "busy_x": 2}
    assert asked == ["", BUSY]
    assert goals_of(["", BUSY], {"x": at_most(2)}) == {"x": at_most(2), "busy_x": at_most(2)}


def _runs(pid: str) -> bool:
    """Return whether a process runs: its parent, which may be slow to reap it, is none of ours."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
