"""The command lines that the demo suggests for another terminal."""

import sys
from pathlib import Path

import pytest

from isochrone_client.configuration import Configuration, Context, write
from isochrone_client.demo.runner import _advice, command_line
from isochrone_client.demo.scenario import SUGGESTIONS


@pytest.mark.parametrize(
    ("on_path", "bin_folder", "line"),
    [
        (True, "here/.venv/bin", "isochrone routes"),
        (False, "here/.venv/bin", ".venv/bin/isochrone routes"),
        (False, "there/bin", "{root}/there/bin/isochrone routes"),
        (False, "here/a b", "'a b/isochrone' routes"),
    ],
)
def test_a_suggested_line_works_in_another_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, on_path: bool, bin_folder: str, line: str
) -> None:
    """The plain name if the shell finds it, otherwise the path of the program, relative if it is below the folder."""
    folder = tmp_path / bin_folder
    folder.mkdir(parents=True)
    (folder / "isochrone").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(folder if on_path else tmp_path / "empty"))
    shown = command_line("isochrone routes", python=folder / Path(sys.executable).name, folder=tmp_path / "here")
    assert shown == line.format(root=tmp_path)


def test_suggested_lines_ask_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They name the demo's collector wherever a command without an option asks another one."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("ISOCHRONE_COLLECTOR", raising=False)
    assert not any("--collector" in line for line in _advice("127.0.0.1:4680", SUGGESTIONS))
    assert all(line.endswith(" --collector 127.0.0.1:4681") for line in _advice("127.0.0.1:4681", SUGGESTIONS))
    monkeypatch.setenv("ISOCHRONE_COLLECTOR", "127.0.0.1:4700")
    assert all(line.endswith(" --collector 127.0.0.1:4680") for line in _advice("127.0.0.1:4680", SUGGESTIONS))
    monkeypatch.delenv("ISOCHRONE_COLLECTOR")
    write(Configuration().including(Context(name="prod", collector="127.0.0.1:4700"), current=True))
    assert all(line.endswith(" --collector 127.0.0.1:4680") for line in _advice("127.0.0.1:4680", SUGGESTIONS))
