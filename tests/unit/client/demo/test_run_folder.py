"""The folder of a demo run."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from isochrone_client.demo.run_folder import run_folder
from isochrone_client.errors import DemoError


def test_a_folder_is_used_by_one_demo_at_a_time(tmp_path: Path) -> None:
    """A second demo in the same folder is refused and changes nothing; after the first one the folder is removed."""
    folder = tmp_path / "run"
    with run_folder(folder, keep=False) as running:
        (running.path / "logs" / "mine").touch()
        with pytest.raises(DemoError, match="a demo is running in") as refused, run_folder(folder, keep=False):
            pass
        assert "--folder" in refused.value.hint
        assert (running.path / "logs" / "mine").exists()
    assert not folder.exists()
    with run_folder(folder, keep=False) as running:
        assert list((running.path / "logs").iterdir()) == []


def test_kept_files_stay_until_the_next_demo(tmp_path: Path) -> None:
    """With `keep` all files stay; the next demo in the folder removes them first."""
    with run_folder(tmp_path, keep=True) as running:
        (running.path / "data").mkdir()
        (running.path / "data" / "rows").touch()
    assert (tmp_path / "data" / "rows").exists()
    with run_folder(tmp_path, keep=True):
        assert not (tmp_path / "data").exists()


def test_the_files_of_a_failed_demo_stay_and_are_named(tmp_path: Path) -> None:
    """An error keeps the logs, which its text may quote, and the hint names them; the next demo removes them."""
    error = DemoError("collector did not become ready", hint="see the end of its log above")

    def fail() -> None:
        with run_folder(tmp_path, keep=False) as running:
            (running.path / "logs" / "collector.log").touch()
            raise error

    with pytest.raises(DemoError):
        fail()
    assert error.hint == f"see the end of its log above; logs: {tmp_path / 'logs'}, until the next demo"
    assert (tmp_path / "logs" / "collector.log").exists()
    with run_folder(tmp_path, keep=False) as running:
        assert list((running.path / "logs").iterdir()) == []
    assert not tmp_path.exists()


def killed_demo(folder: Path | None, *, keep: bool = False, sleeps: float = 0) -> Path:
    """The folder of a process that was killed while it used it; another process of that demo `sleeps` on."""
    code = f"""
        import os, signal, subprocess
        from pathlib import Path, PosixPath
        from isochrone_client.demo.run_folder import run_folder
        with run_folder({folder!r}, keep={keep}) as running:
            command = ["sh", "-c", f"sleep {sleeps}; touch {{running.path}}.ended"]
            quiet = {{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}}
            subprocess.Popen(command, pass_fds=[running.lock], **quiet)
            (running.path / "logs" / "mine").touch()
            print(running.path, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return Path(done.stdout.strip())


def test_the_folder_of_a_killed_demo_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary folder that a killed demo left is removed by the next demo, unless it was to be kept."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    kept, left = killed_demo(None, keep=True), killed_demo(None)
    assert left.parent == kept.parent == tmp_path
    assert left.exists()
    with run_folder(tmp_path / "next", keep=False):
        assert not left.exists()
        assert (kept / "logs" / "mine").exists()


def test_a_demo_waits_for_the_processes_of_a_killed_one(tmp_path: Path) -> None:
    """A process of a killed demo keeps the lock of its folder; the next demo starts when that process has ended."""
    folder, ended = killed_demo(tmp_path / "run", sleeps=1.5), tmp_path / "run.ended"
    assert not ended.exists()
    with run_folder(folder, keep=False) as running:
        assert ended.exists()
        assert list((running.path / "logs").iterdir()) == []


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    """A folder that holds files of something other than a demo is refused and not changed."""
    (tmp_path / "mine").touch()
    with pytest.raises(DemoError, match="not from a demo"), run_folder(tmp_path, keep=False):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_links_of_other_users_are_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks like a killed demo's folder only by links, which anyone can make, is left alone."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / ".isochrone-demo").write_text(f"{ended.pid}\n")
    (mine / "file").touch()
    (tmp_path / "isochrone-demo-1").symlink_to(mine)
    forged = tmp_path / "isochrone-demo-2"
    forged.mkdir()
    (forged / ".isochrone-demo").symlink_to(mine / ".isochrone-demo")
    (forged / "file").touch()
    with run_folder(tmp_path / "next", keep=False):
        assert (mine / "file").exists()
        assert (forged / "file").exists()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """A folder that cannot be created or written is refused with a sentence and a hint."""
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "missing" / "folder")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / ".isochrone-demo").touch()
    folders = [dangling]
    if os.geteuid():
        (foreign / ".isochrone-demo").chmod(0o400)
        folders.append(foreign)
    for folder in folders:
        with pytest.raises(DemoError, match="cannot ") as refused, run_folder(folder, keep=False):
            pass
        assert "--folder" in refused.value.hint
