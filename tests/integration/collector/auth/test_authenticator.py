"""The authenticator's copy of the credentials: the cost of a refresh, and how soon it sees changes."""

import time
from collections.abc import AsyncIterator
from dataclasses import replace

import psycopg
import pytest

from isochrone_collector.auth.authenticator import Authenticator
from isochrone_collector.errors import Unauthenticated
from isochrone_collector.store import access
from isochrone_collector.store.access import CredentialRow
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_common.credentials import Credential, hash_secret
from isochrone_wire.model import SECOND_US
from isochrone_wire.operations import Role

MANY = 10_000
NOW_AT = 1_800_000_000 * SECOND_US
OURS = Credential(id=MANY + 1, secret=bytes(32))
METADATA = [("authorization", f"Bearer {OURS}")]
FILL = """
INSERT INTO credential (id, name, role, region, secret_hash, created_at)
SELECT n, 'v-' || n, 'vantage', 'r', sha256(n::text::bytea), now() FROM generate_series(1, %s) AS n
"""


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.at = NOW_AT

    def __call__(self) -> int:
        """Its instant, in microseconds since the epoch."""
        return self.at


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A migrated database, as the collector sees it."""
    opened = Database(database_url)
    await opened.open()
    yield opened
    await opened.close()


async def granted(database: Database) -> None:
    async with database.connection() as connection:
        row = CredentialRow(
            id=OURS.id,
            name="ops",
            role=Role.OPERATOR,
            region=None,
            secret_hash=hash_secret(OURS.secret),
            created_at=NOW_AT,
        )
        await access.issue(connection, row)


async def authenticated(authenticator: Authenticator) -> bool:
    try:
        await authenticator.authenticate(METADATA, [Role.OPERATOR])
    except Unauthenticated:
        return False
    return True


async def cpu_of_refresh(authenticator: Authenticator) -> float:
    began = time.process_time()
    await authenticator.refresh()
    return time.process_time() - began


async def test_a_refresh_without_changes_is_cheap(database: Database, database_url: str) -> None:
    """With ten thousand credentials, the refresh of every second costs a small part of reading them all."""
    with psycopg.connect(database_url) as connection:
        connection.execute(FILL, [MANY])
    authenticator = Authenticator(database=database, clock=Clock(), required=True)
    reading = await cpu_of_refresh(authenticator)
    idle = min([await cpu_of_refresh(authenticator) for _ in range(5)])
    assert idle < reading / 5, (idle, reading)


async def test_a_revocation_is_seen_at_the_next_refresh(database: Database) -> None:
    """A revocation by another collector is found in the database."""
    await granted(database)
    authenticator = Authenticator(database=database, clock=Clock(), required=True)
    await authenticator.refresh()
    assert await authenticated(authenticator)
    async with database.connection() as connection:
        await access.revoke_credential(connection, OURS.id, revoked_at=NOW_AT + 1)
    await authenticator.refresh()
    assert not await authenticated(authenticator)


async def test_a_row_changed_by_hand_is_seen_within_a_minute(database: Database, database_url: str) -> None:
    """The full read of every minute finds a change that leaves the counts as they were, also on a clock set back."""
    for later in (61 * SECOND_US, -SECOND_US):
        with psycopg.connect(database_url) as connection:
            connection.execute("DELETE FROM credential")
        await granted(database)
        clock = Clock()
        authenticator = Authenticator(database=database, clock=clock, required=True)
        await authenticator.refresh()
        with psycopg.connect(database_url) as connection:
            connection.execute("UPDATE credential SET secret_hash = sha256('another')")
        await authenticator.refresh()
        assert await authenticated(authenticator)
        clock.at += later
        await authenticator.refresh()
        assert not await authenticated(authenticator)


async def test_use_is_recorded_once_a_minute(database: Database, database_url: str) -> None:
    """The use of a credential is recorded once a minute, however often it is used, without a full read."""
    await granted(database)
    clock = Clock()
    authenticator = Authenticator(database=database, clock=clock, required=True)
    written: list[int] = []
    for seconds in range(0, 125, 5):
        clock.at = NOW_AT + seconds * SECOND_US
        assert await authenticated(authenticator)
        await authenticator.refresh()
        with psycopg.connect(database_url) as connection:
            row = connection.execute("SELECT extract(epoch FROM last_used_at)::bigint FROM credential").fetchone()
        assert row is not None
        written.append(row[0] - NOW_AT // SECOND_US)
    assert sorted(set(written)) == [0, 65]


async def test_a_successor_that_appears_during_a_refresh_ends_its_predecessor(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another collector renews the credential and the holder comes here with the successor, while this collector reads
    all credentials: the copy lacks the successor, whose first use is recorded all the same.
    """
    successor, read = Credential(id=MANY + 2, secret=bytes(32)), access.credentials
    await granted(database)
    authenticator = Authenticator(database=database, clock=Clock(), required=True)

    async def renewed_meanwhile(connection: Connection) -> list[CredentialRow]:
        rows = await read(connection)
        async with database.connection() as other:
            await access.issue(other, replace(rows[0], id=successor.id, renews=OURS.id))
        await authenticator.authenticate([("authorization", f"Bearer {successor}")], [Role.OPERATOR])
        return rows

    monkeypatch.setattr(access, "credentials", renewed_meanwhile)
    await authenticator.refresh()
    with psycopg.connect(database_url) as connection:
        ends = "SELECT extract(epoch FROM expires_at)::bigint FROM credential ORDER BY id"
        assert connection.execute(ends).fetchall() == [(NOW_AT // SECOND_US + 600,), (None,)]
