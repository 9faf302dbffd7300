"""Fixtures for databases: a real PostgreSQL, with a freshly migrated database per test.

Creating the partitions of a month takes longer than the rest of a database, so a database for a collector is copied
from one that has those of the collector's day.

The server is that of ISOCHRONE_TEST_DATABASE_URL, else a container if Docker is available, else the embedded one in a
temporary folder. Tests are independent of the choice. With ISOCHRONE_TEST_CITUS_URL every database is distributed over
that cluster, and tests marked `plain_only` are skipped, with the reason given there.
"""

import asyncio
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from fix_inprocess_collector import DAY_AT
from isochrone_collector.clock import now_at
from isochrone_collector.store import partitions
from isochrone_collector.store.postgres import schema
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres
from isochrone_collector.store.postgres.pool import Database
from isochrone_wire.model import DAY_US, day_of
from testdata import citus_cluster

_ON_CITUS = citus_cluster.VARIABLE in os.environ
_IMAGE = "postgres:18-alpine"
# No test loses power; those that kill PostgreSQL start their own. Creating and dropping a database takes a third of the
# processor time with these.
_UNSAFE = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off", "checkpoint_timeout": "1h"}


def today_at() -> int:
    """Return the beginning of today (UTC), the day of collectors in processes of their own."""
    return day_of(now_at())


# Each day that is kept has a partition: as few as the collectors of most tests have.
_KEEP_US = 2 * DAY_US
# The day of a collector, by the fixture that needs its database.
_DAYS: Mapping[str, Callable[[], int]] = {"start_collector": today_at, "local": lambda: DAY_AT}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that cannot hold on a Citus cluster."""
    for item in items if _ON_CITUS else ():
        if mark := item.get_closest_marker("plain_only"):
            item.add_marker(pytest.mark.skip(reason=f"not on Citus: {mark.args[0]}"))


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server on which databases can be created and dropped."""
    given = os.environ.get(citus_cluster.VARIABLE) or os.environ.get("ISOCHRONE_TEST_DATABASE_URL")
    with ExitStack() as stack:
        if given:
            address = given
        elif _docker_answers():
            address = stack.enter_context(_container())
        else:
            address = stack.enter_context(_embedded(tmp_path_factory.mktemp("postgres")))
        stack.enter_context(_administration(address))
        yield address


@pytest.fixture(scope="session")
def migrated_template(postgres_server: str) -> Iterator[str]:
    """The name of a migrated database, the template of others."""
    with _new_database(postgres_server) as name:
        (citus_cluster if _ON_CITUS else schema).migrate(address_of(postgres_server, name))
        yield name


class PartitionedTemplate(Protocol):
    """Names the template of databases with partitions."""

    def __call__(self, day_at: int) -> str:
        """Return the name of a migrated database with the partitions that a collector creates on a day."""
        ...


@pytest.fixture(scope="session")
def partitioned_template(postgres_server: str, migrated_template: str) -> Iterator[PartitionedTemplate]:
    """Templates that are made when they are first needed."""
    with ExitStack() as templates:

        @cache
        def named(day_at: int) -> str:
            name = templates.enter_context(_new_database(postgres_server, template=migrated_template))
            with ThreadPoolExecutor(max_workers=1) as outside_of_the_tests_loop:
                create = _create_partitions(address_of(postgres_server, name), day_at)
                outside_of_the_tests_loop.submit(asyncio.run, create).result()
            return name

        yield named


@pytest.fixture
def database_url(
    request: pytest.FixtureRequest,
    postgres_server: str,
    migrated_template: str,
    partitioned_template: PartitionedTemplate,
) -> Iterator[str]:
    """A migrated database for one test, with the partitions of its collector's day."""
    days_at = [day_at() for fixture, day_at in _DAYS.items() if fixture in request.fixturenames]
    template = partitioned_template(days_at[0]) if days_at else migrated_template
    with _new_database(postgres_server, template=template) as name:
        yield address_of(postgres_server, name)


@pytest.fixture(scope="module")
def shared_database_url(postgres_server: str, partitioned_template: PartitionedTemplate) -> Iterator[str]:
    """A migrated database with partitions shared by the tests of a module, which must not affect one another."""
    with _new_database(postgres_server, template=partitioned_template(today_at())) as name:
        yield address_of(postgres_server, name)


@pytest.fixture
def empty_database_url(postgres_server: str) -> Iterator[str]:
    """A database for one test, without any migration."""
    with _new_database(postgres_server) as name:
        yield address_of(postgres_server, name)


def address_of(server: str, database: str) -> str:
    """Return the URL of another database on the same server."""
    parts = {key: value for key, value in conninfo_to_dict(server).items() if value is not None}
    return f"postgresql:///?{urlencode({**parts, 'dbname': database})}"


async def _create_partitions(url: str, day_at: int) -> None:
    database = Database(url)
    await database.open()
    await partitions.ensure(database.patient(), now_at=day_at, keep_us=_KEEP_US)
    await database.close()


@contextmanager
def _new_database(server: str, *, template: str | None = None) -> Iterator[str]:
    name = f"isochrone_test_{uuid.uuid4().hex}"
    if _ON_CITUS:
        with citus_cluster.new_database(server, name, template=template):
            yield name
        return
    connection = _administrator(server)
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
    connection.execute(create.format(sql.Identifier(name), sql.Identifier(template or "template1")))
    yield name
    connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@cache
def _administrator(server: str) -> psycopg.Connection[Any]:
    """Return the connection that creates and drops databases: new ones took a third of the processor time of that."""
    return psycopg.connect(server, autocommit=True)


@contextmanager
def _administration(server: str) -> Iterator[None]:
    """Close the connection after the block."""
    yield
    _administrator(server).close()
    _administrator.cache_clear()


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
