"""The account of each vantage: what the ledger has of the epoch that its vitals are counted over."""

import asyncio
from typing import Any

import psycopg
import pytest

from fix_inprocess_collector import DAY_AT, InProcessCollector
from isochrone_collector.ingest.service import Ingest
from isochrone_collector.jobs.recount import Recount
from isochrone_collector.store import drift, vantages
from isochrone_collector.store.rows import VantageStateRow
from isochrone_wire.accounting import Account
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Vantage, Vitals

US, SG = Vantage(name="us-1", region="us"), Vantage(name="sg-1", region="sg")
BEFORE, AFTER = 5, 9
HOUR_US = 60 * MINUTE_US
_FORGET_ROUNDS = "UPDATE ingest_batch SET oldest_round_at = NULL, newest_round_at = NULL"


async def state_of(local: InProcessCollector, vantage: Vantage) -> VantageStateRow:
    async with local.database.connection() as connection:
        (found,) = (row for row in await vantages.states(connection) if row.name == vantage.name)
    return found


async def deliver(local: InProcessCollector, epoch: int, seq: int, n: int, /, **vitals: Any) -> None:
    """A second later, a batch of n samples with the vitals of its agent."""
    local.clock.at += SECOND_US
    samples = [local.sample(DAY_AT + k) for k in range(n)]
    await local.push(US, samples, epoch=epoch, seq=seq if n else 0, vitals=Vitals(**vitals))


def account_of(row: VantageStateRow) -> Account:
    return Account(finished=row.finished, stored=row.ledgered, spooled=row.spool_depth, dropped=row.dropped)


async def test_a_restart_with_a_backlog_keeps_a_right_account(local: InProcessCollector) -> None:
    """An agent that starts anew, with samples sealed before, is never told to have lost any or to have any twice: not
    before its backlog is delivered, not while it is, not after.
    """
    await local.begin(DAY_AT)
    await deliver(local, BEFORE, 1, 4, epoch=BEFORE, finished=4, spool_depth=4)
    # It is killed with seven samples sealed and starts again: these are what its new account begins with.
    await deliver(local, AFTER, 0, 0, epoch=AFTER, finished=7, spool_depth=7)
    assert account_of(await state_of(local, US)).missing == 0
    await deliver(local, BEFORE, 2, 5, epoch=AFTER, finished=7, spool_depth=7)
    assert account_of(await state_of(local, US)).missing == 0
    # Three new ones meanwhile, and the acknowledged ones are of an account that is closed.
    await deliver(local, AFTER, 1, 3, epoch=AFTER, finished=5, spool_depth=5)
    await deliver(local, BEFORE, 3, 2, epoch=AFTER, finished=5, spool_depth=2)
    assert account_of(await state_of(local, US)).missing == 0
    await deliver(local, AFTER, 0, 0, epoch=AFTER, finished=3, spool_depth=0)
    row = await state_of(local, US)
    assert (row.finished, row.ledgered, account_of(row).holds) == (3, 3, True)


async def test_a_repeated_batch_counts_once(local: InProcessCollector) -> None:
    """A batch that comes again adds nothing to the account."""
    await local.begin(DAY_AT)
    for _ in range(3):
        await deliver(local, BEFORE, 1, 4, epoch=BEFORE)
    assert (await state_of(local, US)).ledgered == 4


async def test_agents_that_do_not_tell_their_epoch(local: InProcessCollector) -> None:
    """The account of an agent of an earlier version is that of the batch that came last, counted over all of it."""
    await local.begin(DAY_AT)
    await deliver(local, BEFORE, 1, 4)
    await deliver(local, AFTER, 1, 2)
    assert (await state_of(local, US)).ledgered == 2
    await deliver(local, BEFORE, 2, 3)
    assert (await state_of(local, US)).ledgered == 7
    await deliver(local, 0, 0, 0)
    assert (await state_of(local, US)).ledgered == 7


async def test_pushes_that_overtake_each_other_all_count(local: InProcessCollector) -> None:
    """What was received first and is committed last adds to the account, though its vitals are no news."""
    await local.begin(DAY_AT)
    await deliver(local, AFTER, 1, 2, epoch=AFTER, finished=2)
    local.clock.at -= 10 * SECOND_US
    await deliver(local, AFTER, 2, 3, epoch=AFTER, finished=9)
    await deliver(local, BEFORE, 1, 1, epoch=AFTER, finished=9)
    row = await state_of(local, US)
    assert (row.ledgered, row.finished) == (5, 2)


async def test_vantages_pushing_together_do_not_mix(local: InProcessCollector) -> None:
    """In one group of many pushes each vantage gets what is its own, whichever collector stores it."""
    await local.begin(DAY_AT)
    await local.push(US, epoch=AFTER, seq=0)
    await local.push(SG, epoch=AFTER, seq=0)
    other = Ingest(
        database=local.database,
        plans=local.plans,
        window=local.ingest.window,
        clock=local.clock,
    )
    for seq in range(1, 9):
        local.ingest, other = other, local.ingest
        pushes = [
            local.push(
                vantage,
                [local.sample(DAY_AT + seq)] * size,
                epoch=epoch,
                seq=seq,
                vitals=Vitals(epoch=AFTER),
            )
            for vantage, size in ((US, 1), (SG, 10))
            for epoch in (BEFORE, AFTER)
        ]
        await asyncio.gather(*pushes)
    assert (
        (await state_of(local, US)).ledgered,
        (await state_of(local, SG)).ledgered,
    ) == (8, 80)


