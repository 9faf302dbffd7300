"""An index that a migration builds on a table with rows, while agents push."""

import asyncio
import os
import sys
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from fixtures import later_version
from fixtures.inprocess_collector import DAY_AT, InProcessCollector
from isochrone_wire.model import MINUTE_US, Vantage

UPGRADE = 'build_index("vantage_agent_version", "ON vantage (agent_version)")'
_BUILDING = "SELECT phase FROM pg_stat_progress_create_index"
_CONNECTED = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'migration'"
_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('vantage_agent_version')"


async def migrate(database_url: str, migrations: Path) -> str:
    """Return the last word that the command prints: the revision."""
    url = make_conninfo(database_url, application_name="migration")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "isochrone_collector", "migrate", "--database-url", url),
        env=os.environ | {"PYTHONPATH": str(migrations)},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return printed.decode().split()[-1]


async def test_pushes_do_not_wait_for_an_index(local: InProcessCollector, database_url: str, tmp_path: Path) -> None:
    """While a build waits a push is stored; two collectors migrate at once, and the index is valid in the end."""
    later = later_version.make_migrations(tmp_path / "later", upgrade=UPGRADE, downgrade="pass")
    await local.begin(DAY_AT)
    vantage = Vantage(name="a", region="us")
    await local.push(vantage, [local.sample(DAY_AT)])
    with psycopg.connect(database_url) as older, psycopg.connect(database_url, autocommit=True) as observer:
        older.execute("LOCK TABLE vantage IN ROW EXCLUSIVE MODE")
        migrations = [asyncio.create_task(migrate(database_url, later)) for _ in range(2)]
        async with asyncio.timeout(60):
            while not observer.execute(_BUILDING).fetchone() or observer.execute(_CONNECTED).fetchone() != (2,):
                await asyncio.sleep(0.05)
            await asyncio.sleep(1)  # for the other one to reach the lock
            await local.push(vantage, [local.sample(DAY_AT + MINUTE_US)])
        assert not any(migration.done() for migration in migrations)
        older.rollback()
        async with asyncio.timeout(60):
            assert await asyncio.gather(*migrations) == [later_version.REVISION] * 2
        assert observer.execute(_VALID).fetchone() == (True,)
