"""The event loop: timers that are neither early nor late by a millisecond, and work that waits its turn."""

import asyncio
import time
from collections.abc import Iterator
from statistics import median

import pytest

from isochrone_sim.eventloop import first_step, new_event_loop
from isochrone_sim.server.connection import JobQueue


async def lateness() -> list[float]:
    """Return by how many seconds each of twenty timers rang late."""
    loop = asyncio.get_running_loop()
    late: list[float] = []
    for _ in range(20):
        rung = loop.create_future()
        due = loop.time() + 0.0031
        loop.call_at(due, rung.set_result, None)
        await rung
        late.append(loop.time() - due)
    return late


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=new_event_loop) as made:
        yield made


@pytest.mark.parametrize("seconds", [1e-6, 0.002, 0.0021, 0.05, 1.0, 100.0])
def test_the_first_step_is_never_too_long(seconds: float) -> None:
    """A wait is made in steps that never add up to more than the wait, even if each is late by its rate_limit."""
    step = first_step(seconds)
    assert 0 < step <= seconds
    assert step == seconds or step * 1.001 < seconds


def test_timers_keep_their_instants(runner: asyncio.Runner) -> None:
    """No timer rings early, and the most punctual ring within 0.6 ms, where asyncio's own loop waits 0.9 ms more."""
    ours, epoll = list[float](), list[float]()
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as usual:
        while len(ours) < 100 or (min(ours) >= 0.0006 and len(ours) < 2_000):
            ours += runner.run(lateness())
            epoll += usual.run(lateness())
    assert -1e-6 < min(ours) < 0.0006 < median(epoll)


def test_backlog_takes_turns(runner: asyncio.Runner) -> None:
    """Work in the backlog is done in order, one piece per turn of the loop; a flaw in one does not stop the next."""
    turns: list[int] = []

    async def work() -> list[object]:
        flaws: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: flaws.append(context["exception"]))
        backlog, turn = JobQueue(), 0
        for job in (lambda: turns.append(turn), _fail, lambda: turns.append(turn)):
            backlog.add(job)
        for turn in range(6):  # noqa: B007  # the jobs read it
            await asyncio.sleep(0)
        return flaws

    flaws = runner.run(work())
    assert (turns, [type(flaw) for flaw in flaws]) == ([0, 2], [ZeroDivisionError])


def _fail() -> None:
    raise ZeroDivisionError


def test_sleeping_costs_no_time_of_the_processor(runner: asyncio.Runner) -> None:
    """A loop that waits does not spin."""

    async def wait() -> float:
        before = time.process_time()
        await asyncio.sleep(0.2)
        return time.process_time() - before

    assert runner.run(wait()) < 0.05
