"""The commands' edges that need no collector: help, the missing extra, and how a change is printed."""

import io
import subprocess
import sys
from dataclasses import replace

import click
import pytest
from click.testing import CliRunner

from isochrone_collector import errors
from isochrone_collector.cli import main as program
from isochrone_collector.cli import plan
from isochrone_collector.cli.operator_client import confirm
from isochrone_collector.errors import SettingsError
from isochrone_collector.plans.diff import PER_DAY, compare
from isochrone_common.cli.command_line import CommandGroup
from isochrone_common.plan_signature import format_key
from isochrone_wire.json_format import to_json_value
from isochrone_wire.model import Plan, Route
from isochrone_wire.operations import PlanChange, PlanHistory, PlanVersion

KEY = format_key(bytes(range(32)))
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
    """Each line says what happens to which target or route, the last what a day costs; unknown is not zero."""
    assert plan.as_text(CHANGE).splitlines() == [
        "plan 4",
        "  + p/new",
        "  - p/old",
        "  ~ p/other: every",
        "per vantage and day: 1440 requests, at most 1.23 USD where prices are known",
    ]
    old = Plan(version=1, baseline="us", routes=tuple(Route(name=name, members=("p/a", "p/b")) for name in "rs"))
    new = Plan(version=2, baseline="us", routes=(Route(name="s", members=("p/a",)), Route(name="t", members=("p/a",))))
    assert plan.as_text(compare(old, new)).splitlines()[1:-1] == [
        "  - route r",
        "  ~ route s: without p/b",
        "  + route t: p/a",
    ]
    text = plan.as_text(PlanChange(version=4, requests_per_day=5))
    assert text.startswith("unchanged: plan 4")
    assert "spend unknown" in text


def test_changes_for_a_machine() -> None:
    """The JSON has the fields of the answer under their own names."""
    assert to_json_value(CHANGE) == {
        "version": 4,
        "changed": True,
        "added": ["p/new"],
        "removed": ["p/old"],
        "altered": ["p/other: every"],
        "problems": [],
        "usd_per_day": 1.234,
        "requests_per_day": 1440,
        "warnings": [],
    }


def test_forecasts_stand_apart_and_lines_fit() -> None:
    """What a day costs is told below what changes, and no line is wider than 100 columns."""
    binds = f"{PER_DAY}openai: " + "at most 12.40 USD planned, budget 5.00 USD, and so on " * 3
    lines = plan.as_text(replace(CHANGE, altered=(*CHANGE.altered, binds))).splitlines()
    assert lines[3] == "  ~ p/other: every"
    assert lines[5].startswith("  per day: openai")
    assert len(lines) > 6
    assert max(map(len, lines)) <= plan.WIDTH


def test_the_history_is_a_table() -> None:
    """Each plan has a line with its author, its instant, what it restored and the key of its signature."""
    first = PlanVersion(version=9, applied_at=0, applied_by="a@b", targets=12)
    newest = PlanVersion(version=10, applied_at=1_000_000, applied_by="c@d", targets=3, restores=8, signed_by=KEY)
    assert plan.history_as_text(PlanHistory(plans=(newest, first))).splitlines() == [
        "VERSION  APPLIED                      TARGETS  BY",
        "10       1970-01-01T00:00:01.000000Z  3        c@d, restoring 8, signed with isochrone-plan-AAECAwQF…",
        "9        1970-01-01T00:00:00.000000Z  12       a@b",
    ]


PLAN_COMMANDS = [["plan"], ["plan", "history"], ["plan", "show"], ["plan", "rollback"]]


@pytest.mark.parametrize("command", [[], ["serve"], ["migrate"], ["apply"], *PLAN_COMMANDS])
def test_every_help_has_an_example(command: list[str]) -> None:
    """A reader can copy a line that works."""
    shown = CliRunner().invoke(program.cli, [*command, "--help"])
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

    group = CommandGroup(commands={"fail": fail})
    done = CliRunner().invoke(group, ["fail"])
    assert (done.exit_code, done.stderr) == (exit_code, "error: x\nhint: do y\n")


def test_nothing_is_missing_here() -> None:
    """Where the extra is installed no module is missing."""
    assert program.missing_modules() == []


def test_a_missing_extra_is_named() -> None:
    """Without the extra's modules the command names the extra to install and imports nothing heavy."""
    script = (
        "import sys; sys.modules['psycopg'] = None; sys.modules['yaml'] = None\n"
        "from isochrone_collector.cli import main\n"
        "main.find_spec = lambda name: None if name in ('psycopg', 'yaml') else object()\n"
        "main.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "psycopg, yaml" in done.stderr
    assert "pip install 'isochrone[collector]'" in done.stderr
    assert "Traceback" not in done.stderr


class Terminal(io.StringIO):
    """A stdin at which somebody types."""

    def isatty(self) -> bool:
        return True


def test_a_question_is_asked_at_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A question is asked at a terminal only, on stderr; every answer but `y` ends it, and --yes needs none."""
    monkeypatch.setattr("sys.stdin", Terminal("y\n\n"))
    confirm("Apply?", yes=False)
    with pytest.raises(click.Abort):
        confirm("Apply?", yes=False)
    shown = capsys.readouterr()
    assert (shown.out.strip(), shown.err.count("Apply? [y/N]: ")) == ("", 2)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(SettingsError, match="not a terminal") as caught:
        confirm("Apply?", yes=False)
    assert caught.value.hint == "pass --yes"
    confirm("Apply?", yes=True)
