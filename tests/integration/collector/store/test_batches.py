"""New batches: each is read once, and its probes are the same from memory and from a real database."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import psycopg
import pytest

from fixtures.inprocess_collector import DAY_AT, InProcessCollector
from fixtures.postgres import rows
from isochrone_collector.alerts.failure_evidence import RoundKind, round_results
from isochrone_collector.analysis.probe_records import RECORD, Records, round_medians
from isochrone_collector.errors import DatabaseSetBack, DatabaseUnavailable
from isochrone_collector.routing.evidence import ProbeCache
from isochrone_collector.store import batches, drift, incidents
from isochrone_collector.store.batches import (
    EncodedBatch,
    NewBatch,
    NewBatches,
    RecentBatches,
    probes_of,
    probes_so_far,
)
from isochrone_collector.store.postgres.pool import Connection
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Outcome, Quality, Sample, Vantage

US = Vantage(name="us-1", region="us")
OTHER_US = Vantage(name="us-2", region="us")
SG = Vantage(name="sg-1", region="singapore")
PROBES = 600


def random_samples(local: InProcessCollector, seed: int, rounds: int) -> list[Sample]:
    """Return samples of some rounds with all outcomes, and with any fields missing."""
    rng = np.random.default_rng(seed)

    def maybe(low: int, high: int) -> int | None:
        return None if rng.random() < 0.25 else int(rng.integers(low, high))

    def one() -> Sample:
        ttft_us = maybe(0, 2_000_000)
        speed = None if rng.random() < 0.25 else float(rng.choice([1e-5, rng.uniform(0.001, 900)]))
        first, output, reasoning = maybe(0, 5), maybe(5, 2_000), maybe(0, 5)
        # Of about half of the answers the speed is that from the first token of the answer.
        rest_us = (output or 9) - (reasoning or 0) - (first or 0)
        ttfat_us = maybe(2_000_000, 3_000_000)
        e2e_us = (ttfat_us or 0) + int(rest_us / (speed or 1) * 1e6) + int(rng.choice([0, 5_000]))
        return local.sample(
            DAY_AT + int(rng.integers(0, rounds)) * SECOND_US,
            ttft_us,
            outcome=Outcome(rng.choice(list(Outcome))) if rng.random() < 0.6 else Outcome.OK,
            ttfat_us=ttfat_us,
            e2e_us=min(e2e_us, DAY_US) if rng.random() < 0.8 else None,
            timeout_us=maybe(1_000_000, 60_000_000),
            tokens_per_second=speed,
            first_chunk_tokens=first,
            output_tokens=output,
            reasoning_tokens=reasoning,
            prompt_tokens=maybe(0, 10),
            cached_tokens=maybe(0, 10),
            rtt_us=maybe(0, 300_000),
            late_us=int(rng.choice([0, 6_000_000, 6_000_001])),
            quality=Quality(int(rng.choice([0, 0, 0, Quality.CACHED, Quality.CLOCK_STEPPED, Quality.BLOCKED]))),
        )

    return [one() for _ in range(PROBES)]


async def pushed(local: InProcessCollector, *, rounds: int = 25) -> None:
    """Push random samples from three vantages in two regions, and samples that are rejected or set aside."""
    await local.begin(DAY_AT)
    await local.turn_to(DAY_AT + MINUTE_US)
    for seed, vantage in enumerate((US, OTHER_US, SG)):
        await local.push(vantage, random_samples(local, seed, rounds))
    too_old = local.sample(DAY_AT - 50 * DAY_US)
    assert (await local.push(US, [too_old, local.sample(DAY_AT)])).stored == 2


async def read(local: InProcessCollector, reader: NewBatches) -> list[NewBatch]:
    async with local.database.connection() as connection:
        return await reader.read(connection)


async def begin(local: InProcessCollector, reader: NewBatches, since_at: int | None = None) -> None:
    async with local.database.connection() as connection:
        await reader.begin(connection, since_at)


async def probes(local: InProcessCollector, found: Sequence[NewBatch]) -> Records:
    async with local.database.connection() as connection:
        return await probes_of(connection, found, target_ids=[local.target_id], from_at=DAY_AT - MINUTE_US)


def regions(found: Sequence[NewBatch]) -> dict[int, str]:
    return {batch.vantage_id: batch.region for batch in found}


def shown(records: Records) -> list[bytes]:
    return sorted(record.tobytes() for record in records)


async def test_both_sources_have_the_same_bits(local: InProcessCollector) -> None:
    """The records of all outcomes, with any fields missing, are the same from ingest, by batch and by window."""
    await pushed(local)
    ours = await read(local, NewBatches(local.ingest.recent))
    theirs = await read(local, NewBatches(RecentBatches()))
    assert {batch.records is None for batch in ours} == {False}
    assert {batch.records is None for batch in theirs} == {True}
    found = shown(await probes(local, ours))
    assert len(found) == 3 * PROBES + 1
    assert found == shown(await probes(local, theirs))
    async with local.database.connection() as connection:
        scope: dict[str, Any] = {"target_ids": [local.target_id], "from_at": DAY_AT - MINUTE_US}
        before = await probes_so_far(connection, **scope)
    assert found == shown(before)
    assert regions(ours) == regions(theirs)
    answers = before["answer_from_us"]
    # Both kinds of answers are among them.
    assert (answers == before["ttft_us"]).any()
    assert (answers[~np.isnan(answers)] > 2_000_000).any()


async def test_medians_are_those_of_the_database(local: InProcessCollector) -> None:
    """The round medians of probes in memory have the bits of those that PostgreSQL computes, limits included."""
    await pushed(local)
    new = await read(local, NewBatches(local.ingest.recent))
    found, region_of = await probes(local, new), regions(new)
    async with local.database.connection() as connection:
        rows = await drift.medians(connection, local.scope(Window(from_at=DAY_AT, until_at=DAY_AT + MINUTE_US)))
    expected = {row.region: row for row in rows}
    assert sorted(expected) == ["singapore", "us"]
    for region, other in expected.items():
        [row] = round_medians(region, found[[region_of[one] == region for one in found["vantage_id"].tolist()]])
        assert (row.target_id, row.rounds.tolist()) == (other.target_id, other.rounds.tolist())
        assert row.ttft_us.tobytes() == other.ttft_us.tobytes()
        assert row.tokens_per_second.tobytes() == other.tokens_per_second.tobytes()
        assert row.ttft_limited.tolist() == other.ttft_limited.tolist()
        assert len(row.rounds) == 25


@pytest.mark.parametrize("outcome", Outcome)
async def test_medians_and_results_of_one_outcome(local: InProcessCollector, outcome: Outcome) -> None:
    """Medians and results of rounds with a single probe, with and without values, are those of the database."""
    await local.begin(DAY_AT)
    values = [(ttft_us, timeout_us) for ttft_us in (None, 7) for timeout_us in (None, 9)]
    samples = [
        local.sample(DAY_AT + nth, ttft_us, timeout_us=timeout_us, outcome=outcome, tokens_per_second=3.5)
        for nth, (ttft_us, timeout_us) in enumerate(values)
    ]
    await local.push(US, samples)
    new = await read(local, NewBatches(local.ingest.recent))
    found = await probes(local, new)
    async with local.database.connection() as connection:
        rows = await drift.medians(connection, local.scope(Window(from_at=DAY_AT, until_at=DAY_AT + MINUTE_US)))
        results = await incidents.rounds(connection, [local.target_id], from_at=DAY_AT)
    assert list(map(str, round_medians("us", found))) == list(map(str, rows))
    assert round_results(found, regions(new)) == results


async def test_results_are_those_of_the_database(local: InProcessCollector) -> None:
    """Of each vantage the best result of a round counts, in memory as in the database."""
    await pushed(local, rounds=500)
    new = await read(local, NewBatches(local.ingest.recent))
    found = await probes(local, new)
    async with local.database.connection() as connection:
        expected = await incidents.rounds(connection, [local.target_id], from_at=DAY_AT)

    def key(one: Any) -> tuple[int, int]:
        return one.round_at, one.vantage_id

    ours = round_results(found, regions(new))
    assert [one.round_at for one in ours] == sorted(one.round_at for one in ours)
    assert sorted(ours, key=key) == sorted(expected, key=key)
    assert {one.kind for one in ours} == set(RoundKind)


async def test_each_batch_is_read_once(local: InProcessCollector) -> None:
    """A reader gets each batch once, from whichever collector, whatever its clock shows."""
    await local.begin(DAY_AT)
    reader = NewBatches(local.ingest.recent)
    await begin(local, reader)
    await local.push(US, [local.sample(DAY_AT)])
    await local.push_elsewhere(SG, [local.sample(DAY_AT)])
    first = await read(local, reader)
    assert sorted((batch.region, batch.records is None) for batch in first) == [("singapore", True), ("us", False)]
    assert await read(local, reader) == []
    for ahead_us in (-4 * MINUTE_US, 4 * MINUTE_US, -DAY_US, 0):
        local.clock.at = DAY_AT + ahead_us
        await local.push_elsewhere(US, [local.sample(DAY_AT - DAY_US)])
        await local.push(US, [local.sample(DAY_AT - 50 * DAY_US)])
        [late] = await read(local, reader)
        assert (late.oldest_round_at, late.newest_round_at) == (DAY_AT - DAY_US, DAY_AT - DAY_US)
    await begin(local, reader, DAY_AT - DAY_US)
    assert len(await read(local, reader)) == 6
    await begin(local, reader)
    assert await read(local, reader) == []


async def test_pushes_to_two_collectors_are_read_once(local: InProcessCollector) -> None:
    """While two collectors store batches of several vantages at once, a third one reads each of them once."""
    await local.begin(DAY_AT)
    reader, found = NewBatches(), list[NewBatch]()
    await begin(local, reader)

    async def pushes(push: Any, vantage: Vantage) -> None:
        for _ in range(40):
            await push(vantage, [local.sample(DAY_AT)])

    both = (local.push, local.push_elsewhere)
    pushing = asyncio.gather(
        *(pushes(push, vantage) for push, vantage in zip(both * 2, (US, OTHER_US, SG, SG), strict=True))
    )
    while not pushing.done():
        found += await read(local, reader)
    await pushing
    found += await read(local, reader)
    assert len({batch.key for batch in found}) == len(found) == 160


INSERT = (
    "INSERT INTO ingest_batch (vantage_id, epoch, seq, samples, stored, late, received_at, oldest_round_at,"
    " newest_round_at, content_hash, transaction_id) VALUES (%s, 5, %s, 1, 1, 0, now(), now(), now(), '', %s)"
)


async def insert(connection: psycopg.AsyncConnection, seq: int) -> None:
    """Insert a batch; on a cluster, its transaction is that of the coordinator."""
    asked = await connection.execute("SELECT id, pg_current_xact_id()::text::bigint FROM vantage")
    for vantage_id, transaction_id in await asked.fetchall():
        await connection.execute(INSERT, [vantage_id, seq, transaction_id])


async def test_commits_in_any_order_are_read_once(local: InProcessCollector, database_url: str) -> None:
    """What transactions of all lengths store is read as soon as each has committed, and what they roll back is not."""
    await local.begin(DAY_AT)
    await local.push(US, seq=0)
    reader, rng, found, kept = NewBatches(), Random(7), list[int](), set[int]()
    await begin(local, reader)

    async def write(seqs: range) -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            for seq in seqs:
                await insert(connection, seq)
                await asyncio.sleep(rng.choice([0.0, 0.001, 0.03]))
                if rng.random() < 0.2:
                    await connection.rollback()
                else:
                    await connection.commit()
                    kept.add(seq)

    writing = asyncio.gather(*(write(range(begin_at, begin_at + 60)) for begin_at in range(0, 480, 60)))
    while not writing.done():
        found += [batch.key[2] for batch in await read(local, reader)]
    await writing
    found += [batch.key[2] for batch in await read(local, reader)]
    assert sorted(found) == sorted(kept)
    assert len(kept) > 300


async def test_a_commit_that_takes_an_hour_is_read(local: InProcessCollector, database_url: str) -> None:
    """A batch whose transaction stays open while others are stored is read when it commits; also from a `begin`."""
    await local.begin(DAY_AT)
    await local.push(US, seq=0)
    early, late = NewBatches(), NewBatches()
    await begin(local, early)
    async with await psycopg.AsyncConnection.connect(database_url) as slow:
        await insert(slow, 70)
        for seq in range(1, 4):
            local.clock.at += 20 * MINUTE_US
            await local.push(US, [local.sample(local.clock.at)], seq=seq)
            assert [batch.key[2] for batch in await read(local, early)] == [seq]
        await begin(local, late)
        await slow.commit()
    assert [batch.key[2] for batch in await read(local, early)] == [70]
    assert [batch.key[2] for batch in await read(local, late)] == [70]


async def test_a_shard_that_is_late_is_read(
    local: InProcessCollector, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster, a batch is read once, even if its shard shows it a minute after later ones."""
    real, passed_us = batches.transactions, 0

    async def of_cluster(connection: Connection) -> batches.Transactions:
        found = await real(connection)
        # The coordinator has ended its transaction before the shard.
        return replace(found, is_cluster=True, pending=[], at=found.at + passed_us)

    monkeypatch.setattr(batches, "transactions", of_cluster)
    await local.begin(DAY_AT)
    reader = NewBatches()
    await local.push(US, seq=0)
    await begin(local, reader)
    async with await psycopg.AsyncConnection.connect(database_url) as shard:
        await insert(shard, 70)
        for seq in range(1, 40):
            await local.push(US, [local.sample(DAY_AT)], seq=seq)
            assert [batch.key[2] for batch in await read(local, reader)] == [seq]
            passed_us += 2 * SECOND_US
        await shard.commit()
    assert [batch.key[2] for batch in await read(local, reader)] == [70]
    assert len(reader._marks) == 41
    passed_us += 3 * MINUTE_US
    assert await read(local, reader) == []
    assert len(reader._marks) == 2


