"""How long a job pauses between runs."""

import pytest

from isochrone_collector.jobs.registry import Job
from isochrone_wire.model import MINUTE_US, SECOND_US


async def idle() -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("took_us", "pause_us"),
    [
        (0, MINUTE_US),
        (20 * SECOND_US, 40 * SECOND_US),
        (2 * MINUTE_US, SECOND_US // 100),
        (-MINUTE_US, MINUTE_US),
    ],
)
def test_a_job_of_the_leader_starts_once_per_interval(took_us: int, pause_us: int) -> None:
    """The pause makes up for the length of the run, is never below 10 ms, and never above the interval."""
    assert Job(name="rollup", every_us=MINUTE_US, work=idle).pause_us(took_us) == pause_us


@pytest.mark.parametrize("took_us", [0, 20 * SECOND_US, 2 * MINUTE_US, -MINUTE_US])
def test_a_local_job_pauses_for_its_interval(took_us: int) -> None:
    """A slow run, for instance of a refresh while the database is away, is not followed by another at once."""
    assert Job(name="plan", every_us=MINUTE_US, work=idle, leader_only=False).pause_us(took_us) == MINUTE_US
