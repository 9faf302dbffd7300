"""When a job counts as failing, and when it works again."""

from isochrone_collector.jobs.registry import JobHealth
from isochrone_wire.model import MINUTE_US, SECOND_US


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