async def test_a_database_that_was_set_back_is_noticed(local: InProcessCollector, database_url: str) -> None:
    """Without the last batches that were read, a reader begins again, even if higher transactions were used since."""
    await local.begin(DAY_AT)
    reader = NewBatches()
    await begin(local, reader)
    for seq in (1, 2, 3):
        await local.push(US, [local.sample(DAY_AT)], seq=seq)
        assert len(await read(local, reader)) == 1
    rows(database_url, "DELETE FROM ingest_batch WHERE seq = 3")
    for seq in (4, 3):
        await local.push(SG, [local.sample(DAY_AT)], seq=seq)
        with pytest.raises(DatabaseSetBack, match="no longer has the batches of its transaction"):
            await read(local, reader)
    await begin(local, reader, DAY_AT)
    assert sorted(batch.key[2] for batch in await read(local, reader)) == [1, 2, 3, 4]


async def test_a_backlog_is_read_in_portions(local: InProcessCollector) -> None:
    """With a limit, older transactions come first, and nothing is left out."""
    await local.begin(DAY_AT)
    reader, portions = NewBatches(), list[list[int]]()
    for seq in range(1, 8):
        await local.push(US, [local.sample(DAY_AT)], seq=seq)
    async with local.database.connection() as connection:
        while found := await reader.read(connection, most=3):
            portions.append(sorted(batch.key[2] for batch in found))
    assert portions == [[1, 2, 3], [4, 5, 6], [7]]


