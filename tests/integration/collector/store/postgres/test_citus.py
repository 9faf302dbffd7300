"""Spreading the tables over a cluster, as far as that can be seen without one.

Most machines have no Citus. What its functions are asked to do is looked at with functions of the same names, which
write down their arguments where Citus keeps its own account, `pg_dist_partition`. With ISOCHRONE_TEST_CITUS_URL the
test of a real cluster runs instead.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from fixtures import later_version
from fixtures.collector import StartCollector
from fixtures.inprocess_collector import DAY_AT
from fixtures.postgres import rows
from isochrone_collector.errors import DatabaseUnavailable, SchemaError, StartError
from isochrone_collector.store import diagnostics, partitions
from isochrone_collector.store.postgres import citus, schema
from isochrone_collector.store.postgres.citus import DISTRIBUTED, REFERENCE
from isochrone_collector.store.postgres.pool import Database
from isochrone_wire.model import DAY_US, SECOND_US
from testdata import citus_cluster
from testdata.database_servers import DatabaseRelay

STAND_INS = """
CREATE TABLE pg_dist_partition (logicalrelid regclass, spread_by text, beside text);
CREATE FUNCTION create_distributed_table(which regclass, spread_by text, colocate_with text) RETURNS void
    LANGUAGE sql AS 'INSERT INTO pg_dist_partition VALUES (which, spread_by, colocate_with)';
CREATE FUNCTION create_reference_table(which regclass) RETURNS void
    LANGUAGE sql AS 'INSERT INTO pg_dist_partition VALUES (which, NULL, NULL)';
CREATE TABLE removed (name regclass);
CREATE FUNCTION truncate_local_data_after_distributing_table(which regclass) RETURNS void
    LANGUAGE sql AS 'INSERT INTO removed VALUES (which)';
CREATE TABLE pg_dist_node (noderole text, isactive boolean, shouldhaveshards boolean, groupid int);
INSERT INTO pg_dist_node VALUES ('primary', true, false, 0), ('primary', true, true, 1);
"""
WRITING = """
SELECT nodeid, count(*)
FROM citus_stat_activity
WHERE is_worker_query AND state = 'idle in transaction' AND datname = current_database()
GROUP BY nodeid
"""
SAMPLE = """
INSERT INTO sample (target_id, round_at, vantage_id, epoch, seq, idx, region, received_at, outcome, dispatched_at,
    late_us, chunks, output_chars, quality, traits)
VALUES (1, '2026-01-01', 1, 1, 1, 0, 'us', now(), 'ok', now(), 0, 1, 1, 0, 3)
"""
ACCOUNT = "SELECT logicalrelid::text, spread_by, beside FROM pg_dist_partition"

plain_only = pytest.mark.plain_only("the stand-ins for Citus are in its place")


def account(database_url: str) -> dict[str, tuple[str | None, str | None]]:
    """Return table → its distribution column, and the table it is colocated with."""
    with psycopg.connect(database_url) as connection:
        return {name: (spread_by, beside) for name, spread_by, beside in connection.execute(ACCOUNT)}


@pytest.fixture
def cluster(database_url: str) -> str:
    """A migrated database that looks as if it had Citus."""
    rows(database_url, STAND_INS)
    return database_url


@plain_only
def test_without_citus_nothing_happens(empty_database_url: str) -> None:
    """Without Citus the command reports what is missing and leaves an empty database empty."""
    command = [sys.executable, "-m", "isochrone_collector", "migrate", "--citus", "--database-url", empty_database_url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == StartError.exit_code
    assert done.stderr.startswith("error: this database has no Citus\nhint: install Citus on every node")
    assert rows(empty_database_url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]


@plain_only
def test_every_table_has_its_place(cluster: str) -> None:
    """Each table is distributed by its column, colocated, or copied; the second run does nothing."""
    assert sorted(schema.migrate(cluster, distribute=True).distributed) == sorted((*DISTRIBUTED, *REFERENCE))
    beside = dict.fromkeys(("sample_late", "summary", "outcome_summary", "hourly_levels", "drift_event"), "sample")
    spread = {name: (column, beside.get(name, "none")) for name, column in DISTRIBUTED.items()}
    assert account(cluster) == dict.fromkeys(REFERENCE, (None, None)) | spread
    assert schema.migrate(cluster, distribute=True).distributed == []


@plain_only
def test_a_migration_distributes_the_tables_it_adds(cluster: str, request: pytest.FixtureRequest) -> None:
    """Once tables are distributed, a migration distributes those that it adds, without `--citus`."""
    assert schema.migrate(cluster, distribute=True).distributed
    request.getfixturevalue("later_version")
    done = schema.migrate(cluster)
    assert (done.after, done.distributed) == (later_version.REVISION, [later_version.TABLE])
    assert account(cluster)[later_version.TABLE] == (None, None)


@plain_only
def test_a_start_distributes_what_a_migration_left(cluster: str) -> None:
    """Tables that are not distributed, because a migration ended too early, are distributed by the next start."""
    schema.migrate(cluster, distribute=True)
    with psycopg.connect(cluster) as connection:
        connection.execute("DELETE FROM pg_dist_partition WHERE logicalrelid = 'incident'::regclass")
        assert citus.local_tables(connection) == ("incident",)
    assert schema.migrate(cluster).distributed == ["incident"]
    assert schema.migrate(cluster).distributed == ()


@plain_only
@pytest.mark.usefixtures("later_version")
def test_a_start_does_not_begin_to_distribute(cluster: str) -> None:
    """With Citus in the database, the tables of a single server stay there until an operator distributes them."""
    assert schema.migrate(cluster).distributed == []
    assert account(cluster) == {}


@plain_only
def test_no_rows_stay_on_the_coordinator(cluster: str) -> None:
    """After distribution, the rows left on the coordinator are removed, also those of partitions."""
    with psycopg.connect(cluster) as connection:
        connection.execute("INSERT INTO region (name) VALUES ('us')")
        connection.execute(
            "CREATE TABLE sample_20260101 PARTITION OF sample FOR VALUES FROM ('2026-01-01') TO ('2026-01-02')"
        )
        connection.execute(SAMPLE)
    schema.migrate(cluster, distribute=True)
    with psycopg.connect(cluster) as connection:
        removed = {name for (name,) in connection.execute("SELECT name::text FROM removed")}
    assert removed == {"region", "sample"}


@plain_only
def test_a_cluster_without_workers_is_refused(cluster: str) -> None:
    """Without a worker `migrate --citus` ends before it does anything, and the hint names what adds one."""
    rows(cluster, "DELETE FROM pg_dist_node WHERE groupid = 1")
    with pytest.raises(StartError, match="no worker") as caught:
        citus.check(cluster)
    assert "citus_set_coordinator_host" in caught.value.hint


@plain_only
def test_what_fails_changes_nothing(cluster: str) -> None:
    """If one table cannot be distributed none is, and the error contains the server's reason."""
    rows(cluster, "ALTER TABLE pg_dist_partition ADD CHECK (logicalrelid <> 'ingest_batch'::regclass)")
    with pytest.raises(SchemaError, match=r"and none was.*violates check constraint"):
        schema.migrate(cluster, distribute=True)
    assert account(cluster) == {}


