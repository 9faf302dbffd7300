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

from isochrone_collector.store.postgres import citus, schema

VARIABLE = "ISOCHRONE_TEST_CITUS_URL"
# Few, because every test has its own.
_SHARDS = 4
_NODES = "SELECT nodename, nodeport FROM pg_dist_node WHERE noderole = 'primary' ORDER BY groupid"
_END_SESSIONS = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"


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
            _close(connection, name)
            connection.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))


def migrate(database_url: str) -> None:
    """Migrate a database and distribute its tables."""
    schema.migrate(database_url)
    citus.distribute(database_url)


def _close(connection: psycopg.Connection, name: str) -> None:
    """End the sessions of a database for good: Citus has some of its own, and opens them again."""
    connection.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(name)))
    connection.execute(_END_SESSIONS, [name])


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
        _close(connection, template)
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        connection.execute(create.format(sql.Identifier(name), sql.Identifier(template)))


def _at(coordinator: str, node: _Node, name: str | None = None) -> str:
    return make_conninfo(coordinator, host=node.host, port=node.port, **({"dbname": name} if name else {}))
