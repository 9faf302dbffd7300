"""Streaming replication between embedded servers: a standby, and its promotion."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

from isochrone_collector.store.postgres.embedded import EmbeddedPostgres, binaries
from testdata.waiting import eventually

READY_SECONDS = 60.0


@contextmanager
def make_standby(primary: EmbeddedPostgres, home: Path) -> Iterator[EmbeddedPostgres]:
    """Run a standby in `home` from a copy of the primary, whose commits wait from now on until the standby has them."""
    home.mkdir(mode=0o700, parents=True)
    where = conninfo_to_dict(primary.conninfo)
    command = [str(binaries() / "pg_basebackup"), "-h", str(where["host"]), "-p", str(where["port"])]
    command += ["-U", str(where["user"]), "-D", str(home / "postgres"), "-R", "-X", "stream", "-c", "fast"]
    subprocess.run(command, check=True, capture_output=True)
    with EmbeddedPostgres(home) as standby:
        ask(primary, "ALTER SYSTEM SET synchronous_standby_names = '*'")
        ask(primary, "SELECT pg_reload_conf()")
        eventually(READY_SECONDS, lambda: ask(primary, _IN_SYNC) == 1, "the standby in sync")
        yield standby


def promote(standby: EmbeddedPostgres) -> None:
    """Make a standby the primary."""
    assert ask(standby, "SELECT pg_promote(true, 30)::int") == 1


def ask(server: EmbeddedPostgres, statement: str) -> int | None:
    """Run a statement as the superuser; return the first number of its result."""
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        cursor = connection.execute(statement)
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def url_of_all(*servers: EmbeddedPostgres) -> str:
    """Return one URL that names all of the servers."""
    parts = conninfo_to_dict(servers[0].conninfo)
    hosts = [str(conninfo_to_dict(server.conninfo)["host"]) for server in servers]
    return f"postgresql:///?{urlencode({**{k: v for k, v in parts.items() if v}, 'host': ','.join(hosts)})}"


_IN_SYNC = "SELECT count(*)::int FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')"
