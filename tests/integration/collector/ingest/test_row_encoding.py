"""Packed rows are the rows that psycopg's own COPY writes for the same samples, one by one."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from fixtures.postgres import opened
from isochrone_collector.ingest import raw_push, row_encoding
from isochrone_collector.ingest.validation import BOUNDS, LENGTHS, LIMIT_BOUNDS
from isochrone_collector.store import batches, partitions
from isochrone_collector.store.batches import Origin
from isochrone_collector.store.postgres.pool import Connection
from isochrone_collector.store.samples import COLUMNS
from isochrone_wire import codec
from isochrone_wire.model import DAY_US, Outcome, Quality, RateLimit, Sample, TokenSource
from testdata.samples import sample_row

NOW_AT = int(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()) * 1_000_000
ORIGIN = Origin(vantage_id=2**63 - 1, region="ap-südost-1", epoch=-(2**63), seq=3, received_at=NOW_AT + 5)


def within(low: float, high: float) -> st.SearchStrategy[int]:
    ends = st.sampled_from([int(low), int(high)])
    return ends | st.integers(int(low), int(high))


OF_FIELD: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.none() | within(*bounds) for name, bounds in BOUNDS.items()},
    **{name: st.none() | st.floats(*BOUNDS[name]) for name in ("tokens_per_second", "cost_usd")},
    **{name: within(*BOUNDS[name]) for name in ("late_us", "chunks", "output_chars", "frames_unknown")},
    **{
        name: st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=most)
        for name, most in LENGTHS.items()
    },
    "quality": st.integers(0, 2**31 - 1).map(Quality),
    "target_id": st.integers(-(2**63), 2**63 - 1),
    "round_at": st.integers(NOW_AT - 20 * DAY_US, NOW_AT + 2 * DAY_US),
    "dispatched_at": st.integers(NOW_AT - 400 * DAY_US, NOW_AT + 400 * DAY_US),
    "outcome": st.sampled_from(Outcome),
    "token_source": st.none() | st.sampled_from(TokenSource),
    "ratelimit": st.none()
    | st.builds(RateLimit, **{name: st.none() | within(*bounds) for name, bounds in LIMIT_BOUNDS.items()}),
}
SAMPLES = st.lists(st.builds(Sample, **OF_FIELD), max_size=8)


@pytest.fixture
async def connection(shared_database_url: str) -> AsyncIterator[Connection]:
    async with opened(shared_database_url) as database:
        await partitions.ensure(database, now_at=NOW_AT)
        async with database.connection() as connection:
            yield connection


async def kept(connection: Connection, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the rows of a table, and empty it."""
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    cursor = await connection.execute(sql.SQL("SELECT {} FROM {} ORDER BY idx").format(names, sql.Identifier(table)))
    found = await cursor.fetchall()
    await connection.execute(sql.SQL("TRUNCATE {}").format(sql.Identifier(table)))
    return found


async def copied_one_by_one(connection: Connection, samples: Sequence[Sample]) -> list[tuple[Any, ...]]:
    names = sql.SQL(", ").join(map(sql.Identifier, COLUMNS))
    statement = sql.SQL("COPY sample ({}) FROM STDIN (FORMAT BINARY)").format(names)
    async with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types(list(COLUMNS.values()))
        for index, sample in enumerate(samples):
            await copy.write_row(sample_row(sample, index, ORIGIN))
    return await kept(connection, "sample", list(COLUMNS))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(samples=SAMPLES)
async def test_packed_rows_are_the_same_rows(connection: Connection, samples: list[Sample]) -> None:
    """Every column of every valid sample agrees, at its bounds and between, NULL or not, in any order."""
    columns = raw_push.decode([codec.encode(sample).SerializeToString() for sample in samples])
    chosen = np.arange(len(samples))[::-1].copy()
    await batches.copy(connection, "sample", [row_encoding.encode_rows(columns, chosen, ORIGIN)])
    encoded = await kept(connection, "sample", list(COLUMNS))
    assert encoded == await copied_one_by_one(connection, samples)


async def test_late_rows_keep_their_reasons(connection: Connection) -> None:
    """A late row is the same row with its reason, and only the chosen rows are encoded."""
    sample = Sample(target_id=1, round_at=NOW_AT, outcome=Outcome.OK, dispatched_at=NOW_AT, ttft_us=7, error="é")
    columns = raw_push.decode([codec.encode(sample).SerializeToString()] * 3)
    rows = row_encoding.encode_rows(columns, np.array([0, 2]), ORIGIN, ["too_old", "in_the_future"])
    await batches.copy(connection, "sample_late", [rows])
    found = await kept(connection, "sample_late", ["idx", "ttft_us", "dns_us", "error", "region", "reason"])
    assert found == [(0, 7, None, "é", ORIGIN.region, "too_old"), (2, 7, None, "é", ORIGIN.region, "in_the_future")]


def test_every_column_is_packed() -> None:
    """A encoded row has the columns of the table, in any order."""
    assert sorted(row_encoding.ORDER) == sorted(COLUMNS)
