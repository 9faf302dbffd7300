"""The folder of a demo run."""

from pathlib import Path

import pytest

from isochrone_client.demo.run_folder import run_folder
from isochrone_client.errors import DemoError


def test_a_folder_is_used_by_one_demo_at_a_time(tmp_path: Path) -> None:
    """A second demo in the same folder is refused and changes nothing; after the first one the folder is removed."""
    folder = tmp_path / "run"
    with run_folder(folder, keep=False) as root:
        (root / "logs" / "mine").touch()
        with pytest.raises(DemoError, match="a demo is running in") as refused, run_folder(folder, keep=False):
            pass
        assert "--folder" in refused.value.hint
        assert (root / "logs" / "mine").exists()
    assert not folder.exists()
    with run_folder(folder, keep=False) as root:
        assert list((root / "logs").iterdir()) == []


def test_kept_files_stay_until_the_next_demo(tmp_path: Path) -> None:
    """With `keep` all files stay; the next demo in the folder removes them first."""
    with run_folder(tmp_path, keep=True) as root:
        (root / "data").mkdir()
        (root / "data" / "rows").touch()
    assert (tmp_path / "data" / "rows").exists()
    with run_folder(tmp_path, keep=True):
        assert not (tmp_path / "data").exists()


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    """A folder that holds files of something other than a demo is refused and not changed."""
    (tmp_path / "mine").touch()
    with pytest.raises(DemoError, match="not from a demo"), run_folder(tmp_path, keep=False):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
