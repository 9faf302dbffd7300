"""Races of two attempts on the event loop."""

import asyncio
from dataclasses import dataclass

import pytest

from isochrone.routing.racing import LoopRacing

REPEATS = 50


@dataclass(slots=True)
class Ended:
    """An attempt that has ended, and whether it was discarded."""

    is_failed: bool
    is_discarded: bool = False

    async def discard(self) -> None:
        self.is_discarded = True


@pytest.mark.parametrize("first_fails", [False, True])
async def test_a_failure_counts_beside_a_success_of_the_same_instant(*, first_fails: bool) -> None:
    """It comes before the success, in whichever order the event loop reports them."""
    for _ in range(REPEATS):
        both, begun = asyncio.Event(), list[Ended]()

        async def attempt(ended: Ended, both: asyncio.Event = both, begun: list[Ended] = begun) -> Ended:
            begun.append(ended)
            if len(begun) > 1:
                both.set()
            await both.wait()
            return ended

        first, second = Ended(is_failed=first_fails), Ended(is_failed=not first_fails)
        ended = await LoopRacing().race(lambda: attempt(first), lambda: lambda: attempt(second), 0.001)  # noqa: B023  # awaited here
        assert [one.is_failed for one in ended] == [True, False]
        assert [one.is_discarded for one in ended] == [True, False]
