"""Citus: the same tables distributed over many nodes, where one PostgreSQL is not enough.

The laws:

1. Data of a target is distributed by `target_id`: its samples, pairs, percentiles and summaries are on one node.
2. The ledger is distributed by `vantage_id`: all batches of a vantage are on one node.
3. All other tables are small, and every node has a copy.

tests/unit/collector/store/test_portability.py checks that every statement keeps to what this allows.
"""

from collections.abc import Mapping
from typing import Any

import psycopg

from isochrone_collector.errors import DatabaseUnavailable, SchemaError, StartError
from isochrone_collector.store.postgres.pool import connect, query, translated

DISTRIBUTED: Mapping[str, str] = {
    "sample": "target_id",
    "sample_late": "target_id",
    "summary": "target_id",
    "outcome_summary": "target_id",
    "hourly_levels": "target_id",
    "drift_event": "target_id",
    "ingest_batch": "vantage_id",
}
"""Table → its distribution column."""

REFERENCE = (
    "alert",
    "alert_delivery",
    "audit",
    "chore",
    "credential",
    "incident",
    "invitation",
    "plan",
    "region",
    "route_table",
    "silence",
    "target",
    "vantage",
)
"""The tables of which every node has a copy."""

_ALONE = "none"
_GAVE_WAY = (
    "nothing was distributed, because collectors are writing: stop them, and run"
    " `isochrone-collector migrate --citus` again"
)


def check(conninfo: str) -> None:
    """Raise `StartError` without Citus and workers, `DatabaseUnreachable` and `DatabaseUnavailable`."""
    with translated(), connect(conninfo) as connection:
        if not _is_there(connection):
            raise StartError(
                "this database has no Citus",
                hint="install Citus on every node, put it first in shared_preload_libraries, and run"
                " `CREATE EXTENSION citus` in this database; docs/scale.md shows when it is worth it",
            )
        (workers,) = connection.execute(query("citus_workers")).fetchone() or (0,)
        if not workers:
            raise StartError(
                "this cluster has no worker, so all rows would stay on the coordinator",
                hint="in this database, run `SELECT citus_set_coordinator_host('COORDINATOR', 5432)` and, for each"
                " worker, `SELECT citus_add_node('WORKER', 5432)`",
            )


def is_incomplete(conninfo: str) -> bool:
    """Return whether only some tables are distributed. Raises `DatabaseUnreachable` and `DatabaseUnavailable`."""
    with translated(), connect(conninfo) as connection:
        return bool(local_tables(connection))


def is_distributed(connection: psycopg.Connection[Any]) -> bool:
    """Return whether any of the tables is distributed."""
    return _is_there(connection) and any(_tables(connection).values())


def local_tables(connection: psycopg.Connection[Any]) -> tuple[str, ...]:
    """Return the tables that are not distributed yet although others are."""
    tables = _tables(connection) if _is_there(connection) else {}
    return tuple(name for name, is_placed in tables.items() if not is_placed) if any(tables.values()) else ()


def distribute(connection: psycopg.Connection[Any]) -> list[str]:
    """Distribute the tables that are not distributed yet, with their rows, all or none; return their names.

    Writers wait meanwhile. Then the rows that are left on the coordinator are removed. The connection commits by itself
    (`autocommit`), and holds the lock of migrations. Raises `SchemaError` and `DatabaseUnavailable`.
    """
    try:
        missing = [name for name, is_placed in _tables(connection).items() if not is_placed]
        with translated(), connection.transaction():
            connection.execute(query("citus_one_by_one"))
            for name in missing:
                _distribute(connection, name)
    except DatabaseUnavailable as error:
        error.hint = error.hint or _GAVE_WAY
        raise
    except psycopg.Error as error:
        raise SchemaError(f"the tables could not be distributed, and none was: {error}") from error
    _remove_local_rows(connection)
    return missing


def _is_there(connection: psycopg.Connection[Any]) -> bool:
    return connection.execute(query("citus_is_there")).fetchone() == (True,)


def _tables(connection: psycopg.Connection[Any]) -> dict[str, bool]:
    """Return the tables that there are, in the order to distribute them, and whether each is distributed."""
    names = [*REFERENCE, *DISTRIBUTED]
    found = dict(connection.execute(query("citus_tables"), {"names": names}).fetchall())
    return {name: found[name] for name in names if name in found}


def _remove_local_rows(connection: psycopg.Connection[Any]) -> None:
    """Remove the rows that distribution copied to the workers and left here."""
    try:
        for name in _tables(connection):
            if connection.execute(query("citus_has_local_rows"), {"table": name}).fetchone() == (True,):
                connection.execute(query("citus_remove_local_rows"), {"table": name})
    except psycopg.Error as error:
        raise SchemaError(
            f"the tables are distributed, but old rows are still on the coordinator: {error}",
            hint="run `isochrone-collector migrate --citus` once nothing uses the tables",
        ) from error


def _distribute(connection: psycopg.Connection[Any], name: str) -> None:
    if name in REFERENCE:
        connection.execute(query("citus_copy_everywhere"), {"table": name})
        return
    column = DISTRIBUTED[name]
    # Tables with the same distribution column are colocated, so that related rows are on one node.
    beside = next(other for other, by in DISTRIBUTED.items() if by == column)
    parameters = {"table": name, "column": column, "beside": _ALONE if beside == name else beside}
    connection.execute(query("citus_distribute"), parameters)
