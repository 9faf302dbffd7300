"""Borrow a database: a real PostgreSQL, and in it a freshly migrated database per test.

The server is the one of ISOCHRONE_TEST_DATABASE_URL; else a container, where a Docker engine answers; else the embedded
one in a temporary folder. Tests cannot tell which.
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

_IMAGE = "postgres:18-alpine"


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server on which databases may be made and dropped."""
    given = os.environ.get("ISOCHRONE_TEST_DATABASE_URL")
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
    """The name of a migrated database that others are copied from."""
    with _new_database(postgres_server, template="template1") as name:
        schema.migrate(address_of(postgres_server, name))
        yield name


@pytest.fixture
def database_url(postgres_server: str, migrated_template: str) -> Iterator[str]:
    """A migrated database of the test's own."""
    with _new_database(postgres_server, template=migrated_template) as name:
        yield address_of(postgres_server, name)


@pytest.fixture(scope="module")
def shared_database_url(postgres_server: str, migrated_template: str) -> Iterator[str]:
    """A migrated database that the tests of a module share; they must not disturb one another."""
    with _new_database(postgres_server, template=migrated_template) as name:
        yield address_of(postgres_server, name)


@pytest.fixture
def empty_database_url(postgres_server: str) -> Iterator[str]:
    """A database of the test's own in which nothing was ever migrated."""
    with _new_database(postgres_server, template="template1") as name:
        yield address_of(postgres_server, name)


def address_of(server: str, database: str) -> str:
    """The URL of another database on the same server."""
    parts = {key: value for key, value in conninfo_to_dict(server).items() if value is not None}
    return f"postgresql:///?{urlencode({**parts, 'dbname': database})}"


@contextmanager
def _new_database(server: str, *, template: str) -> Iterator[str]:
    name = f"isochrone_test_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        connection.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
    yield name
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def _embedded(folder: Path) -> Iterator[str]:
    with EmbeddedPostgres(folder) as postgres:
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
