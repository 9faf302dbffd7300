"""The registry of jobs, and their health."""

import pytest

from isochrone_collector.jobs.registry import Job, JobHealth
from isochrone_wire.model import MINUTE_US, SECOND_US


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
    """Return the health of a job whose runs failed at these instants."""
    health = JobHealth()
    for at in instants:
        health.begin(at - lasting_us)
        health.fail(at, "no room")
    return health


def test_three_failures_over_five_minutes() -> None:
    """A job keeps failing after three failures in a row that span five minutes, not before."""
    assert failed(0, MINUTE_US, 5 * MINUTE_US).is_failing(5 * MINUTE_US)
    assert not failed(0, 5 * MINUTE_US).is_failing(5 * MINUTE_US)
    assert not failed(0, SECOND_US, 2 * SECOND_US).is_failing(3 * SECOND_US)


def test_a_good_run_ends_it() -> None:
    """After a run without an error the job works, and its failures stay counted."""
    health = failed(0, MINUTE_US, 5 * MINUTE_US)
    assert not health.is_working(5 * MINUTE_US)
    health.begin(6 * MINUTE_US)
    health.succeed(6 * MINUTE_US)
    assert health.is_working(6 * MINUTE_US)
    assert not health.is_failing(60 * MINUTE_US)
    assert health.failures_total == 3


def test_a_run_without_end_counts_as_good() -> None:
    """A job that runs for ever works while its run lasts, and a failure after a long run is the first."""
    health = failed(0, MINUTE_US, 5 * MINUTE_US)
    health.begin(6 * MINUTE_US)
    assert health.is_failing(7 * MINUTE_US)
    assert health.is_working(11 * MINUTE_US)
    assert not health.is_failing(11 * MINUTE_US)
    health.fail(20 * MINUTE_US, "again")
    assert health.failures == 1
