"""The demo's PostgreSQL stops with the demo, even if its collector was killed."""

import subprocess
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from isochrone_client.demo.run_folder import database_folder
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres


def test_a_server_left_running_stops_with_the_demo(tmp_path: Path) -> None:
    """A server that its collector did not stop has shut down cleanly before the demo's folder is removed."""
    with ExitStack() as ending:
        with database_folder(tmp_path) as data:
            server = ending.enter_context(EmbeddedPostgres(data))
            psycopg.connect(server.conninfo).close()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.conninfo)
        assert not (data / "postgres" / "postmaster.pid").exists()
        assert "database system is shut down" in (data / "postgres.log").read_text()


def test_two_runs_never_share_a_socket(tmp_path: Path) -> None:
    """Each run has its own folder, so that an earlier server cannot remove the socket of a later one."""
    with database_folder(tmp_path) as one, database_folder(tmp_path) as other:
        assert one != other
        assert (one.parent, other.parent) == (tmp_path, tmp_path)


@pytest.mark.parametrize("pid_file", ["{pid}\n/elsewhere\n", "\n", "words\n"])
def test_a_process_with_the_same_pid_is_left_alone(tmp_path: Path, pid_file: str) -> None:
    """A process that only has the pid in the file is not the server and is not stopped."""
    with subprocess.Popen(["sleep", "60"]) as stranger:
        with database_folder(tmp_path) as data:
            (data / "postgres").mkdir()
            (data / "postgres" / "postmaster.pid").write_text(pid_file.format(pid=stranger.pid))
        assert stranger.poll() is None
        stranger.kill()
