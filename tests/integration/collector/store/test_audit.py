"""The audit trail: every change with who made it, in its transaction, and no way to take it back."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlencode

import grpc
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from fixtures.collector import Caller, Collector
from fixtures.postgres import address_of
from isochrone_collector.store.postgres import schema
from isochrone_common import enrolment, identity_file
from isochrone_common.address import parse_address

PLAN = "baseline: us-east-2\ntargets: [{model: %s, provider: sim, base_url: 'http://h'}]\n"


@pytest.fixture(scope="module")
def guarded(shared_guarded_collector: Collector) -> Collector:
    return shared_guarded_collector


def audit(collector: Collector, *options: str) -> list[dict[str, str]]:
    """The entries of `isochrone-collector audit`, oldest first."""
    command = [sys.executable, "-m", "isochrone_collector", "audit", "--output", "json", *options]
    command += ["--collector", collector.address, "--identity", str(collector.data_dir / "operator.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(reversed(json.loads(done.stdout)["entries"]))


def test_every_change_is_recorded_with_its_authenticated_name(guarded: Collector) -> None:
    """Invitations, joins, plans and revocations are recorded with the name of the credential, whatever name the caller
    states, and with the address; dry runs, refused plans and refused calls are not.
    """
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
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE ROLE audit_owner LOGIN PASSWORD 'p'")
        connection.execute(f'ALTER DATABASE "{database}" OWNER TO audit_owner')
    try:
        yield f"postgresql:///?{urlencode(parts | {'dbname': database, 'user': 'audit_owner', 'password': 'p'})}"
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{database}" OWNER TO CURRENT_USER')
        with psycopg.connect(address_of(server, database)) as connection:
            connection.execute("DROP OWNED BY audit_owner CASCADE")
            connection.execute("DROP ROLE audit_owner")


def test_what_is_recorded_stays(postgres_server: str, empty_database_url: str) -> None:
    """The collector's user of a database can add entries, and neither change nor remove them."""
    database = str(conninfo_to_dict(empty_database_url)["dbname"])
    with owner(postgres_server, database) as url:
        schema.migrate(url)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("INSERT INTO audit VALUES (1, now(), 'ida', '', 'plan.apply', '1')")
            for statement in ("UPDATE audit SET principal = 'bo'", "DELETE FROM audit", "TRUNCATE audit"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement)
            assert connection.execute("SELECT principal FROM audit").fetchall() == [("ida",)]
