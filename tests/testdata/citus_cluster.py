"""Databases on the Citus cluster whose coordinator ISOCHRONE_TEST_CITUS_URL names.

The cluster is made beforehand: Citus on every node, and the workers known to the coordinator by the addresses at which
the tests reach them, with the same user.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.errors import ObjectInUse

from isochrone_collector.store.postgres import schema

VARIABLE = "ISOCHRONE_TEST_CITUS_URL"
# Few, because every test has its own.
_SHARDS = 4
_ATTEMPTS = 6
_NODES = "SELECT nodename, nodeport FROM pg_dist_node WHERE noderole = 'primary' ORDER BY groupid"
_END_SESSIONS = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()
"""
_PREPARED = "SELECT gid FROM pg_prepared_xacts WHERE database = %s"


class _Node(NamedTuple):
    host: str
    port: int


@contextmanager
def new_database(coordinator: str, name: str, *, template: str | None = None) -> Iterator[None]:
    """A database on every node, known to the coordinator, without tables or a copy of another one."""
    with psycopg.connect(coordinator) as connection:
        nodes = [_Node(*row) for row in connection.execute(_NODES)]
    for node in nodes:
        if template is not None:
            _copy(coordinator, node, name, template)
        else:
            _make(coordinator, node, name)
    head, *workers = nodes
    if template is None:
        with psycopg.connect(_at(coordinator, head, name), autocommit=True) as connection:
            connection.execute("SELECT citus_set_coordinator_host(%s, %s)", head)
            for worker in workers:
                connection.execute("SELECT citus_add_node(%s, %s)", worker)
    yield
    for node in nodes:
        with psycopg.connect(_at(coordinator, node), autocommit=True) as connection:
            _allow_connections(connection, name, allowed=True)
            _roll_back_prepared(_at(coordinator, node, name), name)
            _execute_alone(connection, name, sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))


def migrate(database_url: str) -> None:
    schema.migrate(database_url, distribute=True)


def _roll_back_prepared(conninfo: str, name: str) -> None:
    """Roll back what a killed collector left in a two-phase commit: such a database cannot be dropped."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(_END_SESSIONS, [name])
        for (gid,) in connection.execute(_PREPARED, [name]).fetchall():
            connection.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))


def _execute_alone(connection: psycopg.Connection, name: str, statement: sql.Composed) -> None:
    """Execute a statement for which a database may have no sessions. Citus has some of its own, and opens them again;
    on a busy machine they take long to end.
    """
    _allow_connections(connection, name, allowed=False)
    for attempt in range(1, _ATTEMPTS + 1):
        connection.execute(_END_SESSIONS, [name])
        try:
            connection.execute(statement)
        except ObjectInUse:
            if attempt == _ATTEMPTS:
                raise
        else:
            return


def _allow_connections(connection: psycopg.Connection, name: str, *, allowed: bool) -> None:
    statement = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
    connection.execute(statement.format(sql.Identifier(name), sql.Literal(allowed)))


def _make(coordinator: str, node: _Node, name: str) -> None:
    with psycopg.connect(_at(coordinator, node), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    with psycopg.connect(_at(coordinator, node, name), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION citus")
        setting = "ALTER DATABASE {} SET citus.shard_count = {}"
        connection.execute(sql.SQL(setting).format(sql.Identifier(name), sql.Literal(_SHARDS)))


def _copy(coordinator: str, node: _Node, name: str, template: str) -> None:
    """Copy a database of a node. The nodes know one another by names and ports, and its shards by their names."""
    with psycopg.connect(_at(coordinator, node), autocommit=True) as connection:
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
        _execute_alone(connection, template, create)


def _at(coordinator: str, node: _Node, name: str | None = None) -> str:
    return make_conninfo(coordinator, host=node.host, port=node.port, **({"dbname": name} if name else {}))
