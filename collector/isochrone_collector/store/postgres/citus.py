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

from isochrone_collector.errors import SchemaError, StartError
from isochrone_collector.store.postgres.pool import connect
from isochrone_collector.store.postgres.queries import query

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
    "audit",
    "chore",
    "credential",
    "incident",
    "invitation",
    "plan",
    "region",
    "route_table",
    "target",
    "vantage",
)
"""The tables of which every node has a copy."""

_ALONE = "none"


def check(conninfo: str) -> None:
    """Check that the server has Citus. Raises `StartError` if not, and `DatabaseUnreachable`."""
    with connect(conninfo) as connection:
        _check(connection)


def distribute(conninfo: str) -> list[str]:
    """Distribute the tables that are not distributed yet, with their rows, all or none; return their names.

    Writers wait meanwhile. Then the rows that are left on the coordinator are removed. Raises `StartError`,
    `DatabaseUnreachable` and `SchemaError`.
    """
    with connect(conninfo) as connection:
        _check(connection)
        _check_workers(connection)
        there = {name for (name,) in connection.execute(query("citus_tables"))}
        missing = [name for name in (*REFERENCE, *DISTRIBUTED) if name not in there]
        try:
            connection.execute(query("citus_one_by_one"))
            for name in missing:
                _distribute(connection, name)
        except psycopg.Error as error:
            raise SchemaError(f"the tables could not be distributed and nothing was changed: {error}") from error
    _remove_local_rows(conninfo)
    return missing


def _check(connection: psycopg.Connection[Any]) -> None:
    found = connection.execute(query("citus_is_there")).fetchone()
    if found != (True,):
        raise StartError(
            "this database has no Citus",
            hint="install Citus on every node, put it first in shared_preload_libraries, and run"
            " `CREATE EXTENSION citus` in this database; docs/scale.md shows when it is worth it",
        )


def _check_workers(connection: psycopg.Connection[Any]) -> None:
    (workers,) = connection.execute(query("citus_workers")).fetchone() or (0,)
    if not workers:
        raise StartError(
            "this cluster has no worker, so all rows would stay on the coordinator",
            hint="in this database, run `SELECT citus_set_coordinator_host('COORDINATOR', 5432)` and, for each worker,"
            " `SELECT citus_add_node('WORKER', 5432)`",
        )


def _remove_local_rows(conninfo: str) -> None:
    """Remove the rows that distribution copied to the workers and left here; what was removed before is empty."""
    with connect(conninfo) as connection:
        connection.autocommit = True
        try:
            for name in (*DISTRIBUTED, *REFERENCE):
                connection.execute(query("citus_remove_local_rows"), {"table": name})
        except psycopg.Error as error:
            raise SchemaError(
                f"the tables are distributed, but old rows are still on the coordinator: {error}",
                hint="repeat the command once nothing uses the tables",
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
