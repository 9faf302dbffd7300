"""The audit trail: every change with who made it, in its transaction, and no way to take it back."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlencode

import grpc
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from fixtures.collector import Caller, Collector
from fixtures.inprocess_collector import DAY_AT, InProcessCollector
from fixtures.postgres import address_of, rows
from isochrone_collector.store import audit as store
from isochrone_collector.store import diagnostics
from isochrone_collector.store.postgres import schema
from isochrone_common import enrolment, identity_file
from isochrone_common.address import parse_address

PAGE = Path(__file__).parents[4] / "docs" / "security.md"
PLAN = "baseline: us-east-2\ntargets: [{model: %s, provider: sim, base_url: 'http://h'}]\n"


@pytest.fixture(scope="module")
def guarded(shared_guarded_collector: Collector) -> Collector:
    return shared_guarded_collector


def audit(collector: Collector, *options: str) -> list[dict[str, str]]:
    command = [sys.executable, "-m", "isochrone_collector", "audit", "--output", "json", *options]
    command += ["--collector", collector.address, "--identity", str(collector.data_dir / "operator.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(reversed(json.loads(done.stdout)["entries"]))


def test_every_change_is_recorded_with_its_authenticated_name(guarded: Collector) -> None:
    """Invitations, joins, plans and revocations have the credential's name and address; what changed nothing is not."""
    operator = identity_file.read(guarded.data_dir / "operator.json").name
    token = guarded.call.invite("ida", role="operator", region=None)
    ida = enrolment.join(parse_address(guarded.address), token, version="test")
    caller = Caller(guarded.address, ida)
    version = caller.apply(PLAN % "a").version
    caller.apply(PLAN % "b", dry_run=True)
    caller.apply("nonsense: true")
    later = caller.apply(PLAN % "c").version
    caller.roll_back(version)
    with pytest.raises(grpc.RpcError):
        caller.invite("ida", role="operator", region=None)
    caller.invite("jp-1")
    caller.revoke("jp-1")
    caller.close()
    found = [(one["principal"], one["address"], one["action"], one["target"]) for one in audit(guarded)]
    assert found == [
        ("collector", "", "access.grant", f"operator {operator}"),
        (operator, "127.0.0.1", "access.invite", "operator ida"),
        ("ida", "127.0.0.1", "access.join", "operator ida"),
        ("ida", "127.0.0.1", "plan.apply", str(version)),
        ("ida", "127.0.0.1", "plan.apply", str(later)),
        ("ida", "127.0.0.1", "plan.rollback", str(later + 1)),
        ("ida", "127.0.0.1", "access.invite", "vantage jp-1"),
        ("ida", "127.0.0.1", "access.revoke", "jp-1"),
    ]
    assert [one["target"] for one in audit(guarded, "--action", "plan.apply")] == [str(version), str(later)]
    assert [one["target"] for one in audit(guarded, "--principal", "ida", "--limit", "1")] == ["jp-1"]
    assert audit(guarded, "--principal", "nobody") == []


@contextmanager
def owner(server: str, database: str) -> Iterator[str]:
    """The URL of the database for an owner who is no superuser, as a collector of an own server is."""
    parts = {key: value for key, value in conninfo_to_dict(server).items() if value is not None}
    rows(server, "CREATE ROLE audit_owner LOGIN PASSWORD 'p'")
    rows(server, f'ALTER DATABASE "{database}" OWNER TO audit_owner')
    try:
        yield f"postgresql:///?{urlencode(parts | {'dbname': database, 'user': 'audit_owner', 'password': 'p'})}"
    finally:
        rows(server, f'ALTER DATABASE "{database}" OWNER TO CURRENT_USER')
        rows(address_of(server, database), "DROP OWNED BY audit_owner CASCADE")
        rows(address_of(server, database), "DROP ROLE audit_owner")


def test_what_is_recorded_stays(postgres_server: str, empty_database_url: str) -> None:
    """The collector's user of a database can add entries, and neither change nor remove them."""
    database = str(conninfo_to_dict(empty_database_url)["dbname"])
    with owner(postgres_server, database) as url:
        schema.migrate(url)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("INSERT INTO audit VALUES (1, now(), 'ida', '', 'plan.apply', '1', '')")
            for statement in ("UPDATE audit SET principal = 'bo'", "DELETE FROM audit", "TRUNCATE audit"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement)
            assert connection.execute("SELECT principal FROM audit").fetchall() == [("ida",)]


async def record(local: InProcessCollector, number: int) -> None:
    async with local.database.transaction() as connection:
        await store.record(connection, at=DAY_AT + number, action="plan.apply", target=f"é{number}")


