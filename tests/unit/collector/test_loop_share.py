"""The share of the event loop that connections without a credential have."""

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from isochrone_collector.loop_share import LoopShare

TIMEOUT_S = 10.0
SLICE_S, SHARE = 0.001, 0.25


class Processor:
    """A clock that only work and waiting move; it stands for `time` and for the timers of the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", self._call_later)

    def _call_later(self, delay: float, call: Callable[[], None]) -> asyncio.Handle:
        self.now += delay
        return asyncio.get_running_loop().call_soon(call)

    def work(self, seconds: float) -> None:
        """Compute."""
        self.now += seconds


async def run_all(share: LoopShare, works: list[Callable[[], None]]) -> None:
    """Run these, and return when the last one has run."""
    done = asyncio.Event()
    for work in (*works, done.set):
        share.add(work)
    async with asyncio.timeout(TIMEOUT_S):
        await done.wait()


@pytest.mark.parametrize("each_s", [0.00002, 0.0003, 0.001, 0.02])
async def test_a_flood_has_a_quarter_of_the_time(monkeypatch: pytest.MonkeyPatch, each_s: float) -> None:
    """In the order in which it came; at once it takes a slice, and what is gained meanwhile, and one piece of work."""
    processor = Processor(monkeypatch)
    share, begun = LoopShare(), list[tuple[int, float]]()

    def work(number: int) -> None:
        begun.append((number, processor.now))
        processor.work(each_s)

    await run_all(share, [lambda number=number: work(number) for number in range(2_000)])  # type: ignore[misc]
    assert [number for number, _ in begun] == list(range(2_000))
    assert 2_000 * each_s / processor.now == pytest.approx(SHARE, rel=0.1)
    pauses = [index for index, ((_, one), (_, other)) in enumerate(pairwise(begun)) if other > one + 2 * each_s]
    assert (
        max(after - before for before, after in pairwise([-1, *pauses])) * each_s
        <= SLICE_S / (1 - SHARE) + 1.01 * each_s
    )


@pytest.mark.parametrize("flood_is_new", [False, True])
async def test_neither_a_flood_of_connections_nor_one_of_calls_keeps_out_the_other(
    monkeypatch: pytest.MonkeyPatch, *, flood_is_new: bool
) -> None:
    """What comes after a thousand of the one kind is done after one of them."""
    processor = Processor(monkeypatch)
    share, done = LoopShare(), list[str]()

    def work(name: str) -> None:
        done.append(name)
        processor.work(SLICE_S)

    for _ in range(1_000):
        share.add(lambda: work("flood"), is_new=flood_is_new)
    share.add(lambda: work("other"), is_new=not flood_is_new)
    async with asyncio.timeout(TIMEOUT_S):
        while "other" not in done:
            await asyncio.sleep(0)
    assert len(done) <= 3


@pytest.mark.parametrize("turn_s", [0.0, 0.004, 0.02, 0.1])
@pytest.mark.parametrize("adds_more", [False, True])
async def test_a_loop_with_long_turns_gives_as_much_of_them(
    monkeypatch: pytest.MonkeyPatch, turn_s: float, *, adds_more: bool
) -> None:
    """A quarter of the time, whatever else each turn does; but no more than fifty milliseconds of one. Also if work
    adds the next one.
    """
    processor = Processor(monkeypatch)
    share, done = LoopShare(), asyncio.Event()
    works = [lambda: processor.work(0.0001)] * 20_000

    def turn() -> None:
        processor.work(turn_s)
        if not done.is_set():
            asyncio.get_running_loop().call_soon(turn)

    def work() -> None:
        works.pop()()
        if works:
            share.add(work)
        else:
            done.set()

    turn()
    if adds_more:
        share.add(work)
        async with asyncio.timeout(TIMEOUT_S):
            await done.wait()
    else:
        await run_all(share, works)
    done.set()
    assert 20_000 * 0.0001 / processor.now == pytest.approx(SHARE, rel=0.1)


async def test_work_that_is_done_elsewhere_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What calls cost that were passed on delays the next one."""
    processor = Processor(monkeypatch)
    share = LoopShare()
    await run_all(share, [lambda: share.spend(0.0005)] * 1_000)
    assert processor.now == pytest.approx(1_000 * 0.0005 / SHARE, rel=0.1)


async def test_after_a_pause_work_is_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single connection waits for nothing but its turn."""
    processor = Processor(monkeypatch)
    share = LoopShare()
    for _ in range(100):
        before = processor.now
        await run_all(share, [lambda: processor.work(SLICE_S / 2)])
        assert processor.now == before + SLICE_S / 2
        processor.work(4 * SLICE_S)


async def test_callers_with_a_credential_have_all_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given back is not waited for, also if many are admitted at once, and little is saved for a flood."""
    processor = Processor(monkeypatch)
    share = LoopShare()

    def admitted() -> None:
        processor.work(0.002)
        share.give_back(0.002)

    await run_all(share, [admitted] * 100)
    assert processor.now == pytest.approx(100 * 0.002)
    before = processor.now
    for _ in range(40):
        share.give_back(0.002)
    await run_all(share, [lambda: processor.work(0.002)] * 40)
    assert processor.now - before == pytest.approx(40 * 0.002)
    share.give_back(3600)
    before = processor.now
    await run_all(share, [lambda: processor.work(0.001)] * 1_000)
    assert processor.now - before == pytest.approx((1_000 * 0.001 - 0.1) / SHARE + 0.1, rel=0.1)


async def test_what_is_given_back_ends_the_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that waits for a timer runs without it."""
    loop, share = asyncio.get_running_loop(), LoopShare()
    timers = list[asyncio.Handle]()

    def call_later(_delay: float, call: Callable[[], None]) -> asyncio.Handle:
        timers.append(asyncio.Handle(call, (), loop))
        return timers[-1]

    share.spend(0.05)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "call_later", call_later)
        share.add(lambda: None)
    share.give_back(0.05)
    await run_all(share, [])
    assert [timer.cancelled() for timer in timers] == [True]
