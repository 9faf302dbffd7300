"""Group commit: what waits goes together, nothing waits for company, and one bad member fails alone."""

import asyncio
from collections.abc import Sequence

import pytest

from isochrone_collector.errors import DatabaseUnavailable, TooMany
from isochrone_collector.ingest.group_commit import GroupCommit


class Committing:
    """A database that commits when it is let, remembers the groups, and cannot take `bad`."""

    def __init__(self, *bad: str, away: bool = False) -> None:
        self.groups: list[list[str]] = []
        self.let = asyncio.Event()
        self._bad = set(bad)
        self._away = away

    async def __call__(self, works: Sequence[str]) -> list[str]:
        """Commit a group."""
        self.groups.append(list(works))
        await self.let.wait()
        if self._away:
            raise DatabaseUnavailable("away")
        if self._bad & set(works):
            raise ValueError(f"cannot take {sorted(self._bad & set(works))}")
        return [work.upper() for work in works]


async def submitted(groups: GroupCommit[str, str], *works: str, rows: int = 1) -> list["asyncio.Task[str]"]:
    tasks = [asyncio.create_task(groups.submit(work, rows=rows)) for work in works]
    await asyncio.sleep(0)
    return tasks


async def test_what_waits_goes_together() -> None:
    """The first goes at once and alone; those that came meanwhile are one group, and each gets its own result."""
    committing = Committing()
    groups = GroupCommit(committing, group_rows=100, waiting_rows=1000)
    tasks = await submitted(groups, "a")
    await asyncio.sleep(0)
    tasks += await submitted(groups, "b", "c", "d")
    committing.let.set()
    assert await asyncio.gather(*tasks) == ["A", "B", "C", "D"]
    assert committing.groups == [["a"], ["b", "c", "d"]]


async def test_groups_are_bounded() -> None:
    """A group never has more rows than a COPY may have, unless one piece alone has."""
    committing = Committing()
    committing.let.set()
    groups = GroupCommit(committing, group_rows=10, waiting_rows=1000)
    tasks = await submitted(groups, "a", "b", "c", rows=5)
    tasks += await submitted(groups, "big", rows=50)
    await asyncio.gather(*tasks)
    assert committing.groups == [["a", "b"], ["c"], ["big"]]


async def test_one_bad_member_fails_alone() -> None:
    """When a group is refused its members are tried one by one, and only whose fault it is learns of it."""
    committing = Committing("b")
    committing.let.set()
    groups = GroupCommit(committing, group_rows=100, waiting_rows=1000)
    results = await asyncio.gather(*await submitted(groups, "a", "b", "c"), return_exceptions=True)
    assert [str(result) for result in results] == ["A", "cannot take ['b']", "C"]
    assert committing.groups == [["a", "b", "c"], ["a"], ["b"], ["c"]]


async def test_a_database_that_is_away_is_not_asked_for_each() -> None:
    """Being away is nobody's fault in particular: all learn of it at once."""
    committing = Committing(away=True)
    committing.let.set()
    groups = GroupCommit(committing, group_rows=100, waiting_rows=1000)
    results = await asyncio.gather(*await submitted(groups, "a", "b"), return_exceptions=True)
    assert [type(result) for result in results] == [DatabaseUnavailable, DatabaseUnavailable]
    assert committing.groups == [["a", "b"]]


async def test_whoever_stops_waiting_stops_nobody() -> None:
    """A caller that hangs up leaves its work and its neighbours as they are."""
    committing = Committing()
    groups = GroupCommit(committing, group_rows=100, waiting_rows=1000)
    first, second = await submitted(groups, "a", "b")
    first.cancel()
    await asyncio.sleep(0)
    committing.let.set()
    assert await second == "B"
    assert committing.groups == [["a", "b"]]
    assert groups.rows == 0


async def test_too_much_is_refused() -> None:
    """What waits is bounded: more is refused at once, and taken again once there is room."""
    committing = Committing()
    groups = GroupCommit(committing, group_rows=10, waiting_rows=20)
    tasks = await submitted(groups, "running", rows=10)
    await asyncio.sleep(0)
    tasks += await submitted(groups, "b", "c", rows=10)
    assert groups.is_full
    with pytest.raises(TooMany, match="20 rows are waiting"):
        await groups.submit("d", rows=10)
    committing.let.set()
    await asyncio.gather(*tasks)
    assert await groups.submit("e", rows=10) == "E"


async def made(groups: GroupCommit[str, str], work: str, ready: asyncio.Event) -> str:
    """Announce, make ready, submit."""
    with groups.announce(10):
        await ready.wait()
    return await groups.submit(work, rows=10)


async def test_what_is_coming_is_waited_for() -> None:
    """Announced work is worth a moment's patience while there is little, but not once there is enough."""
    committing, ready, never = Committing(), asyncio.Event(), asyncio.Event()
    committing.let.set()
    groups = GroupCommit(committing, group_rows=100, waiting_rows=1000, worth_rows=20)
    announce = asyncio.create_task(made(groups, "b", ready))
    [first] = await submitted(groups, "a", rows=10)
    await asyncio.sleep(0.01)
    assert committing.groups == []
    ready.set()
    assert (await first, await announce) == ("A", "B")
    late = asyncio.create_task(made(groups, "e", never))
    await asyncio.gather(*await submitted(groups, "c", "d", rows=10))
    assert committing.groups == [["a", "b"], ["c", "d"]]
    late.cancel()


async def test_announced_work_that_fails_holds_nobody_up() -> None:
    """Whoever announces work and then has none sets the others free, and its rows count no more."""
    committing, never = Committing(), asyncio.Event()
    committing.let.set()
    groups = GroupCommit(committing, group_rows=100, waiting_rows=1000, worth_rows=20)
    failing = asyncio.create_task(made(groups, "b", never))
    [first] = await submitted(groups, "a", rows=10)
    failing.cancel()
    assert await first == "A"
    assert groups.rows == 0


async def test_others_may_wait_until_it_is_idle() -> None:
    """Idle is when nothing is being committed; whoever waits for that waits no longer than they said."""
    committing = Committing()
    groups = GroupCommit(committing, group_rows=100, waiting_rows=1000)
    await groups.wait_idle(timeout_us=10_000_000)
    [task] = await submitted(groups, "a")
    await groups.wait_idle(timeout_us=1_000)
    assert not task.done()
    waiting = asyncio.create_task(groups.wait_idle(timeout_us=10_000_000))
    committing.let.set()
    await waiting
    assert await task == "A"


async def test_nobody_waits_for_company_that_never_comes() -> None:
    """What is announced over and over and never submitted holds up nobody for longer than the patience."""
    committing = Committing()
    committing.let.set()
    groups = GroupCommit(committing, group_rows=100, waiting_rows=1000, worth_rows=50)
    [task] = await submitted(groups, "good")

    async def announce_for_ever() -> None:
        while True:
            with groups.announce(1):
                await asyncio.sleep(0.01)

    announcing = [asyncio.create_task(announce_for_ever()) for _ in range(3)]
    try:
        with groups.announce(1):
            assert await asyncio.wait_for(task, 5) == "GOOD"
    finally:
        for each in announcing:
            each.cancel()