async def chain(database_url: str, known: store.Head = store.NO_ENTRY) -> store.Chain:
    found = (await asyncio.to_thread(diagnostics.facts, database_url, known_entry=known)).audit
    assert found
    return found


@pytest.mark.parametrize(
    ("statements", "shown"),
    [
        ("SELECT 1", (None, True)),
        ("UPDATE audit SET principal = 'bo' WHERE id = 2", (2, True)),
        ("UPDATE audit SET at = 'epoch' WHERE id = 2", (2, True)),
        ("UPDATE audit SET action = 'plan', target = '.applyé4' WHERE id = 4", (4, True)),
        ("DELETE FROM audit WHERE id = 1", (2, True)),
        ("DELETE FROM audit WHERE id = 3", (4, True)),
        ("DELETE FROM audit WHERE id = 4", (None, False)),
        ("DELETE FROM audit", (None, False)),
        ("DELETE FROM audit WHERE id > 1; UPDATE audit SET id = 2", (2, False)),
    ],
)
async def test_what_was_changed_or_removed_shows(
    local: InProcessCollector, database_url: str, statements: str, shown: tuple[int | None, bool]
) -> None:
    """Whatever its owner does to the trail, a later hash differs, or that of the newest entry seen is gone."""
    for number in range(1, 5):
        await record(local, number)
    before = await chain(database_url)
    assert (before.head.id, before.is_whole) == (4, True)
    async with local.database.transaction() as connection:
        for statement in ("GRANT UPDATE, DELETE ON audit TO CURRENT_USER", *statements.split("; ")):
            await connection.execute(statement.encode())
    after = await chain(database_url, before.head)
    assert (after.broken_id, after.has_known) == shown


def test_an_entry_with_another_hash_does_not_carry_the_next() -> None:
    """Who changes an entry and its hash has to change all later ones, and so the newest, which is kept elsewhere."""
    rows, head = list[tuple[object, ...]](), store.NO_ENTRY
    for number in range(1, 4):
        fields = (number, DAY_AT, "ida", "", "plan.apply", "1")
        head = store.Head(id=number, hash=store._hash(head.hash, *fields))
        rows.append((*fields, head.hash))
    forged = (2, DAY_AT, "bo", "", "plan.apply", "1")
    rows[1] = (*forged, store._hash(bytes(rows[0][-1]), *forged))  # type: ignore[call-overload]  # it is bytes
    assert store.chain_of(rows, known=head, is_owned=True).broken_id == 3
    rows[2] = (*rows[2][:-1], store._hash(rows[1][-1], *rows[2][:-1]))  # type: ignore[arg-type]  # as they are made
    found = store.chain_of(rows, known=head, is_owned=True)
    assert (found.broken_id, found.is_whole) == (None, False)


async def test_entries_made_at_once_follow_one_another(local: InProcessCollector, database_url: str) -> None:
    """Transactions that record at the same time wait for each other, so that no two follow the same entry."""
    await asyncio.gather(*(record(local, number) for number in range(1, 20)))
    found = await chain(database_url)
    assert (found.head.id, found.is_whole) == (19, True)


def test_another_owner_keeps_the_trail(postgres_server: str, empty_database_url: str) -> None:
    """With the statements of docs/security.md the collector's user can record, and cannot get the right to remove."""
    (statements,) = re.findall(r"```sql\n(.*?audit.*?)```", PAGE.read_text(), re.DOTALL)
    database = str(conninfo_to_dict(empty_database_url)["dbname"])
    with owner(postgres_server, database) as url:
        schema.migrate(url)
        with psycopg.connect(address_of(postgres_server, database), autocommit=True) as connection:
            names = {"DATABASE isochrone": f'DATABASE "{database}"', "isochrone_audit": "audit_keeper"}
            for name, own in (names | {"isochrone;": "audit_owner;"}).items():
                statements = statements.replace(name, own)
            connection.execute(statements.encode())
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("INSERT INTO audit VALUES (1, now(), 'ida', '', 'plan.apply', '1', '')")
                for statement in ("GRANT DELETE ON audit TO CURRENT_USER", "DELETE FROM audit", "DROP TABLE audit"):
                    with suppress(psycopg.errors.InsufficientPrivilege):
                        connection.execute(statement)
                assert connection.execute("SELECT principal FROM audit").fetchall() == [("ida",)]
            found = diagnostics.facts(url).audit
            assert found
            assert not found.is_owned
        finally:
            rows(address_of(postgres_server, database), "DROP OWNED BY audit_keeper CASCADE")
            rows(address_of(postgres_server, database), "DROP ROLE audit_keeper")