def store_beside(database_url: str, epoch: int, seq: int, n: int) -> None:
    """What a collector of the version before leaves of a batch: no rounds, and nothing added to the account."""
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "INSERT INTO ingest_batch (vantage_id, epoch, seq, samples, stored, late, received_at)"
            " SELECT id, %s, %s, %s, %s, 0, last_seen_at FROM vantage",
            (epoch, seq, n, n),
        )


async def test_what_an_earlier_version_stored_counts(local: InProcessCollector, database_url: str) -> None:
    """Batches that a collector of the version before stored are in the account once it is counted anew, also those of
    before the first time; other accounts stay as they are.
    """
    await local.begin(DAY_AT)
    recount = Recount(database=local.database, clock=local.clock)
    await deliver(local, AFTER, 1, 4, epoch=AFTER)
    store_beside(database_url, AFTER, 2, 7)
    store_beside(database_url, BEFORE, 1, 3)
    local.clock.at += DAY_US
    await recount.run()
    assert (await state_of(local, US)).ledgered == 11
    await deliver(local, AFTER, 3, 5, epoch=AFTER)
    store_beside(database_url, AFTER, 4, 2)
    await recount.run()
    assert (await state_of(local, US)).ledgered == 18
    await recount.run()
    assert (await state_of(local, US)).ledgered == 18


async def test_late_rounds_of_an_earlier_version_are_known(local: InProcessCollector, database_url: str) -> None:
    """Whoever asks which regions old rounds were delivered to is told of batches too whose rounds are not recorded."""
    await local.begin(DAY_AT)
    rounds = Window(from_at=DAY_AT - DAY_US, until_at=DAY_AT - HOUR_US)
    await local.push(US, [local.sample(DAY_AT - hours * HOUR_US) for hours in (0, 3, 2, 40)])
    await local.push(SG, [local.sample(DAY_AT)])
    for forget in ("UPDATE ingest_batch SET received_at = received_at", _FORGET_ROUNDS):
        with psycopg.connect(database_url) as connection:
            connection.execute(forget)
        async with local.database.connection() as connected:
            (told,) = await drift.late(connected, received_at=DAY_AT, usual_us=HOUR_US, rounds=rounds)
            assert await drift.late(connected, received_at=DAY_AT + 1, usual_us=HOUR_US, rounds=rounds) == []
        assert told.region == "us"
        assert told.oldest_round_at == DAY_AT - (3 if forget == _FORGET_ROUNDS else 40) * HOUR_US


async def test_counting_anew_forgets_nothing(local: InProcessCollector, database_url: str) -> None:
    """Where the ledger has forgotten the beginning of an epoch, counting anew takes nothing from its account."""
    await local.begin(DAY_AT)
    await deliver(local, AFTER, 1, 4, epoch=AFTER)
    await deliver(local, AFTER, 2, 5, epoch=AFTER)
    store_beside(database_url, AFTER, 3, 1)
    with psycopg.connect(database_url) as connection:
        connection.execute("DELETE FROM ingest_batch WHERE seq = 1")
    await Recount(database=local.database, clock=local.clock).run()
    assert (await state_of(local, US)).ledgered == 9


async def test_counting_anew_waits_for_who_is_adding(local: InProcessCollector, database_url: str) -> None:
    """A batch that is being committed while its account is counted is in the account once."""
    await local.begin(DAY_AT)
    await deliver(local, AFTER, 1, 4, epoch=AFTER)
    store_beside(database_url, AFTER, 2, 7)
    async with local.database.transaction() as connection:
        await connection.execute("UPDATE vantage SET ledgered = ledgered + 3")
        counting = asyncio.create_task(Recount(database=local.database, clock=local.clock).run())
        await asyncio.wait([counting], timeout=0.2)
        await connection.execute(
            "INSERT INTO ingest_batch (vantage_id, epoch, seq, samples, stored, late, received_at, oldest_round_at)"
            " SELECT id, epoch, 3, 3, 3, 0, last_seen_at, last_seen_at FROM vantage"
        )
    await counting
    assert (await state_of(local, US)).ledgered == 14


@pytest.mark.parametrize("rounds", [(), (0, 5, 2)])
async def test_the_ledger_knows_the_rounds_of_a_batch(
    local: InProcessCollector, database_url: str, rounds: tuple[int, ...]
) -> None:
    """A batch's oldest and newest round of those with a partition, and none when it has none of these."""
    await local.begin(DAY_AT)
    too_old = local.sample(DAY_AT - 50 * 86_400 * SECOND_US)
    await local.push(US, [too_old, *(local.sample(DAY_AT + second * SECOND_US) for second in rounds)])
    with psycopg.connect(database_url) as connection:
        (told,) = connection.execute(
            "SELECT extract(epoch FROM oldest_round_at)::bigint, extract(epoch FROM newest_round_at)::bigint"
            " FROM ingest_batch"
        ).fetchall()
    day_s = DAY_AT // SECOND_US
    assert told == ((day_s + min(rounds), day_s + max(rounds)) if rounds else (None, None))
