"""An index that a migration builds on a table with rows, while agents push."""

import asyncio
import os
import sys
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from fixtures.inprocess_collector import DAY_AT, InProcessCollector
from isochrone_migrations import versions
from isochrone_wire.model import MINUTE_US, Vantage
from migration.test_migrations import revisions

REVISION = """
from isochrone_migrations.statements import build_index

revision = "9999"
down_revision = "{newest}"
branch_labels = None
depends_on = None


def upgrade():
    build_index("vantage_agent_version", "ON vantage (agent_version)")
"""
# A migration as a collector runs it at its start, with the revisions of a further folder.
MIGRATE = """
import sys
from alembic.config import Config
from isochrone_collector.store.postgres import migration_runner

def config():
    made = Config()
    made.set_main_option("path_separator", "os")
    made.set_main_option("version_locations", sys.argv[2])
    return made

migration_runner.Config = config
print(migration_runner.upgrade(sys.argv[1], revision="head")[1])
"""
_BUILDING = "SELECT phase FROM pg_stat_progress_create_index"
_CONNECTED = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'migration'"
_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('vantage_agent_version')"


async def migrate(database_url: str, folder: Path) -> str:
    """Return the revision after a migration in another process."""
    folders = os.pathsep.join([*versions.__path__, str(folder)])
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", MIGRATE, make_conninfo(database_url, application_name="migration"), folders),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return printed.decode().strip()


async def test_pushes_do_not_wait_for_an_index(local: InProcessCollector, database_url: str, tmp_path: Path) -> None:
    """While the build waits for an older transaction, a push is stored; two collectors that migrate at once do not wait
    for each other, and the index is valid in the end.
    """
    (tmp_path / "v9999_index.py").write_text(REVISION.format(newest=revisions()[-1]))
    await local.begin(DAY_AT)
    vantage = Vantage(name="a", region="us")
    await local.push(vantage, [local.sample(DAY_AT)])
    with psycopg.connect(database_url) as older, psycopg.connect(database_url, autocommit=True) as observer:
        older.execute("LOCK TABLE vantage IN ROW EXCLUSIVE MODE")
        migrations = [asyncio.create_task(migrate(database_url, tmp_path)) for _ in range(2)]
        async with asyncio.timeout(60):
            while not observer.execute(_BUILDING).fetchone() or observer.execute(_CONNECTED).fetchone() != (2,):
                await asyncio.sleep(0.05)
            await asyncio.sleep(1)  # for the other one to reach the lock
            await local.push(vantage, [local.sample(DAY_AT + MINUTE_US)])
        assert not any(migration.done() for migration in migrations)
        older.rollback()
        async with asyncio.timeout(60):
            assert await asyncio.gather(*migrations) == ["9999", "9999"]
        assert observer.execute(_VALID).fetchone() == (True,)
