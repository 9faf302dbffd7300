"""What the ledger does not say of batches that a collector of the version before stored on the same database.

It knows neither the columns of rounds nor the accounts of vantages: the rounds of its batches are read from the
samples, and the accounts that it did not add to are counted anew. Reading samples by their batch reads all of them,
which is dear, so nothing is read unless there are such batches.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from isochrone_collector.store.postgres.instants import Instant
from isochrone_collector.store.postgres.pool import Connection, Database, execute, fetch
from isochrone_collector.store.postgres.queries import query
from isochrone_collector.store.rows import BatchKey, IdRow
from isochrone_wire.answers import Window

# Agents number the batches of an epoch from here.
_FIRST_SEQ = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredRow:
    """A region to which rounds were delivered, and the oldest of them."""

    region: str
    oldest_round_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _AccountRow:
    """Which epoch the account of a vantage is of."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _CountedRow:
    """How many samples of an epoch the ledger has, and from which batch on."""

    ledgered: int
    first_seq: int | None


async def hours(connection: Connection, *, received_at: int, before_at: int) -> list[Window]:
    """Which hours before an instant have samples of such batches received since another; each from its first instant to
    that same instant, as a closed span of one.
    """
    asked = await _roundless(connection, received_at)
    if not asked:
        return []
    return await fetch(connection, query("hours_of_batches"), Window, **asked, before_at=Instant(before_at))


async def deliveries(connection: Connection, *, received_at: int, rounds: Window) -> list[DeliveredRow]:
    """Regions to which rounds of a window were delivered with such batches, received since an instant."""
    asked = await _roundless(connection, received_at)
    if not asked:
        return []
    span = {"from_at": Instant(rounds.from_at), "before_at": Instant(rounds.until_at)}
    return await fetch(connection, query("deliveries_of_batches"), DeliveredRow, **asked, **span)


async def recount(database: Database, *, received_at: int) -> None:
    """Count the accounts anew of the vantages whose epoch has such batches, received since an instant. Raises
    `DatabaseUnavailable`.
    """
    async with database.connection() as connection:
        told = {"received_at": Instant(received_at)}
        found = await fetch(connection, query("roundless_vantages"), IdRow, **told)
    for row in found:
        # One at a time, or ingest could hold another that we wait for while it waits for this one.
        async with database.transaction() as connection:
            for account in await fetch(connection, query("hold_account"), _AccountRow, id=row.id):
                await _recount(connection, account)


async def _recount(connection: Connection, account: _AccountRow) -> None:
    told = {"id": account.id, "epoch": account.epoch}
    (counted,) = await fetch(connection, query("count_account"), _CountedRow, **told)
    is_whole = counted.first_seq == _FIRST_SEQ
    await execute(connection, query("set_account"), id=account.id, ledgered=counted.ledgered, is_whole=is_whole)


async def _roundless(connection: Connection, received_at: int) -> Mapping[str, list[int]]:
    keys = await fetch(connection, query("roundless_batches"), BatchKey, received_at=Instant(received_at))
    if not keys:
        return {}
    return {
        "vantage_id": [key.vantage_id for key in keys],
        "epoch": [key.epoch for key in keys],
        "seq": [key.seq for key in keys],
    }
