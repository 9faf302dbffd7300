"""Fixtures for databases: a real PostgreSQL, with a freshly migrated database per test.

The server is that of ISOCHRONE_TEST_DATABASE_URL, else a container if Docker is available, else the embedded one in a
temporary folder. Tests are independent of the choice. With ISOCHRONE_TEST_CITUS_URL every database is distributed over
that cluster.
"""

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from isochrone_collector.store.postgres import schema
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from testdata import citus_cluster

_ON_CITUS = citus_cluster.VARIABLE in os.environ
_IMAGE = "postgres:18-alpine"
# No test loses power; those that kill PostgreSQL start their own. Creating and dropping a database takes a third of the
# processor time with these.
_UNSAFE = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off", "checkpoint_timeout": "1h"}


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server on which databases can be created and dropped."""
    given = os.environ.get(citus_cluster.VARIABLE) or os.environ.get("ISOCHRONE_TEST_DATABASE_URL")
    if given:
        yield given
    elif _docker_answers():
        with _container() as address:
            yield address
    else:
        with _embedded(tmp_path_factory.mktemp("postgres")) as address:
            yield address


@pytest.fixture(scope="session")
def migrated_template(postgres_server: str) -> Iterator[str]:
    """The name of a migrated database, the template of others; on a cluster there is none."""
    if _ON_CITUS:
        yield ""
        return
    with _new_database(postgres_server, template="template1") as url:
        schema.migrate(url)
        yield str(conninfo_to_dict(url)["dbname"])


@pytest.fixture
def database_url(postgres_server: str, migrated_template: str) -> Iterator[str]:
    """A migrated database for one test."""
    with _migrated_database(postgres_server, migrated_template) as url:
        yield url


@pytest.fixture(scope="module")
def shared_database_url(postgres_server: str, migrated_template: str) -> Iterator[str]:
    """A migrated database shared by the tests of a module, which must not affect one another."""
    with _migrated_database(postgres_server, migrated_template) as url:
        yield url


@pytest.fixture
def empty_database_url(postgres_server: str) -> Iterator[str]:
    """A database for one test, without any migration."""
    with _new_database(postgres_server, template="template1") as url:
        yield url


def address_of(server: str, database: str) -> str:
    """Return the URL of another database on the same server."""
    parts = {key: value for key, value in conninfo_to_dict(server).items() if value is not None}
    return f"postgresql:///?{urlencode({**parts, 'dbname': database})}"


@contextmanager
def _migrated_database(server: str, template: str) -> Iterator[str]:
    with _new_database(server, template=template) as url:
        if _ON_CITUS:
            citus_cluster.migrate(url)
        yield url


@contextmanager
def _new_database(server: str, *, template: str) -> Iterator[str]:
    name = f"isochrone_test_{uuid.uuid4().hex}"
    if _ON_CITUS:
        with citus_cluster.new_database(server, name) as conninfo:
            yield address_of(conninfo, name)
        return
    with psycopg.connect(server, autocommit=True) as connection:
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        connection.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
    yield address_of(server, name)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def _embedded(folder: Path) -> Iterator[str]:
    with EmbeddedPostgres(folder) as postgres:
        with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
            for name, value in _UNSAFE.items():
                connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), value))
            connection.execute("SELECT pg_reload_conf()")
        yield postgres.conninfo


def _docker_answers() -> bool:
    docker = shutil.which("docker")
    if docker is None:
        return False
    try:
        return subprocess.run([docker, "version"], capture_output=True, timeout=5, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


@contextmanager
def _container() -> Iterator[str]:
    from testcontainers.postgres import PostgresContainer  # only where a Docker engine answers

    with PostgresContainer(_IMAGE, driver=None) as container:
        yield container.get_connection_url()
