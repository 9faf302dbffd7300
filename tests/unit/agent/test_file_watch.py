"""Files that change are noticed, and a keyring is renewed for everybody who holds it."""

import os
from collections.abc import Callable
from pathlib import Path

from isochrone_agent.file_watch import FileWatch
from isochrone_agent.plan.credentials import Credential, Keyring


def test_changes_are_noticed_once(tmp_path: Path) -> None:
    """Coming, being written, being replaced and going are each told once."""
    file, other = tmp_path / "a", tmp_path / "b"
    watched = FileWatch([file])
    assert not watched.changed()

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
        assert watched.changed()
        assert not watched.changed()


def test_a_keyring_is_renewed_for_everybody() -> None:
    """Whoever holds the keyring has the new keys without being told."""
    held = Keyring()
    newer = Credential(name="sim", hosts=("h",), env="KEY")
    held.replace_with(Keyring({"sim": newer}))
    assert held.credentials == {"sim": newer}
