"""Group commit: waiting work is committed together, nothing waits for company, and one bad member fails alone."""

import asyncio
from collections.abc import Sequence

import pytest

from isochrone_collector.errors import DatabaseUnavailable, ResourceExhausted
from isochrone_collector.ingest import group_commit
from isochrone_collector.ingest.group_commit import GroupCommit


class Committing:
    """A database that commits once `let` is set, records the groups, and refuses `bad`."""

    def __init__(self, *bad: str, away: bool = False) -> None:
        self.groups: list[list[str]] = []
        self.let = asyncio.Event()
        self._bad = set(bad)
        self._away = away

    async def __call__(self, works: Sequence[str]) -> list[str]:
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


async def test_waiting_work_is_committed_together() -> None:
    """The first piece is committed at once and alone; later ones form one group, and each gets its own result."""
    committing = Committing()
    groups = GroupCommit(committing, group_rows=100, waiting_rows=1000)
    tasks = await submitted(groups, "a")
    await asyncio.sleep(0)
    tasks += await submitted(groups, "b", "c", "d")
    committing.let.set()
    assert await asyncio.gather(*tasks) == ["A", "B", "C", "D"]
    assert committing.groups == [["a"], ["b", "c", "d"]]


async def test_work_does_not_wait_for_another_commit() -> None:
    """Two commits run at once while there is little work; what comes then is the next group."""
    committing = Committing()
    groups = GroupCommit(committing, group_rows=100, waiting_rows=1000, batch_threshold=5, at_once=2)
    tasks: list[asyncio.Task[str]] = []
    for work in "abcd":
        tasks += await submitted(groups, work)
        await asyncio.sleep(0)
    assert committing.groups == [["a"], ["b"]]
    committing.let.set()
    assert await asyncio.gather(*tasks) == ["A", "B", "C", "D"]
    assert committing.groups == [["a"], ["b"], ["c", "d"]]


async def test_under_load_one_common_commit_follows_another() -> None:
    """With much work, submitted or announced, there is one commit at a time."""
    committing = Committing()
    groups = GroupCommit(committing, group_rows=100, waiting_rows=1000, batch_threshold=3, at_once=2)
    with groups.announce(1):
        tasks = await submitted(groups, "a")
        await asyncio.sleep(0)
        tasks += await submitted(groups, "b", "c")
        await asyncio.sleep(0)
        assert committing.groups == [["a"]]
        committing.let.set()
        assert await asyncio.gather(*tasks) == ["A", "B", "C"]
    assert committing.groups == [["a"], ["b", "c"]]


async def test_groups_are_bounded() -> None:
    """Groups are bounded; in one only the bad member gets its error, unless the database is away."""
    committing = Committing()
    committing.let.set()
    groups = GroupCommit(committing, group_rows=10, waiting_rows=1000)
    tasks = await submitted(groups, "a", "b", "c", rows=5)
    tasks += await submitted(groups, "big", rows=50)
    await asyncio.gather(*tasks)
    assert committing.groups == [["a", "b"], ["c"], ["big"]]
    committing = Committing("b")
    committing.let.set()
    groups = GroupCommit(committing, group_rows=100, waiting_rows=1000)
    results = await asyncio.gather(*await submitted(groups, "a", "b", "c"), return_exceptions=True)
    assert [str(result) for result in results] == ["A", "cannot take ['b']", "C"]
    assert committing.groups == [["a", "b", "c"], ["a"], ["b"], ["c"]]
    committing = Committing(away=True)
    committing.let.set()
    groups = GroupCommit(committing, group_rows=100, waiting_rows=1000)
    results = await asyncio.gather(*await submitted(groups, "a", "b"), return_exceptions=True)
    assert [type(result) for result in results] == [DatabaseUnavailable, DatabaseUnavailable]
    assert committing.groups == [["a", "b"]]


async def test_a_cancelled_caller_affects_no_other() -> None:
    """The work of a cancelled caller is committed, with that of its neighbours."""
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
    """More work than the queue takes is refused when announced, until there is room; announced work has its place."""
    committing = Committing()
    groups = GroupCommit(committing, group_rows=10, waiting_rows=20)
    tasks = await submitted(groups, "running", rows=10)
    await asyncio.sleep(0)
    ready = asyncio.Event()
    announced = asyncio.create_task(made(groups, "b", ready))
    tasks += await submitted(groups, "c", rows=10)
    assert groups.is_full
    with pytest.raises(ResourceExhausted, match="20 rows are waiting"), groups.announce(10):
        pass
    tasks += await submitted(groups, "d", rows=10)
    ready.set()
    committing.let.set()
    assert await announced == "B"
    await asyncio.gather(*tasks)
    with groups.announce(10):
        pass


async def made(groups: GroupCommit[str, str], work: str, ready: asyncio.Event) -> str:
    with groups.announce(10):
        await ready.wait()
    return await groups.submit(work, rows=10)


async def test_a_commit_waits_for_announced_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit waits a moment for announced work while few rows wait, but not once there are enough."""
    monkeypatch.setattr(group_commit, "_MAX_WAIT_S", 600)
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
    async with asyncio.timeout(60):
        await asyncio.gather(*await submitted(groups, "c", "d", rows=10))
    assert committing.groups == [["a", "b"], ["c", "d"]]
    late.cancel()


async def test_announced_work_that_fails_delays_no_other() -> None:
    """When announced work fails, the commit proceeds, and its rows no longer count."""
    committing, never = Committing(), asyncio.Event()
    committing.let.set()
    groups = GroupCommit(committing, group_rows=100, waiting_rows=1000, worth_rows=20)
    failing = asyncio.create_task(made(groups, "b", never))
    [first] = await submitted(groups, "a", rows=10)
    failing.cancel()
    assert await first == "A"
    assert groups.rows == 0


async def test_callers_can_wait_until_no_commit_runs() -> None:
    """Waiting for idle ends when no commit runs, or at the timeout."""
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


async def test_the_wait_for_announced_work_is_bounded() -> None:
    """Work that is announced over and over and never submitted delays a commit no longer than the maximum wait."""
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
