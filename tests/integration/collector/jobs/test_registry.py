"""Jobs that one collector does for all on a database, jobs of every collector, and alerts of failing ones."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import psycopg
import pytest

from fixtures.postgres import rows
from isochrone_collector.clock import now_at
from isochrone_collector.jobs import registry
from isochrone_collector.jobs.registry import Job, JobHealth, Jobs
from isochrone_collector.store.postgres.pool import Database
from isochrone_wire.model import MINUTE_US, SECOND_US

_SOON_S = 20.0
_OFTEN_US = 20_000


async def _until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(_SOON_S):
        while not happened():
            await asyncio.sleep(0.01)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _cut_leaders_connection(url: str) -> None:
    rows(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_locks "
        "WHERE locktype = 'advisory' AND pid <> pg_backend_pid() AND database = "
        "(SELECT oid FROM pg_database WHERE datname = current_database())",
    )


def _counting(database: Database, done: list[str], who: str) -> Jobs:
    async def work() -> None:
        done.append(who)

    jobs = Jobs(database=database, clock=now_at)
    jobs.add(Job(name="count", every_us=_OFTEN_US, work=work))
    return jobs


async def test_one_of_two_leads(database: Database) -> None:
    """Of two collectors on one database one does the leader's jobs, and the other takes over when it ends."""
    done: list[str] = []
    first, second = (_counting(database, done, who) for who in ("first", "second"))
    task = asyncio.create_task(first.run())
    await _until(lambda: len(done) > 2)
    other = asyncio.create_task(second.run())
    await asyncio.sleep(0.3)
    assert first.is_leader
    assert not second.is_leader
    assert set(done) == {"first"}
    await _end(task)
    await _until(lambda: second.is_leader and done[-1] == "second")
    await _until(lambda: not first.is_leader)
    await _end(other)


async def test_lost_connection_is_lost_leadership(database: Database, database_url: str) -> None:
    """A leader whose connection is cut stops its jobs, even a long one, and asks for the lock again."""
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def long() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    jobs = Jobs(database=database, clock=now_at)
    jobs.add(Job(name="long", every_us=_OFTEN_US, work=long))
    task = asyncio.create_task(jobs.run())
    await asyncio.wait_for(begun.wait(), _SOON_S)
    begun.clear()
    await asyncio.to_thread(_cut_leaders_connection, database_url)
    await asyncio.wait_for(cancelled.wait(), _SOON_S)
    await asyncio.wait_for(begun.wait(), _SOON_S)
    assert jobs.is_leader
    await _end(task)


@pytest.mark.parametrize("error", [ValueError("no"), psycopg.OperationalError("gone"), TimeoutError()])
async def test_failed_job_runs_again(database: Database, error: Exception) -> None:
    """A job that fails ends neither the leadership nor the other jobs, and runs again."""
    tried: list[str] = []

    async def fails() -> None:
        tried.append("fails")
        raise error

    jobs = _counting(database, tried, "works")
    jobs.add(Job(name="fails", every_us=_OFTEN_US, work=fails))
    task = asyncio.create_task(jobs.run())
    await _until(lambda: tried.count("fails") > 2 and tried.count("works") > 2)
    assert jobs.is_leader
    await _end(task)


async def test_a_leadership_begins_without_failures(database: Database, database_url: str) -> None:
    """A collector that leads again counts failures in a row from there, because others led meanwhile; totals go on."""
    hangs, begun = False, 0

    async def work() -> None:
        nonlocal begun
        if not hangs:
            raise ValueError
        begun += 1
        await asyncio.Event().wait()

    jobs = Jobs(database=database, clock=now_at)
    jobs.add(Job(name="fails", every_us=_OFTEN_US, work=work))
    task = asyncio.create_task(jobs.run())
    await _until(lambda: bool(jobs.health()) and jobs.health()["fails"].failures > 2)
    hangs = True
    await _until(lambda: begun == 1)
    failures = jobs.health()["fails"].failures
    await asyncio.to_thread(_cut_leaders_connection, database_url)
    await _until(lambda: begun == 2)
    assert jobs.health()["fails"].failures == 0
    assert jobs.health()["fails"].failures_total == failures
    await _end(task)


