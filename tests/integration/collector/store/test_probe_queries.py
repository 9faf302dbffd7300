"""Probes as columns from a real table: the value of each metric for each outcome."""

import math
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from numpy.typing import NDArray
from psycopg import sql

from fixtures.postgres import opened
from isochrone_collector.analysis.distribution import OutcomeCounts, Values
from isochrone_collector.analysis.probes import Kind, Probes
from isochrone_collector.errors import BadRequest
from isochrone_collector.store import drift, leaderboards, partitions, probe_queries
from isochrone_collector.store.batches import Origin
from isochrone_collector.store.postgres.pool import Connection, fetch_columns
from isochrone_collector.store.probe_queries import Scope
from isochrone_collector.store.samples import COLUMNS
from isochrone_wire.answers import Metric, Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import DAY_US, MINUTE_US, Outcome, Sample
from testdata.samples import sample_row

NOW_AT = 1_795_248_000_123_456
US = Origin(vantage_id=7, region="us-east-2", epoch=1, seq=1, received_at=NOW_AT)
SG = replace(US, vantage_id=8, region="ap-southeast-1")
OK = Sample(target_id=3, round_at=NOW_AT, dispatched_at=NOW_AT, outcome=Outcome.OK)
FULL = replace(
    OK, dns_us=1, tcp_us=20, tls_us=300, ttft_us=4_000, ttfat_us=5_000, e2e_us=90_000, tokens_per_second=7.5, rtt_us=21
)
CUT = replace(FULL, outcome=Outcome.STALLED, e2e_us=None, tokens_per_second=None, timeout_us=60_000)
MUTE = replace(CUT, outcome=Outcome.TIMED_OUT, ttft_us=None, ttfat_us=None)
NAN = math.nan
DAY = Window(from_at=NOW_AT - DAY_US, until_at=NOW_AT + 1)


@pytest.fixture
async def connection(shared_database_url: str) -> AsyncIterator[Connection]:
    """A database with partitions and without samples, through the collector's own pool."""
    async with opened(shared_database_url) as database:
        await partitions.ensure(database, now_at=NOW_AT)
        async with database.connection() as connection:
            await connection.execute("DELETE FROM sample")
            yield connection


