"""The shared `join`: which folders an identity may be written to."""

import os
from pathlib import Path

import pytest

from isochrone_common.cli import join_command


def test_a_malformed_token_is_wrong_usage() -> None:
    """What cannot be a token is refused with exit code 2 before the collector is called."""
    with pytest.raises(join_command.JoinSettingsError, match="must begin with 'isochrone-join-'") as caught:
        join_command._request("127.0.0.1:1", "a", None, None, None)
    assert caught.value.exit_code == 2


@pytest.fixture
def foreign_folder(tmp_path: Path) -> Path:
    """Borrow a folder that belongs to another user."""
    if os.geteuid() != 0:
        pytest.skip("giving a folder to another user needs root")
    os.chown(tmp_path, 65534, 65534)
    return tmp_path


def test_a_reader_may_use_a_folder_of_another_user(foreign_folder: Path) -> None:
    """A reader's identity file may be anywhere that is writable, such as a shared or temporary folder."""
    join_command._check_folder(foreign_folder, "--identity FILE", own_folder=False)


def test_an_agent_needs_a_folder_of_its_own(foreign_folder: Path) -> None:
    """The agent runs as the owner of its folder, and could not read an identity that another user wrote."""
    with pytest.raises(join_command.JoinSettingsError, match="belongs to another user"):
        join_command._check_folder(foreign_folder, "--data-dir FOLDER", own_folder=True)
