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
# A standby returns to a primary that was restarted within a second, and finds the log that it needs there.
_SETTINGS = ("wal_retrieve_retry_interval = '500ms'", "wal_keep_size = '128MB'")


@contextmanager
def make_standby(primary: EmbeddedPostgres, home: Path) -> Iterator[EmbeddedPostgres]:
    """Run a standby in `home` from a copy of the primary, whose commits wait from now on until the standby has them."""
    standby = start_standby(primary, home)
    try:
        yield standby
    finally:
        standby.stop()


def start_standby(primary: EmbeddedPostgres, home: Path) -> EmbeddedPostgres:
    """Start a standby in the empty or missing folder `home`; see `make_standby`."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for setting in _SETTINGS:
        ask(primary, f"ALTER SYSTEM SET {setting}")
    ask(primary, "SELECT pg_reload_conf()")
    back_up(primary, home / "postgres", "-R")
    standby = EmbeddedPostgres(home)
    standby.start()
    ask(primary, "ALTER SYSTEM SET synchronous_standby_names = '*'")
    ask(primary, "SELECT pg_reload_conf()")
    eventually(READY_SECONDS, lambda: ask(primary, _IN_SYNC) == 1, "the standby in sync")
    return standby


def back_up(server: EmbeddedPostgres, folder: Path, *options: str) -> None:
    """Copy a running server to an empty or missing folder, which another server can run on."""
    where = conninfo_to_dict(server.conninfo)
    command = [str(binaries() / "pg_basebackup"), "-h", str(where["host"]), "-p", str(where["port"])]
    command += ["-U", str(where["user"]), "-D", str(folder), "-X", "stream", "-c", "fast", "--no-sync", *options]
    subprocess.run(command, check=True, capture_output=True)


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
