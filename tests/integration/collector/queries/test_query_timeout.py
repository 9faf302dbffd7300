"""Queries that take too long: the server ends them, and the error names the limit."""

import time

import psycopg
import pytest

from fixtures.collector import Collector, StartCollector
from fixtures.postgres import opened
from isochrone_client.client import ReadClient
from isochrone_client.errors import SlowError
from isochrone_collector.errors import DatabaseUnavailable, DeadlineExceeded
from isochrone_collector.store.postgres.pool import Database
from isochrone_wire.answers import Selection, Window
from isochrone_wire.model import SECOND_US

PLAN = "baseline: us-east-2\ntargets: [{model: a, provider: sim, base_url: http://h}]\n"
LOCK = "LOCK TABLE sample IN ACCESS EXCLUSIVE MODE"


@pytest.fixture
def impatient(start_collector: StartCollector) -> Collector:
    return start_collector(more=["--question-timeout", "1s"])


async def test_the_server_ends_what_takes_too_long(database_url: str) -> None:
    """The error names the limit and a remedy, and the connection serves the next query."""
    async with opened(database_url, statement_timeout_us=100_000) as database:
        with pytest.raises(DeadlineExceeded, match="longer than 100ms: choose a shorter window") as late:
            async with database.connection() as connection:
                await connection.execute("SELECT pg_sleep(20)")
        assert "--question-timeout" in late.value.hint
        async with database.connection() as connection:
            assert await (await connection.execute("SHOW jit")).fetchone() == ("off",)
            assert await (await connection.execute("SHOW work_mem")).fetchone() == ("64MB",)


async def test_a_canceled_statement_of_ingest_is_retried(database: Database) -> None:
    """Ingest has no timeout: a statement canceled by someone else is retried."""
    with pytest.raises(DatabaseUnavailable, match="statement timeout"):
        async with database.transaction() as connection:
            await connection.execute("SET LOCAL statement_timeout = 50; SELECT pg_sleep(20)")


def test_a_query_that_takes_too_long_ends_with_an_error(impatient: Collector) -> None:
    """A query that waits for the database ends with the collector's own error, and the next one succeeds."""
    impatient.call.apply(PLAN)
    now_at = time.time_ns() // 1000
    asked = Selection(window=Window(from_at=now_at - 60 * SECOND_US, until_at=now_at))
    with ReadClient(impatient.http_address) as client:
        with psycopg.connect(impatient.database_url) as connection:
            connection.execute(LOCK)
            with pytest.raises(SlowError, match="longer than 1s: choose a shorter window"):
                client.get_leaderboard(asked)
        assert client.get_leaderboard(asked).standings == ()