async def put(connection: Connection, *lots: tuple[Origin, Iterable[Sample]]) -> None:
    names = ", ".join(COLUMNS)
    async with connection.cursor() as cursor, cursor.copy(f"COPY sample ({names}) FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(list(COLUMNS.values()))
        for origin, samples in lots:
            for index, sample in enumerate(samples):
                await copy.write_row(sample_row(sample, index, origin))


def scope(**more: Any) -> Scope:
    told: dict[str, Any] = {"window": DAY, "target_ids": (3,), "regions": ("us-east-2", "ap-southeast-1")} | more
    return Scope(**told)


def shown(probes: Probes) -> list[tuple[Any, ...]]:
    """Return region, kind, value, limit flag and network part of each probe."""
    regions = [probes.regions[place] for place in probes.region]
    columns = (probes.kind, probes.value, probes.censored, probes.network)
    return [*zip(regions, *(column.tolist() for column in columns), strict=True)]


@pytest.mark.parametrize(
    ("sample", "metric", "expected"),
    [
        (FULL, Metric.TTFT, (Kind.OK, 4_000, False, 21)),
        (FULL, Metric.TTFT_COLD, (Kind.OK, 4_321, False, 342)),
        (FULL, Metric.TTFAT, (Kind.OK, 5_000, False, 21)),
        (FULL, Metric.E2E, (Kind.OK, 90_000, False, 21)),
        (FULL, Metric.TOKENS_PER_SECOND, (Kind.OK, 7.5, False, NAN)),
        (FULL, Metric.CONNECT, (Kind.OK, 321, False, NAN)),
        (FULL, Metric.RTT, (Kind.OK, 21, False, NAN)),
        (replace(FULL, dns_us=None, tcp_us=None, tls_us=None), Metric.TTFT_COLD, (Kind.OK, NAN, False, NAN)),
        (replace(FULL, rtt_us=None), Metric.TTFT, (Kind.OK, 4_000, False, NAN)),
        (CUT, Metric.TTFT, (Kind.FAILED, 4_000, False, 21)),
        (CUT, Metric.E2E, (Kind.FAILED, 60_000, True, 21)),
        (CUT, Metric.TOKENS_PER_SECOND, (Kind.FAILED, NAN, False, NAN)),
        (MUTE, Metric.TTFT, (Kind.FAILED, 60_000, True, 21)),
        (MUTE, Metric.TTFT_COLD, (Kind.FAILED, 60_000, True, 342)),
        (replace(MUTE, timeout_us=None), Metric.TTFT, (Kind.FAILED, NAN, False, 21)),
        (replace(OK, outcome=Outcome.HTTP_ERROR, ttft_us=5), Metric.TTFT, (Kind.FAILED, NAN, False, NAN)),
        (replace(OK, outcome=Outcome.THROTTLED), Metric.TTFT, (Kind.THROTTLED, NAN, False, NAN)),
        (replace(OK, outcome=Outcome.SKIPPED_BUDGET), Metric.TTFT, (Kind.SKIPPED, NAN, False, NAN)),
    ],
)
async def test_what_a_probe_is_worth(
    connection: Connection, sample: Sample, metric: Metric, expected: tuple[Any, ...]
) -> None:
    """Value, limit and network part of each metric are as in the glossary, for every outcome."""
    await put(connection, (US, [sample]))
    [found] = shown(await probe_queries.probes(connection, scope(), metric))
    assert found == pytest.approx(("us-east-2", *expected), nan_ok=True)


async def test_every_outcome_is_of_one_kind(connection: Connection) -> None:
    """A probe that is neither a success, throttled nor skipped is a failure."""
    samples = [replace(OK, outcome=outcome) for outcome in Outcome]
    await put(connection, (US, samples))
    kinds = [row[1] for row in shown(await probe_queries.probes(connection, scope(), Metric.TTFT))]
    special = {"ok": Kind.OK, "throttled": Kind.THROTTLED}
    skipped = {outcome: Kind.SKIPPED for outcome in Outcome if outcome.startswith("skipped_")}
    assert sorted(kinds) == sorted((special | skipped).get(outcome, Kind.FAILED) for outcome in Outcome)


async def test_a_scope_is_kept(connection: Connection) -> None:
    """Only the requested rounds, targets and regions are read, and a region that is named twice is read once."""
    rounds = [replace(FULL, round_at=NOW_AT - minutes * MINUTE_US) for minutes in (0, 30, 24 * 60, 24 * 60 + 1)]
    await put(connection, (US, rounds), (SG, [FULL, replace(FULL, target_id=4)]))
    both = await probe_queries.probes(connection, scope(), Metric.TTFT)
    assert sorted(both.round_at.tolist()) == sorted([*(one.round_at for one in rounds[:3]), NOW_AT])
    assert set(both.vantage_id.tolist()) == {7, 8}
    assert both.target_id.tolist() == [3] * 4
    alone = await probe_queries.probes(connection, scope(regions=("ap-southeast-1",) * 2), Metric.TTFT)
    assert (alone.regions, len(alone)) == (("ap-southeast-1",), 1)


@pytest.mark.parametrize("regions", [(), ("us-east-2",), None])
async def test_nothing_there_is_no_rows(connection: Connection, regions: tuple[str, ...] | None) -> None:
    """An empty table, or no region, gives an empty result of the right types."""
    found = await probe_queries.probes(connection, scope(regions=regions), Metric.TTFT)
    assert len(found) == 0
    assert [found.value.dtype, found.round_at.dtype, found.kind.dtype] == ["float64", "int64", "int8"]


async def test_names_cannot_leave_their_quotes(connection: Connection) -> None:
    """A region's name may contain any characters."""
    region = "us'; DROP TABLE sample; -- \\' {from_at} %s \" é"
    await put(connection, (replace(US, region=region), [FULL]))
    found = await probe_queries.probes(connection, scope(regions=(region, "a{b}")), Metric.TTFT)
    assert shown(found) == [(region, Kind.OK, 4_000, False, 21)]


async def test_days_are_put_together(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each probe of a window is read once, for any number of days per read; too many probes are refused."""
    rounds = [replace(FULL, round_at=NOW_AT - hours * HOUR_US) for hours in range(0, 30 * 24, 5)]
    await put(connection, (US, rounds), (SG, rounds))
    month = scope(window=Window(from_at=NOW_AT - 30 * DAY_US, until_at=NOW_AT + 1))
    for portion in (1, 15, 1_000):
        monkeypatch.setattr(probe_queries, "_PORTION", portion)
        found = await probe_queries.probes(connection, month, Metric.TTFT)
        assert sorted(found.round_at.tolist()) == sorted(2 * [one.round_at for one in rounds])
    monkeypatch.setattr(probe_queries, "MAX_PROBES", 2 * len(rounds) - 1)
    with pytest.raises(BadRequest, match="shorter window, fewer targets"):
        await probe_queries.probes(connection, month, Metric.TTFT)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Row:
    found: NDArray[Any]


@pytest.mark.parametrize(
    ("expression", "expected", "kind"),
    [
        ("array[1, -2]", [1, -2], "int32"),
        ("array[1, -2]::bigint[]", [1, -2], "int64"),
        ("array[0.5, 'NaN', '-Infinity']::float8[]", [0.5, NAN, -math.inf], "float64"),
        (
            "array['1970-01-01 00:00:01.000002+00', '1969-12-31 23:59:59+00']::timestamptz[]",
            [1_000_002, -1_000_000],
            "int64",
        ),
        ("array[]::bigint[]", [], "int64"),
    ],
)
async def test_columns_are_as_sent(connection: Connection, expression: str, expected: list[float], kind: str) -> None:
    """Arrays of numbers are read unchanged, and instants as microseconds since the Unix epoch."""
    [row] = await fetch_columns(connection, sql.SQL(f"SELECT {expression} AS found"), Row)
    assert row.found.dtype == kind
    assert row.found.tolist() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("expression", ["array[1, NULL]", "array[array[1], array[2]]"])
async def test_a_column_of_another_shape_is_no_answer(connection: Connection, expression: str) -> None:
    """An array with a NULL is an error, because the NULL would shift all following numbers."""
    with pytest.raises(ValueError, match="contains NULL, or has more than one dimension"):
        await fetch_columns(connection, sql.SQL(f"SELECT {expression} AS found"), Row)


async def test_standings_are_read_day_by_day(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A series has one entry with all its values, for any number of days per read; too many probes are refused."""
    rounds = [replace(FULL, round_at=NOW_AT - days * DAY_US, ttft_us=1_000 + days) for days in range(30)]
    rounds += [replace(MUTE, round_at=NOW_AT - 3 * DAY_US)]
    await put(connection, (US, rounds), (SG, rounds[:5]))
    month = scope(window=Window(from_at=NOW_AT - 30 * DAY_US, until_at=NOW_AT + 1))
    for portion in (1, 1_000):
        monkeypatch.setattr(probe_queries, "_PORTION", portion)
        found = {seen.region: seen for seen in await leaderboards.standings(connection, month)}
        us = found["us-east-2"]
        ttft = us.values[Metric.TTFT]
        assert isinstance(ttft, Values)
        in_order = [*range(1_029, 1_003, -1), 1_003, 60_000, 1_002, 1_001, 1_000]
        # Two probes of one round may be in either order.
        assert sorted(ttft.values.tolist()) == sorted(in_order)
        assert [value for value in ttft.values.tolist() if value < 60_000] == [*range(1_029, 999, -1)]
        assert ttft.values.tolist().index(60_000) in (26, 27)
        assert ttft.values[ttft.censored].tolist() == [60_000]
        assert us.hours == pytest.approx(30 * 24, rel=0.04)
        assert us.succeeded is not None
        assert us.succeeded.tolist() == (ttft.values < 60_000).tolist()
        assert (us.outcome_counts, us.newest_at) == (OutcomeCounts(ok=30, failed=1), NOW_AT)
        assert found["ap-southeast-1"].outcome_counts == OutcomeCounts(ok=5)
    monkeypatch.setattr(probe_queries, "MAX_PROBES", 35)
    with pytest.raises(BadRequest, match="shorter window, fewer targets"):
        await leaderboards.standings(connection, month)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [([FULL], [False]), ([CUT], [False]), ([MUTE], [True]), ([FULL, MUTE], [True]), ([FULL, FULL, MUTE], [False])],
)
async def test_mostly_cut_off_is_marked(connection: Connection, samples: list[Sample], expected: list[bool]) -> None:
    """A round's median is a limit if at least half of its probes were cut off before their first token."""
    await put(connection, (US, samples))
    [row] = await drift.medians(connection, scope())
    assert row.limited(Metric.TTFT).tolist() == expected
    assert row.limited(Metric.TOKENS_PER_SECOND).tolist() == [False]
