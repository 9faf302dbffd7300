"""Refusals are logged at a bounded rate, and the others are counted."""

import pytest
from structlog.testing import capture_logs

from isochrone_collector.auth.limits import RefusalLog, without_details
from isochrone_collector.errors import DatabaseUnavailable


def test_a_flood_of_refusals_is_a_few_lines() -> None:
    """A burst is logged in full, then a line per second with the number of refusals that were left out."""
    log = RefusalLog(clock=iter(range(0, 10_000_000, 1_000)).__next__)
    with capture_logs() as lines:
        for _ in range(10_000):
            log.write(status="UNAUTHENTICATED", reason="no credential was sent")
    assert 50 <= len(lines) <= 65
    assert "left_out" not in lines[0]
    assert len(lines) + sum(line.get("left_out", 0) for line in lines) + 1_000 >= 10_000


def test_an_outage_of_the_database_does_not_flood_the_log() -> None:
    """While the database is away, calls without a credential are refused without its text, which is logged at a bounded
    rate.
    """
    with capture_logs() as lines:
        for _ in range(200):
            with pytest.raises(DatabaseUnavailable) as caught, without_details():
                raise DatabaseUnavailable("no route to host db-1")
            assert "db-1" not in str(caught.value)
    assert 0 < len(lines) < 100
    assert (lines[0]["event"], lines[0]["reason"]) == ("database.unavailable", "no route to host db-1")
