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
# Few, because every test makes its own.
_SHARDS = 4
_NODES = "SELECT nodename, nodeport FROM pg_dist_node WHERE noderole = 'primary' ORDER BY groupid"


class _Node(NamedTuple):
    host: str
    port: int


@contextmanager
def new_database(coordinator: str, name: str) -> Iterator[str]:
    """A database on every node, known to the coordinator, without tables; its URL at the coordinator."""
    with psycopg.connect(coordinator) as connection:
        nodes = [_Node(*row) for row in connection.execute(_NODES)]
    for node in nodes:
        _execute(coordinator, node, "CREATE DATABASE {}", name)
        with psycopg.connect(_at(coordinator, node, name), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION citus")
            setting = "ALTER DATABASE {} SET citus.shard_count = {}"
            connection.execute(sql.SQL(setting).format(sql.Identifier(name), sql.Literal(_SHARDS)))
    head, *workers = nodes
    with psycopg.connect(_at(coordinator, head, name), autocommit=True) as connection:
        connection.execute("SELECT citus_set_coordinator_host(%s, %s)", head)
        for worker in workers:
            connection.execute("SELECT citus_add_node(%s, %s)", worker)
    yield _at(coordinator, head, name)
    for node in nodes:
        _execute(coordinator, node, "DROP DATABASE {} WITH (FORCE)", name)


def migrate(database_url: str) -> None:
    """Migrate a database and distribute its tables."""
    schema.migrate(database_url)
    citus.distribute(database_url)


def _execute(coordinator: str, node: _Node, statement: str, name: str) -> None:
    with psycopg.connect(_at(coordinator, node), autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(sql.Identifier(name)))


def _at(coordinator: str, node: _Node, name: str | None = None) -> str:
    return make_conninfo(coordinator, host=node.host, port=node.port, **({"dbname": name} if name else {}))
