"""The account of each vantage: the samples in the ledger of the epoch that its heartbeat counts."""

import asyncio
from typing import Any

import pytest

from fixtures.inprocess_collector import DAY_AT, InProcessCollector
from fixtures.postgres import rows
from isochrone_collector.fleet_state import VantageState
from isochrone_collector.ingest.service import Ingest
from isochrone_collector.store import vantages
from isochrone_wire.model import SECOND_US, Account, Heartbeat, Vantage

US, SG = Vantage(name="us-1", region="us"), Vantage(name="sg-1", region="sg")
BEFORE, AFTER = 5, 9


async def state_of(local: InProcessCollector, vantage: Vantage) -> VantageState:
    async with local.database.connection() as connection:
        (found,) = (row for row in await vantages.states(connection, now_at=local.clock.at) if row.name == vantage.name)
    return found


async def deliver(local: InProcessCollector, epoch: int, seq: int, n: int, /, **heartbeat: Any) -> None:
    """Push a batch of n samples a second later, with the heartbeat of its agent."""
    local.clock.at += SECOND_US
    samples = [local.sample(DAY_AT + k) for k in range(n)]
    await local.push(US, samples, epoch=epoch, seq=seq if n else 0, heartbeat=Heartbeat(**heartbeat))


def account_of(row: VantageState) -> Account:
    return Account(finished=row.finished, stored=row.ledgered, spooled=row.spool_depth, dropped=row.dropped)


async def test_a_restart_with_a_backlog_keeps_a_right_account(local: InProcessCollector) -> None:
    """An agent that restarts with a backlog shows no lost or duplicate samples before, during and after it."""
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
    """A repeated batch adds nothing to the account."""
    await local.begin(DAY_AT)
    for _ in range(3):
        await deliver(local, BEFORE, 1, 4, epoch=BEFORE)
    assert (await state_of(local, US)).ledgered == 4


async def test_agents_that_do_not_report_their_epoch(local: InProcessCollector) -> None:
    """The account of an agent that does not report its epoch is that of the newest batch's epoch."""
    await local.begin(DAY_AT)
    await deliver(local, BEFORE, 1, 4)
    await deliver(local, AFTER, 1, 2)
    assert (await state_of(local, US)).ledgered == 2
    await deliver(local, BEFORE, 2, 3)
    assert (await state_of(local, US)).ledgered == 7
    await deliver(local, 0, 0, 0)
    assert (await state_of(local, US)).ledgered == 7


async def test_pushes_that_overtake_each_other_all_count(local: InProcessCollector) -> None:
    """A batch that is received first and committed last is added to the account, with an outdated heartbeat."""
    await local.begin(DAY_AT)
    await deliver(local, AFTER, 1, 2, epoch=AFTER, finished=2)
    local.clock.at -= 10 * SECOND_US
    await deliver(local, AFTER, 2, 3, epoch=AFTER, finished=9)
    await deliver(local, BEFORE, 1, 1, epoch=AFTER, finished=9)
    row = await state_of(local, US)
    assert (row.ledgered, row.finished) == (5, 2)


async def test_vantages_pushing_together_do_not_mix(local: InProcessCollector) -> None:
    """In a group commit of many pushes each vantage's account gets its own samples, on any collector."""
    await local.begin(DAY_AT)
    await local.push(US, epoch=AFTER, seq=0)
    await local.push(SG, epoch=AFTER, seq=0)
    other = Ingest(database=local.database, plans=local.plans, window=local.ingest.window, clock=local.clock)
    beat = Heartbeat(epoch=AFTER)
    for seq in range(1, 9):
        local.ingest, other = other, local.ingest
        pushes = [
            local.push(vantage, [local.sample(DAY_AT + seq)] * size, epoch=epoch, seq=seq, heartbeat=beat)
            for vantage, size in ((US, 1), (SG, 10))
            for epoch in (BEFORE, AFTER)
        ]
        await asyncio.gather(*pushes)
    assert [(await state_of(local, vantage)).ledgered for vantage in (US, SG)] == [8, 80]


@pytest.mark.parametrize("rounds", [(), (0, 5, 2)])
async def test_the_ledger_knows_rounds(local: InProcessCollector, database_url: str, rounds: tuple[int, ...]) -> None:
    """The ledger has the oldest and newest round of a batch among those with a partition, or none."""
    await local.begin(DAY_AT)
    too_old = local.sample(DAY_AT - 50 * 86_400 * SECOND_US)
    await local.push(US, [too_old, *(local.sample(DAY_AT + second * SECOND_US) for second in rounds)])
    (told,) = rows(
        database_url,
        "SELECT extract(epoch FROM oldest_round_at)::bigint, extract(epoch FROM newest_round_at)::bigint"
        " FROM ingest_batch",
    )
    day_s = DAY_AT // SECOND_US
    assert told == ((day_s + min(rounds), day_s + max(rounds)) if rounds else (None, None))
