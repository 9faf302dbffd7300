"""Migrations: up, down and up again, and concurrent starts."""

import subprocess
import sys

import psycopg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from fixtures import later_version
from fixtures.postgres import rows
from fixtures.schema_picture import picture
from isochrone_collector.errors import SchemaError
from isochrone_collector.store.postgres import migration_runner, schema


def test_the_newest_revision_goes_down_and_up_again(database_url: str) -> None:
    """Downgrading and upgrading again gives the same schema."""
    before = picture(database_url)
    schema.downgrade(database_url, revision=(["base", *schema.known_revisions()])[-2])
    assert picture(database_url) != before
    schema.migrate(database_url)
    assert picture(database_url) == before


@pytest.mark.usefixtures("later_version")
def test_a_later_revision_goes_up_and_down(database_url: str) -> None:
    """A collector of a later version upgrades the schema of today's, and downgrades it to the same again."""
    before, (newest, later) = picture(database_url), schema.revisions(database_url)
    assert (schema.migrate(database_url).after, later) == (later_version.REVISION, later_version.REVISION)
    assert f"CREATE TABLE {later_version.TABLE}" in picture(database_url)
    schema.downgrade(database_url, revision=str(newest))
    assert picture(database_url) == before


def test_down_to_nothing_leaves_nothing(database_url: str) -> None:
    """A full downgrade leaves no table of the collector, also with partitions and samples."""
    rows(
        database_url,
        "CREATE TABLE sample_20260101 PARTITION OF sample FOR VALUES FROM ('2026-01-01') TO ('2026-01-02')",
    )
    schema.downgrade(database_url, revision="base")
    with psycopg.connect(database_url) as connection:
        listing = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        assert [name for (name,) in connection.execute(listing)] == ["alembic_version"]


def test_the_newest_revision_is_known_without_alembic(database_url: str, empty_database_url: str) -> None:
    """The newest revision is that of alembic, and a start on a migrated database imports neither it nor SQLAlchemy."""
    newest = _alembic_head()
    assert schema.revisions(database_url) == (newest, newest)
    assert schema.revisions(empty_database_url) == (None, newest)
    code = (
        "import sys, isochrone_collector.server.serve; from isochrone_collector.store.postgres import schema;"
        f"print(schema.migrate({database_url!r}).after, {{'alembic', 'sqlalchemy'}} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == f"{newest} set()\n", done.stderr


def _alembic_head() -> str | None:
    config = Config()
    config.set_main_option("script_location", "isochrone_migrations:")
    return ScriptDirectory.from_config(config).get_current_head()


def test_three_at_once_migrate_once(database_url: str, empty_database_url: str) -> None:
    """Collectors that start together wait for one of them; none fails, and the schema is complete."""
    command = [sys.executable, "-m", "isochrone_collector", "migrate", "--database-url", empty_database_url]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    ended = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], ended
    assert picture(empty_database_url) == picture(database_url)


def test_a_migration_that_fails_changes_nothing(empty_database_url: str) -> None:
    """A revision that fails is rolled back as a whole, and the error states it."""
    rows(empty_database_url, "CREATE TABLE sample_late (x int)")
    with pytest.raises(SchemaError, match="was rolled back"):
        schema.migrate(empty_database_url)
    assert rows(empty_database_url, "SELECT to_regclass('region')") == [(None,)]


def migrate(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "isochrone_collector", "migrate", *words]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("later_version")
def test_a_downgrade_is_confirmed(database_url: str) -> None:
    """`--to` an older revision needs a terminal or --yes, and an unknown revision is an error of usage."""
    older, newest = schema.known_revisions()[-2:]
    assert migrate("--database-url", database_url).returncode == 0
    declined = migrate("--to", older, "--database-url", database_url)
    assert (declined.returncode, "hint: pass --yes" in declined.stderr) == (2, True)
    assert schema.revisions(database_url)[0] == newest
    assert migrate("--to", older, "--yes", "--database-url", database_url).returncode == 0
    assert schema.revisions(database_url)[0] == older
    unknown = migrate("--to", "none", "--database-url", database_url)
    assert (unknown.returncode, "there is no revision 'none'" in unknown.stderr) == (2, True)


@pytest.mark.usefixtures("later_version")
def test_a_migration_does_not_wait_for_a_lock(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another session holds a table, the migration gives up, so that no push waits behind it, and retries."""
    monkeypatch.setattr(migration_runner, "_ATTEMPTS", 2)
    before = schema.revisions(database_url)[0]
    with psycopg.connect(database_url) as holder:
        holder.execute("LOCK TABLE vantage IN ACCESS SHARE MODE")
        with pytest.raises(SchemaError, match=r"was rolled back.*lock timeout") as caught:
            schema.migrate(database_url)
        assert "another session" in caught.value.hint
    assert schema.revisions(database_url)[0] == before
    assert schema.migrate(database_url).after == later_version.REVISION


def test_the_house_rules_of_the_schema(database_url: str) -> None:
    """One PostgreSQL and Citus both run it: no sequences, triggers, foreign keys, default partitions or PL/pgSQL."""
    text = picture(database_url).upper()
    for word in (
        "SEQUENCE",
        "SERIAL",
        "IDENTITY",
        "TRIGGER",
        "FOREIGN KEY",
        "REFERENCES",
        "PARTITION DEFAULT",
        "PLPGSQL",
    ):
        assert word not in text
