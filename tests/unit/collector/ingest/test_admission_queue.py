"""Fair queueing: large pushes go one at a time while small ones arrive, unless there are many."""

import asyncio

import pytest

from isochrone_collector.ingest.group_commit import AdmissionQueue


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Traffic:
    """Large pushes through one queue, and the maximum number of them in progress."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.queue = AdmissionQueue(clock=self.clock)
        self.in_progress = self.most = self.done = 0

    async def large(self) -> None:
        """Run a push that takes some steps of the loop."""
        async with self.queue.large():
            self.in_progress += 1
            self.most = max(self.most, self.in_progress)
            try:
                for _ in range(5):
                    await asyncio.sleep(0)
                self.done += 1
            finally:
                self.in_progress -= 1


@pytest.mark.parametrize(
    ("small_before_s", "pushes", "most"),
    [(None, 4, 4), (0.0, 4, 1), (0.9, 4, 1), (1.0, 4, 4), (0.0, 20, 20)],
)
async def test_large_pushes_go_one_at_a_time_while_small_ones_arrive(
    small_before_s: float | None, pushes: int, most: int
) -> None:
    """One at a time for a second after a small push, and up to the threshold; above it all go together."""
    traffic = Traffic()
    if small_before_s is not None:
        traffic.queue.note_small()
        traffic.clock.now += small_before_s
    async with asyncio.timeout(5):
        await asyncio.gather(*(traffic.large() for _ in range(pushes)))
    assert (traffic.most, traffic.done) == (most, pushes)


async def test_a_failed_or_cancelled_push_releases_its_turn() -> None:
    """Neither an error nor a cancelled caller keeps the turn."""
    traffic = Traffic()
    traffic.queue.note_small()
    with pytest.raises(ValueError, match="broken"):
        async with traffic.queue.large():
            raise ValueError("broken")
    gone = [asyncio.create_task(traffic.large()) for _ in range(3)]
    await asyncio.sleep(0)
    for task in gone[:2]:
        task.cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(*gone, return_exceptions=True)
        await traffic.large()
    assert (traffic.most, traffic.done) == (1, 2)


async def test_the_oldest_push_goes_first() -> None:
    """A push that arrives as another ends does not overtake the ones that wait, even if the oldest is given up then."""
    traffic, order = Traffic(), list[str]()
    traffic.queue.note_small()

    async def push(name: str) -> None:
        async with traffic.queue.large():
            order.append(name)

    async with traffic.queue.large():
        given_up, waiting = (asyncio.create_task(push(name)) for name in ("given up", "waiting"))
        await asyncio.sleep(0)
    given_up.cancel()
    async with asyncio.timeout(5):
        await push("late")
        await waiting
    assert order == ["waiting", "late"]


async def test_waiting_pushes_go_together_a_second_after_the_last_small_one() -> None:
    """The next push that ends lets all others through together."""
    traffic = Traffic()
    traffic.queue.note_small()
    waiting = [asyncio.create_task(traffic.large()) for _ in range(4)]
    await asyncio.sleep(0)
    traffic.clock.now += 1
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting)
    assert (traffic.most, traffic.done) == (3, 4)
