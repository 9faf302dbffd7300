"""The schema's revision: which one a database has, which one is the newest, and migrations between them.

The revisions are modules of the package `isochrone_migrations.versions`, named after their numbers. Alembic applies
them. It is imported only if a revision has to be applied, because it takes a third of a collector's start.
"""

import select
from collections.abc import Sequence
from contextlib import closing
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any, NamedTuple

import psycopg

from isochrone_collector.errors import SchemaError
from isochrone_collector.store.postgres import citus
from isochrone_collector.store.postgres.connection import NoAnswer, condition_of, unavailable
from isochrone_collector.store.postgres.pool import connect, query

_VERSIONS = "isochrone_migrations.versions"
_CHECKS = 3
_ANSWER_SECONDS = 10


class Migration(NamedTuple):
    """A migration: the revisions before and after it, and the tables that it distributed over a Citus cluster."""

    before: str | None
    after: str | None
    distributed: Sequence[str] = ()


def migrate(conninfo: str, *, revision: str = "head", distribute: bool = False) -> Migration:
    """Upgrade to `revision`. Raises `DatabaseUnreachable`, `DatabaseUnavailable` and `SchemaError`.

    Then distribute the tables over the Citus cluster, if that is wanted, or if others of them are distributed already.
    Several processes may run this at once: all but one wait, and then have nothing to do.
    """
    before, newest = revisions(conninfo)
    if revision == "head" and before == newest and not (distribute or citus.is_incomplete(conninfo)):
        return Migration(before, before)
    from isochrone_collector.store.postgres import migration_runner  # noqa: PLC0415  # alembic, as stated above

    return Migration(*migration_runner.upgrade(conninfo, revision=revision, distribute=distribute))


def downgrade(conninfo: str, *, revision: str) -> None:
    """Downgrade to `revision`; `base` is the empty database. Raises `DatabaseUnreachable` and `SchemaError`."""
    from isochrone_collector.store.postgres import migration_runner  # noqa: PLC0415  # alembic, as stated above

    migration_runner.downgrade(conninfo, revision=revision)


def revisions(conninfo: str) -> tuple[str | None, str]:
    """Return the database's revision and the newest known one. Raises `DatabaseUnreachable` and `SchemaError`."""
    newest = known_revisions()[-1]
    with connect(conninfo) as connection:
        try:
            _check_server(connection, conninfo)
            [has_revision] = connection.execute(query("has_revision")).fetchone() or [False]
            row = connection.execute(query("revision")).fetchone() if has_revision else None
        except psycopg.Error as error:
            if condition := condition_of(error):
                raise unavailable(error, condition) from error
            raise SchemaError(f"cannot read the revision of the database: {error}") from error
    return (str(row[0]) if row else None), newest


def _check_server(connection: psycopg.Connection[Any], conninfo: str) -> None:
    """Check the encoding, and that each connection has a session of its own. Raises `SchemaError`, `psycopg.Error`."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding not in (None, "UTF8"):
        hint = "create it with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        raise SchemaError(f"the database has the encoding {encoding}, and the collector needs UTF8", hint=hint)
    with closing(connect(conninfo)) as other:
        try:
            backends = [_backend(one) for _ in range(_CHECKS) for one in (connection, other)]
        except NoAnswer as error:
            if connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:
                raise
            # No pooler is at fault if the first session does not answer any more, either.
            _backend(connection)
            hint = "a collector needs up to 20; if a pooler is in between, raise its pool_size"
            raise SchemaError(f"the database gave no second session within {_ANSWER_SECONDS} s", hint=hint) from error
    # A pooler of transactions gives one server process to both, or several to one.
    if len(set(backends[::2])) > 1 or set(backends[::2]) & set(backends[1::2]):
        hint = "use its direct or its session address in --database-url; with PgBouncer, pool_mode = session"
        raise SchemaError("the database is behind a pooler that pools transactions or statements", hint=hint)


def _backend(connection: psycopg.Connection[Any]) -> tuple[bytes | None, bytes | None]:
    """Return the server process that answers a single statement, and the start of its server. Raises `NoAnswer`."""
    connection.pgconn.send_query(b"SELECT pg_backend_pid(), pg_postmaster_start_time()")
    if not select.select([connection.pgconn.socket], [], [], _ANSWER_SECONDS)[0]:
        raise NoAnswer(f"no answer within {_ANSWER_SECONDS} s")
    [result, *_] = list(iter(connection.pgconn.get_result, None))  # to the end, else the connection stays busy
    if result.status != psycopg.pq.ExecStatus.TUPLES_OK:
        raise psycopg.errors.error_from_result(result)
    return result.get_value(0, 0), result.get_value(0, 1)


def known_revisions() -> list[str]:
    """Return all revisions, oldest first. Raises `SchemaError`."""
    try:
        spec = find_spec(_VERSIONS)
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        raise SchemaError(
            "the package isochrone_migrations is not installed", hint="pip install 'isochrone[collector]'"
        )
    # Revision 0001 is the module `v0001_foundations`.
    return sorted(module.name[1:].partition("_")[0] for module in iter_modules(spec.submodule_search_locations))
