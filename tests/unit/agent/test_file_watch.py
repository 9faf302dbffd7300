"""A change of a watched file is detected once."""

import os
from collections.abc import Callable
from pathlib import Path

from isochrone_agent.file_watch import FileWatch


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
