"""Files that survive a crash."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from isochrone_agent.settings import default_data_dir as agent_folder
from isochrone_common.files import FileWatch, expand_home, replace_file
from isochrone_common.local_socket import default_data_dir as collector_folder


def test_a_user_without_a_home_has_absent_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program ends with a traceback, or makes a folder called `~`, because the system does not know its user."""
    monkeypatch.setenv("HOME", "/home/somebody")
    assert expand_home("~/.cache") == Path("/home/somebody/.cache")
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54_321)
    assert expand_home("~/.cache") == Path("/nonexistent/.cache")
    assert expand_home("~") == Path("/nonexistent")
    assert expand_home("/srv/~") == Path("/srv/~")
    assert agent_folder(None) == Path("/nonexistent/.local/share/isochrone/agent/default")
    assert collector_folder({}) == Path("/nonexistent/.local/share/isochrone/collector")


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """The new content has the permissions asked for, whatever those of the old file are, and nothing is left over."""
    path = tmp_path / "secret"
    path.write_text("old and longer")
    path.chmod(0o644)
    replace_file(path, b"new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)
    replace_file(path, b"public", mode=0o644)
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk refuses the new content, the file stays as it was, and no half of the new one lies beside it."""

    def refuse(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "secret"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new")
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])


def test_changes_are_detected_once(tmp_path: Path) -> None:
    """Creating, writing, touching, replacing and deleting a file are each reported once."""
    file, other = tmp_path / "a", tmp_path / "b"
    watch = FileWatch([file])
    assert not watch.changed()

    def replace_it() -> None:
        other.write_text("12")
        os.utime(other, ns=(1, 1))
        other.replace(file)

    changes: tuple[Callable[[], object], ...] = (
        lambda: file.write_text("1"),
        lambda: file.write_text("12"),
        lambda: os.utime(file, ns=(1, 1)),
        replace_it,
        file.unlink,
    )
    for change in changes:
        change()
        assert watch.changed()
        assert not watch.changed()
