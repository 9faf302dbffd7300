"""The commands' edges that need no collector: help, the door, and how a change is printed."""

import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from isochrone_collector import applying, cli, door, errors
from isochrone_wire.operations import PlanChange

CHANGE = PlanChange(
    version=4,
    changed=True,
    added=("p/new",),
    removed=("p/old",),
    altered=("p/other: every",),
    usd_per_day=1.234,
    requests_per_day=1440,
)


def test_changes_for_a_person() -> None:
    """Each line says what happens to which target, and the last what a day costs."""
    assert applying.as_text(CHANGE).splitlines() == [
        "plan 4",
        "  + p/new",
        "  - p/old",
        "  ~ p/other: every",
        "per vantage and day: 1440 requests, at most 1.23 USD where prices are known",
    ]


def test_no_change_for_a_person() -> None:
    """Nothing changed is said, and an unknown price is not a price of zero."""
    text = applying.as_text(PlanChange(version=4, requests_per_day=5))
    assert text.startswith("unchanged: plan 4")
    assert "spend unknown" in text


def test_changes_for_a_machine() -> None:
    """The JSON has the fields of the answer under their own names."""
    assert json.loads(applying.as_json(CHANGE)) == {
        "version": 4,
        "changed": True,
        "added": ["p/new"],
        "removed": ["p/old"],
        "altered": ["p/other: every"],
        "problems": [],
        "usd_per_day": 1.234,
        "requests_per_day": 1440,
    }


@pytest.mark.parametrize("command", [[], ["serve"], ["migrate"], ["apply"]])
def test_every_help_has_an_example(command: list[str]) -> None:
    """A reader can copy a line that works."""
    shown = CliRunner().invoke(cli.main, [*command, "--help"])
    assert shown.exit_code == 0
    assert "Example:\n" in shown.output
    assert "isochrone-collector " in shown.output


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (errors.StartError("x", hint="do y"), 1),
        (errors.DatabaseUnreachable("x", hint="do y"), 1),
        (errors.SettingsError("x", hint="do y"), 2),
        (errors.CollectorUnreachable("x", hint="do y"), 3),
    ],
)
def test_errors_become_exit_codes_and_hints(error: errors.CollectorError, exit_code: int) -> None:
    """Whatever of ours a command raises is a sentence, a hint and its exit code, never a traceback."""

    @click.command()
    def fail() -> None:
        raise error

    group = cli._Commands(commands={"fail": fail})
    done = CliRunner().invoke(group, ["fail"])
    assert (done.exit_code, done.stderr) == (exit_code, "error: x\nhint: do y\n")


def test_nothing_is_missing_here() -> None:
    """The door lets pass where the extra is installed."""
    assert door.missing_modules() == []


def test_the_door_names_the_extra() -> None:
    """Without what the extra brings, the command says what to install and imports nothing heavy."""
    script = (
        "import sys; sys.modules['psycopg'] = None; sys.modules['yaml'] = None\n"
        "from isochrone_collector import door\n"
        "door.find_spec = lambda name: None if name in ('psycopg', 'yaml') else object()\n"
        "door.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "psycopg, yaml" in done.stderr
    assert "pip install 'isochrone[collector]'" in done.stderr
    assert "Traceback" not in done.stderr
