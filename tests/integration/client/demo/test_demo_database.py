"""The demo's PostgreSQL ends with the demo, whoever was killed before."""

import subprocess
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from isochrone_client.demo.database import database_folder
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres


def test_a_server_that_was_left_over_ends_with_the_demo(tmp_path: Path) -> None:
    """A server whose collector did not end it has ended, cleanly, when the demo's folder may be removed."""
    with ExitStack() as ending:
        with database_folder(tmp_path) as data:
            server = ending.enter_context(EmbeddedPostgres(data))
            psycopg.connect(server.conninfo).close()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.conninfo)
        assert not (data / "postgres" / "postmaster.pid").exists()
        assert "database system is shut down" in (data / "postgres.log").read_text()


def test_two_runs_never_share_a_socket(tmp_path: Path) -> None:
    """Each run has a folder of its own, so that a server of an earlier one cannot remove what is another's."""
    with database_folder(tmp_path) as one, database_folder(tmp_path) as other:
        assert one != other
        assert (one.parent, other.parent) == (tmp_path, tmp_path)


@pytest.mark.parametrize("told", ["{pid}\n/elsewhere\n", "\n", "words\n"])
def test_a_number_that_is_not_the_servers_is_left_alone(tmp_path: Path, told: str) -> None:
    """A process that only has the number which the file tells is no server of ours, and lives on."""
    with subprocess.Popen(["sleep", "60"]) as stranger:
        with database_folder(tmp_path) as data:
            (data / "postgres").mkdir()
            (data / "postgres" / "postmaster.pid").write_text(told.format(pid=stranger.pid))
        assert stranger.poll() is None
        stranger.kill()
