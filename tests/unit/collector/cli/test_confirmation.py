"""Confirmation of commands."""

import io

import click
import pytest

from isochrone_collector.cli.operator_client import confirm
from isochrone_collector.errors import SettingsError


class Terminal(io.StringIO):
    """A stdin at which somebody types."""

    def isatty(self) -> bool:
        """A terminal it is."""
        return True


def test_a_question_is_asked_at_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The question goes to stderr, `y` lets the command go on, and every other answer ends it."""
    monkeypatch.setattr("sys.stdin", Terminal("y\n\n"))
    confirm("Apply?", yes=False)
    with pytest.raises(click.Abort):
        confirm("Apply?", yes=False)
    shown = capsys.readouterr()
    assert (shown.out.strip(), shown.err.count("Apply? [y/N]: ")) == ("", 2)


def test_a_script_has_to_say_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal the command does not take what stdin has for an answer; --yes needs neither."""
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(SettingsError, match="not a terminal") as caught:
        confirm("Apply?", yes=False)
    assert caught.value.hint == "pass --yes"
    confirm("Apply?", yes=True)