async def test_a_repeated_batch_counts_once(local: InProcessCollector) -> None:
    """A batch that is pushed again, even in the same group commit or elsewhere, is read once, with its own probes."""
    await local.begin(DAY_AT)
    await local.push(US, seq=0)
    sample = local.sample(DAY_AT)
    pushes = [local.push(US, [sample], seq=7) for _ in range(3)]
    await asyncio.gather(*pushes)
    await local.push_elsewhere(US, [sample], seq=7)
    [batch] = await read(local, NewBatches(local.ingest.recent))
    assert len(await probes(local, [batch])) == 1


async def test_a_commit_that_failed_is_no_evidence(local: InProcessCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose transaction was rolled back is not read, and one whose answer was lost is, from the database."""
    await local.begin(DAY_AT)
    await local.push(US, seq=0)
    reader = NewBatches(local.ingest.recent)
    copy = batches.copy

    async def failing(*_: Any) -> None:
        raise DatabaseUnavailable("lost")

    monkeypatch.setattr(batches, "copy", failing)
    with pytest.raises(DatabaseUnavailable):
        await local.push(US, [local.sample(DAY_AT)], seq=1)
    assert await read(local, reader) == []
    monkeypatch.setattr(batches, "copy", copy)
    add = RecentBatches.add
    # As if the connection broke between the commit and its answer.
    monkeypatch.setattr(RecentBatches, "add", failing_add)
    with pytest.raises(DatabaseUnavailable):
        await local.push(US, [local.sample(DAY_AT)], seq=1)
    monkeypatch.setattr(RecentBatches, "add", add)
    assert (await local.push(US, [local.sample(DAY_AT)], seq=1)).duplicate == 1
    [batch] = await read(local, reader)
    assert batch.records is None
    assert len(await probes(local, [batch])) == 1


def failing_add(*_: Any) -> None:
    raise DatabaseUnavailable("lost")


async def test_a_running_commit_is_awaited(local: InProcessCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that the ledger shows before this collector has the answer of its commit is not read back."""
    await local.begin(DAY_AT)
    monkeypatch.setattr(batches, "_ANSWERED_WITHIN_S", 1.0)
    recent, kept = RecentBatches(), list[EncodedBatch]()
    monkeypatch.setattr(local.ingest.recent, "add", kept.append)
    await local.push(US, [local.sample(DAY_AT)])
    asyncio.get_running_loop().call_later(0.1, lambda: recent.add(kept[0]))
    [batch] = await read(local, NewBatches(recent))
    assert batch.records is not None


async def test_a_cancelled_read_loses_no_batch(local: InProcessCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a job that was cancelled has not got is returned by the next read."""
    await local.begin(DAY_AT)
    reader = NewBatches(local.ingest.recent)
    await begin(local, reader)
    monkeypatch.setattr(batches, "_ANSWERED_WITHIN_S", 30.0)
    await local.push_elsewhere(SG, [local.sample(DAY_AT)])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await read(local, reader)
    monkeypatch.undo()
    assert len(await read(local, reader)) == 1


async def test_memory_is_bounded(local: InProcessCollector) -> None:
    """Batches beyond the bound, the oldest ones, and those of more than two minutes ago are read from the database."""
    await local.begin(DAY_AT)
    local.ingest.recent = RecentBatches(max_bytes=25 * RECORD.itemsize)
    for nth in range(5):
        await local.push(US, [local.sample(DAY_AT + nth)] * 10)
    found = await read(local, NewBatches(local.ingest.recent))
    assert sorted(batch.newest_round_at - DAY_AT for batch in found if batch.records is not None) == [3, 4]
    assert len(await probes(local, found)) == 50
    local.clock.at += 3 * MINUTE_US
    await local.push(SG, [local.sample(local.clock.at)])
    found = await read(local, NewBatches(local.ingest.recent))
    assert [batch.region for batch in found if batch.records is not None] == ["singapore"]


async def test_the_probe_cache_has_what_a_table_needs(local: InProcessCollector) -> None:
    """Values that a route may not use are unknown, and a probe that was cut off has its limit."""
    await local.begin(DAY_AT)
    cases: list[tuple[dict[str, Any], Any]] = [
        ({"outcome": Outcome.OK, "ttft_us": 5, "tokens_per_second": 2.0}, (0, 5.0, False, 2.0, True)),
        ({"outcome": Outcome.OK, "ttft_us": 5, "quality": Quality.CLOCK_STEPPED}, (0, np.nan, False, np.nan, True)),
        ({"outcome": Outcome.STALLED, "ttft_us": 5, "tokens_per_second": 2.0}, (1, 5.0, False, np.nan, True)),
        ({"outcome": Outcome.TIMED_OUT, "ttft_us": None, "timeout_us": 9}, (1, 9.0, True, np.nan, True)),
        ({"outcome": Outcome.CONNECT_FAILED, "ttft_us": None, "timeout_us": 9}, (1, 9.0, True, np.nan, False)),
        ({"outcome": Outcome.HTTP_ERROR, "ttft_us": None, "timeout_us": 9}, (1, np.nan, False, np.nan, True)),
        ({"outcome": Outcome.TRUNCATED, "ttft_us": None, "timeout_us": 9}, (1, np.nan, False, np.nan, True)),
        ({"outcome": Outcome.STREAM_ERROR, "ttft_us": 5, "tokens_per_second": 2.0}, (1, 5.0, False, np.nan, True)),
        ({"outcome": Outcome.FILTERED, "ttft_us": 5, "tokens_per_second": 2.0}, (1, 5.0, False, np.nan, True)),
        ({"outcome": Outcome.EMPTY, "ttft_us": None}, (1, np.nan, False, np.nan, True)),
        ({"outcome": Outcome.THROTTLED, "ttft_us": None, "late_us": 7_000_000}, (2, np.nan, False, np.nan, False)),
        ({"outcome": Outcome.SKIPPED_THROTTLED, "ttft_us": None}, (2, np.nan, False, np.nan, True)),
        ({"outcome": Outcome.SKIPPED_BUDGET, "ttft_us": None}, (3, np.nan, False, np.nan, True)),
    ]
    await local.push(US, [local.sample(DAY_AT + nth, **change) for nth, (change, _) in enumerate(cases)])
    cache = ProbeCache()
    new = await read(local, NewBatches(local.ingest.recent))
    assert cache.add(await probes(local, new), regions(new)) == {(local.target_id, "us")}
    table = cache.table({local.target_id: "a"}, from_at=DAY_AT)
    columns = (table.kind, table.ttft_us, table.censored, table.tokens_per_second, table.comparable)
    assert str([*zip(*(column.tolist() for column in columns), strict=True)]) == str(
        [expected for _, expected in cases]
    )


async def test_huge_counts_of_tokens_overflow_nothing(local: InProcessCollector) -> None:
    """Their sums and doubles are beyond four bytes; the probe is the same from memory and from the database."""
    most, at = 2**31 - 1, DAY_AT
    many = {"cached_tokens": most, "prompt_tokens": most, "reasoning_tokens": most, "first_chunk_tokens": most}
    await local.begin(at)
    samples = [
        local.sample(at + nth, tokens_per_second=5.0, ttfat_us=1, e2e_us=2, output_tokens=0, quality=quality, **many)
        for nth, quality in enumerate((Quality.CACHED, Quality.CLEAN))
    ]
    await local.push(US, samples)
    fresh, stored = [
        sorted(map(str, (await probes(local, await read(local, NewBatches(recent)))).tolist()))
        for recent in (local.ingest.recent, RecentBatches())
    ]
    assert len(fresh) == 2
    assert fresh == stored
