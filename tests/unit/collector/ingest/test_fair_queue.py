"""Large pushes give way to small ones, one at a time, unless they are many."""

import asyncio

import pytest

from isochrone_collector.ingest.fair_queue import FairQueue


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """What it shows."""
        return self.now


class Traffic:
    """Large pushes through one queue, and how many of them were under way at most."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.queue = FairQueue(clock=self.clock)
        self.under_way = self.most = self.done = 0

    async def large(self) -> None:
        """One that takes some steps of the loop."""
        async with self.queue.large():
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            try:
                for _ in range(5):
                    await asyncio.sleep(0)
                self.done += 1
            finally:
                self.under_way -= 1


@pytest.mark.parametrize(
    ("small_before_s", "pushes", "most"),
    [(None, 4, 4), (0.0, 4, 1), (0.9, 4, 1), (1.0, 4, 4), (0.0, 20, 20)],
)
async def test_large_ones_go_one_at_a_time_while_small_ones_come(
    small_before_s: float | None, pushes: int, most: int
) -> None:
    """For a second after a small push, and as long as they are no crowd; of a crowd all go together."""
    traffic = Traffic()
    if small_before_s is not None:
        traffic.queue.note_small()
        traffic.clock.now += small_before_s
    async with asyncio.timeout(5):
        await asyncio.gather(*(traffic.large() for _ in range(pushes)))
    assert (traffic.most, traffic.done) == (most, pushes)


async def test_one_that_fails_or_goes_away_lets_the_next_one_through() -> None:
    """Neither an error nor an asker that stops waiting keeps the turn."""
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


async def test_those_that_wait_go_when_nothing_small_came_for_a_second() -> None:
    """The next one that is done lets all others through together."""
    traffic = Traffic()
    traffic.queue.note_small()
    waiting = [asyncio.create_task(traffic.large()) for _ in range(4)]
    await asyncio.sleep(0)
    traffic.clock.now += 1
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting)
    assert (traffic.most, traffic.done) == (3, 4)