GIVES_WAY = """
CREATE OR REPLACE FUNCTION create_reference_table(which regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'involved in a distributed deadlock' USING ERRCODE = 'deadlock_detected'; END $$
"""


@plain_only
def test_what_gives_way_to_pushes_changes_nothing(cluster: str) -> None:
    """Beside pushes the distribution may be cancelled; the error states that nothing is distributed, and what to do."""
    rows(cluster, GIVES_WAY)
    with pytest.raises(DatabaseUnavailable, match="distributed deadlock") as caught:
        schema.migrate(cluster, distribute=True)
    assert caught.value.hint.startswith("nothing was distributed, because collectors are writing: stop them")
    assert account(cluster) == {}


needs_cluster = pytest.mark.skipif(
    citus_cluster.VARIABLE not in os.environ, reason=f"needs a Citus cluster: {citus_cluster.VARIABLE}"
)


@needs_cluster
def test_a_real_cluster(database_url: str) -> None:
    """Every table is distributed or copied, nothing is left on the coordinator, and no node is lost."""
    with psycopg.connect(database_url) as connection:
        placed = {name for (name,) in connection.execute("SELECT logicalrelid::text FROM pg_dist_partition")}
    assert {*DISTRIBUTED, *REFERENCE} <= placed
    assert schema.migrate(database_url, distribute=True).distributed == []
    facts = diagnostics.facts(database_url)
    assert facts.local_tables == ()
    assert None not in facts.workers.values()


PLACED = "SELECT citus_table_type FROM citus_tables WHERE table_name = %s::regclass"
WORKERS = "SELECT nodename || ':' || nodeport FROM pg_dist_node WHERE noderole = 'primary' AND groupid <> 0"
SETTINGS = (sql.SQL("jit = off"), sql.SQL("work_mem = '64MB'"), sql.SQL("synchronous_commit = local"))
EXPECTED = {"jit": "off", "work_mem": "65536", "synchronous_commit": "local"}


@needs_cluster
def test_serve_distributes_tables(database_url: str, start_collector: StartCollector, later_collector: Path) -> None:
    """A collector that migrates a distributed database distributes the new table."""
    collector = start_collector(database_url=database_url, script=later_collector)
    assert f'"tables": "{later_version.TABLE}"' in collector.log()
    assert rows(database_url, PLACED, [later_version.TABLE]) == [("reference",)]