@pytest.mark.parametrize("leader_only", [True, False])
async def test_a_woken_job_runs_at_once(database: Database, *, leader_only: bool) -> None:
    """What happens during a pause ends it, and what happens during a run makes another one follow."""
    runs: list[int] = []
    woken = asyncio.Event()

    async def work() -> None:
        runs.append(len(runs))
        if len(runs) == 2:
            woken.set()

    jobs = Jobs(database=database, clock=now_at)
    often_us = _OFTEN_US if not leader_only else 3600 * 1_000_000
    jobs.add(Job(name="rare", every_us=often_us, work=work, leader_only=leader_only, woken=woken))
    task = asyncio.create_task(jobs.run())
    await _until(lambda: bool(runs))
    woken.set()
    await _until(lambda: len(runs) >= 3)
    await asyncio.sleep(0.1)
    assert not leader_only or runs == [0, 1, 2]
    await _end(task)


async def test_notifications_do_not_hurry_a_failed_job(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """While pushes wake a job that fails, it runs and logs after a pause (a second), not with each of them."""
    monkeypatch.setattr(registry, "_RETRY_S", 3600)
    runs: list[int] = []
    woken = asyncio.Event()

    async def fails() -> None:
        runs.append(len(runs))
        raise ValueError

    jobs = Jobs(database=database, clock=now_at)
    jobs.add(Job(name="fails", every_us=3600 * 1_000_000, work=fails, woken=woken))
    task = asyncio.create_task(jobs.run())
    await _until(lambda: bool(runs))
    for _ in range(10):
        woken.set()
        await asyncio.sleep(0.02)
    assert runs == [0]
    await _end(task)


async def test_local_jobs_run_without_leadership(database: Database) -> None:
    """A collector that does not lead runs the jobs that are not the leader's, and one that fails runs again."""
    tried: list[str] = []

    async def fails() -> None:
        tried.append("local")
        raise ValueError

    leader, other = (_counting(database, tried, who) for who in ("leader", "other"))
    leading = asyncio.create_task(leader.run())
    await _until(lambda: leader.is_leader)
    other.add(Job(name="local", every_us=_OFTEN_US, work=fails, leader_only=False))
    following = asyncio.create_task(other.run())
    await _until(lambda: tried.count("local") > 2)
    assert "other" not in tried
    await _end(following)
    await _end(leading)


async def idle() -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("took_us", "pause_us"),
    [(0, MINUTE_US), (20 * SECOND_US, 40 * SECOND_US), (2 * MINUTE_US, SECOND_US // 100), (-MINUTE_US, MINUTE_US)],
)
def test_a_job_of_the_leader_starts_once_per_interval(took_us: int, pause_us: int) -> None:
    """The pause makes up for the length of the run, is never below 10 ms, and never above the interval."""
    assert Job(name="rollup", every_us=MINUTE_US, work=idle).pause_us(took_us) == pause_us


@pytest.mark.parametrize("took_us", [0, 20 * SECOND_US, 2 * MINUTE_US, -MINUTE_US])
def test_a_local_job_pauses_for_its_interval(took_us: int) -> None:
    """A slow run, for instance of a refresh while the database is away, is not followed by another at once."""
    assert Job(name="plan", every_us=MINUTE_US, work=idle, leader_only=False).pause_us(took_us) == MINUTE_US


def failed(*instants: int, lasting_us: int = 0) -> JobHealth:
    health = JobHealth()
    for at in instants:
        health.begin(at - lasting_us)
        health.fail(at, "no room")
    return health


def test_three_failures_over_five_minutes() -> None:
    """A job fails after three failures over five minutes, and works after a good run, or while one lasts."""
    assert failed(0, MINUTE_US, 5 * MINUTE_US).is_failing(5 * MINUTE_US)
    assert not failed(0, 5 * MINUTE_US).is_failing(5 * MINUTE_US)
    assert not failed(0, SECOND_US, 2 * SECOND_US).is_failing(3 * SECOND_US)
    health = failed(0, MINUTE_US, 5 * MINUTE_US)
    assert not health.has_worked(5 * MINUTE_US, since_at=0)
    health.begin(6 * MINUTE_US)
    health.succeed(6 * MINUTE_US)
    assert health.has_worked(6 * MINUTE_US, since_at=0)
    assert not health.is_failing(60 * MINUTE_US)
    assert health.failures_total == 3
    health = failed(0, MINUTE_US, 5 * MINUTE_US)
    health.begin(6 * MINUTE_US)
    assert health.is_failing(7 * MINUTE_US)
    assert health.has_worked(11 * MINUTE_US, since_at=0)
    assert not health.is_failing(11 * MINUTE_US)
    health.fail(20 * MINUTE_US, "again")
    assert health.failures == 1
    assert health.has_worked(20 * MINUTE_US, since_at=0)
    assert not health.has_worked(20 * MINUTE_US, since_at=20 * MINUTE_US)
