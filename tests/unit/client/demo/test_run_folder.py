"""The folder of a demo, and what the demo says to others about itself."""

import sys
from pathlib import Path

import pytest

from isochrone_client.demo.program import called
from isochrone_client.demo.run_folder import scratch_folder
from isochrone_client.errors import DemoError


def test_a_folder_belongs_to_one_demo_at_a_time(tmp_path: Path) -> None:
    """A second demo is refused and touches nothing while the first one runs; afterwards the folder is free and gone."""
    folder = tmp_path / "place"
    with scratch_folder(folder, keep=False) as place:
        (place / "logs" / "mine").touch()
        with pytest.raises(DemoError, match="a demo is running in") as refused, scratch_folder(folder, keep=False):
            pass
        assert "--folder" in refused.value.hint
        assert (place / "logs" / "mine").exists()
    assert not folder.exists()
    with scratch_folder(folder, keep=False) as place:
        assert list((place / "logs").iterdir()) == []


def test_what_is_kept_stays_until_the_next_demo(tmp_path: Path) -> None:
    """With `keep` everything stays, and the next demo in the folder begins with none of it."""
    with scratch_folder(tmp_path, keep=True) as place:
        (place / "data").mkdir()
        (place / "data" / "rows").touch()
    assert (tmp_path / "data" / "rows").exists()
    with scratch_folder(tmp_path, keep=True):
        assert not (tmp_path / "data").exists()


def test_a_folder_of_others_is_not_touched(tmp_path: Path) -> None:
    """A folder with anything in it that is no demo's is refused, and stays as it was."""
    (tmp_path / "mine").touch()
    with pytest.raises(DemoError, match="something else"), scratch_folder(tmp_path, keep=False):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("on_path", "place", "said"),
    [
        (True, "here/.venv/bin", "isochrone routes"),
        (False, "here/.venv/bin", ".venv/bin/isochrone routes"),
        (False, "there/bin", "{root}/there/bin/isochrone routes"),
        (False, "here/a b", "'a b/isochrone' routes"),
    ],
)
def test_another_terminal_can_do_what_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, on_path: bool, place: str, said: str
) -> None:
    """The plain name where the shell finds it, and else the way to the program, short where that is below."""
    folder = tmp_path / place
    folder.mkdir(parents=True)
    (folder / "isochrone").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(folder if on_path else tmp_path / "empty"))
    line = called("isochrone routes", python=folder / Path(sys.executable).name, here=tmp_path / "here")
    assert line == said.format(root=tmp_path)