@needs_cluster
def test_the_settings_of_workers_are_read(database_url: str) -> None:
    """They are those of the collector's user on each worker, where the commands of docs/scale.md set them."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        workers = {node for (node,) in connection.execute(WORKERS)}
        database = sql.Identifier(connection.info.dbname)
        for setting in SETTINGS:
            connection.execute(sql.SQL("ALTER ROLE CURRENT_USER IN DATABASE {} SET ").format(database) + setting)
    found = diagnostics.facts(database_url).workers
    assert set(found) == workers
    for settings in found.values():
        assert settings is not None
        assert {name: settings[name] for name in EXPECTED} == EXPECTED


@needs_cluster
async def test_a_push_uses_one_connection_to_each_worker(database_url: str) -> None:
    """Rows of all shards are written over one connection to each worker, so that a commit has one participant there."""
    database = Database(database_url)
    await database.open()
    columns = (
        "target_id, region, metric, changed_at, detected_at, before, after, p_value, n_before, n_after, may_be_weekly"
    )
    async with database.transaction() as connection:
        async with connection.cursor() as cursor, cursor.copy(f"COPY drift_event ({columns}) FROM STDIN") as stream:
            for target_id in range(100):
                await stream.write_row((target_id, "us", "ttft", "2026-01-01", "2026-01-01", 1, 2, 0.1, 9, 9, False))
        connections = rows(database_url, WRITING)
    await database.close()
    assert [count for _, count in connections] == [1] * len(connections)
    assert connections


PLACE = "UPDATE pg_dist_node SET nodename = %s, nodeport = %s WHERE groupid = 1"
FIRST_WORKER = "SELECT nodename, nodeport FROM pg_dist_node WHERE groupid = 1"


@pytest.fixture
async def relay(database_url: str) -> AsyncIterator[DatabaseRelay]:
    """A relay between the coordinator and its first worker."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        host, port = connection.execute(FIRST_WORKER).fetchone() or ("", 0)
        relay = DatabaseRelay(make_conninfo(database_url, host=host, port=port))
        await relay.start()
        connection.execute(PLACE, ["127.0.0.1", relay.port])
        yield relay
        await relay.stop()
        connection.execute(PLACE, [host, port])


async def count(database: Database) -> None:
    """Read from every worker."""
    async with database.connection() as connection:
        await connection.execute("SELECT count(*) FROM sample")


@needs_cluster
@pytest.mark.parametrize("statement_timeout_us", [20 * SECOND_US, None], ids=["reads", "writes"])
async def test_a_worker_that_hangs_is_named(
    database_url: str, relay: DatabaseRelay, statement_timeout_us: int | None
) -> None:
    """A worker that hangs is named before the time of a query is over; so it is in a new session of a job or push."""
    database = Database(database_url, statement_timeout_us=statement_timeout_us)
    await database.open()
    if statement_timeout_us is not None:
        await count(database)
    relay.swallowing = True
    with pytest.raises(DatabaseUnavailable, match=rf"127\.0\.0\.1:{relay.port}") as caught:
        await count(database)
    assert caught.value.condition == "worker_lost"
    await database.close()


@needs_cluster
async def test_doctor_names_a_worker_that_hangs(database_url: str, relay: DatabaseRelay) -> None:
    """The doctor does not wait for a worker that hangs, and has the settings of the others."""
    relay.swallowing = True
    found = (await asyncio.to_thread(diagnostics.facts, database_url)).workers
    assert [node for node, settings in found.items() if settings is None] == [f"127.0.0.1:{relay.port}"]
    assert len(found) > 1


@needs_cluster
async def test_a_lost_worker_is_named(database_url: str, relay: DatabaseRelay) -> None:
    """A query that meets a worker that refuses connections names it, and asks nobody whether a server is running."""
    database = Database(database_url)
    await database.open()
    port = relay.port
    await relay.stop()
    with pytest.raises(DatabaseUnavailable, match=rf"127\.0\.0\.1:{port}") as caught:
        await count(database)
    assert caught.value.condition == "worker_lost"
    assert "?" not in f"{caught.value}{caught.value.hint}"
    await database.close()


OLDEST_SHARD = """
SELECT table_name::text || '_' || shardid AS shard, nodename, nodeport
FROM citus_shards
WHERE table_name::text LIKE 'sample\\_2%%'
ORDER BY table_name::text, shardid
LIMIT 1
"""


@needs_cluster
async def test_retention_gives_way_to_a_reader_on_a_worker(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that is read on a worker alone stays, no statement waits for that, and it goes afterwards."""
    monkeypatch.setattr(partitions, "_ATTEMPTS", 1)
    database = Database(database_url)
    await database.open()
    window = await partitions.ensure(database, now_at=DAY_AT, keep_us=2 * DAY_US)
    before_at = window.from_at + DAY_US
    with psycopg.connect(database_url) as connection:
        shard, host, port = connection.execute(OLDEST_SHARD).fetchone() or ("", "", 0)
    with psycopg.connect(make_conninfo(database_url, host=host, port=port)) as reader:
        reader.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(shard)))
        with pytest.raises(DatabaseUnavailable, match="lock timeout"):
            await partitions.retire(database, before_at=before_at)
    assert await partitions.retire(database, before_at=before_at) == [window.from_at]
    await database.close()
