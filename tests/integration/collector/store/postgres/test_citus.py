"""Spreading the tables over a cluster, as far as that can be seen without one.

Most machines have no Citus. What its functions are asked to do is looked at with functions of the same names, which
write down their arguments where Citus keeps its own account, `pg_dist_partition`. With ISOCHRONE_TEST_CITUS_URL the
test of a real cluster runs instead.
"""

import os
import subprocess
import sys

import psycopg
import pytest

from isochrone_collector.errors import SchemaError, StartError
from isochrone_collector.store import diagnostics
from isochrone_collector.store.postgres import citus
from isochrone_collector.store.postgres.citus import DISTRIBUTED, REFERENCE
from isochrone_collector.store.postgres.pool import Database
from testdata import citus_cluster

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
ACCOUNT = "SELECT logicalrelid::text, spread_by, beside FROM pg_dist_partition"


def account(database_url: str) -> dict[str, tuple[str | None, str | None]]:
    """Return table → its distribution column, and the table it is colocated with."""
    with psycopg.connect(database_url) as connection:
        return {name: (spread_by, beside) for name, spread_by, beside in connection.execute(ACCOUNT)}


@pytest.fixture
def cluster(database_url: str) -> str:
    """A migrated database that looks as if it had Citus."""
    if citus_cluster.VARIABLE in os.environ:
        pytest.skip("the stand-ins for Citus need a database without it")
    with psycopg.connect(database_url) as connection:
        connection.execute(STAND_INS)
    return database_url


@pytest.mark.skipif(citus_cluster.VARIABLE in os.environ, reason="a database without Citus is needed")
def test_without_citus_nothing_happens(empty_database_url: str) -> None:
    """Without Citus the command reports what is missing and leaves an empty database empty."""
    command = [sys.executable, "-m", "isochrone_collector", "migrate", "--citus", "--database-url", empty_database_url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == StartError.exit_code
    assert done.stderr.startswith("error: this database has no Citus\nhint: install Citus on every node")
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)


def test_every_table_has_its_place(cluster: str) -> None:
    """Each table is distributed by its column, colocated with others of that column, or copied; the second run does
    nothing.
    """
    assert sorted(citus.distribute(cluster)) == sorted((*DISTRIBUTED, *REFERENCE))
    beside = dict.fromkeys(("sample_late", "summary", "outcome_summary", "hourly_levels", "drift_event"), "sample")
    spread = {name: (column, beside.get(name, "none")) for name, column in DISTRIBUTED.items()}
    assert account(cluster) == dict.fromkeys(REFERENCE, (None, None)) | spread
    assert citus.distribute(cluster) == []


def test_no_rows_stay_on_the_coordinator(cluster: str) -> None:
    """After distribution, the rows left on the coordinator are removed, of every table."""
    citus.distribute(cluster)
    with psycopg.connect(cluster) as connection:
        removed = {name for (name,) in connection.execute("SELECT name::text FROM removed")}
    assert removed == {*DISTRIBUTED, *REFERENCE}


def test_a_cluster_without_workers_is_refused(cluster: str) -> None:
    """Without a worker nothing is distributed, and the hint names what adds one."""
    with psycopg.connect(cluster) as connection:
        connection.execute("DELETE FROM pg_dist_node WHERE groupid = 1")
    with pytest.raises(StartError, match="no worker") as caught:
        citus.distribute(cluster)
    assert "citus_set_coordinator_host" in caught.value.hint
    assert account(cluster) == {}


def test_what_fails_changes_nothing(cluster: str) -> None:
    """If one table cannot be distributed none is, and the error contains the server's reason."""
    with psycopg.connect(cluster) as connection:
        connection.execute("ALTER TABLE pg_dist_partition ADD CHECK (logicalrelid <> 'ingest_batch'::regclass)")
    with pytest.raises(SchemaError, match=r"nothing was changed.*violates check constraint"):
        citus.distribute(cluster)
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
    assert citus.distribute(database_url) == []
    assert diagnostics.facts(database_url).lost_workers == ()


@needs_cluster
async def test_a_push_uses_one_connection_to_each_worker(database_url: str) -> None:
    """Rows of all shards are written over one connection to each worker, so that a commit has one participant there."""
    database = Database(database_url)
    await database.open()
    columns = "target_id, region, metric, changed_at, detected_at, before, after, p_value, n_before, n_after"
    async with database.transaction() as connection:
        async with connection.cursor() as cursor, cursor.copy(f"COPY drift_event ({columns}) FROM STDIN") as stream:
            for target_id in range(100):
                await stream.write_row((target_id, "us", "ttft", "2026-01-01", "2026-01-01", 1, 2, 0.1, 9, 9))
        with psycopg.connect(database_url) as observer:
            connections = observer.execute(WRITING).fetchall()
    await database.close()
    assert [count for _, count in connections] == [1] * len(connections)
    assert connections
