"""The commands of all programs: errors, exit codes, lazy loading, `join` and logs."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from isochrone_common.cli import command_line, join_command
from isochrone_wire.errors import IsochroneError
from isochrone_wire.text import aligned


class UnreachableError(IsochroneError):
    exit_code = 3


def group(error: BaseException | None = None) -> command_line.CommandGroup:
    """A program with the command `show`, which raises `error` or prints its format."""

    @click.command("show")
    @command_line.table_or_json
    @command_line.log_format_option
    def show(*, output: str, log_format: str) -> None:
        if error is not None:
            raise error
        click.echo(f"{output} {log_format}")

    found = command_line.CommandGroup(name="program", commands={"show": show})
    found.add_command(command_line.completion_command("isochrone-x"))
    return found


@pytest.mark.parametrize(
    ("error", "exit_code", "printed"),
    [
        (IsochroneError("x", hint="do y"), 1, "error: x\nhint: do y\n"),
        (IsochroneError("x"), 1, "error: x\n"),
        (UnreachableError("x\ny", hint="do z"), 3, "error: x\ny\nhint: do z\n"),
        (IsochroneError("no \x1b[31mred\x07"), 1, "error: no  [31mred \n"),
        (click.UsageError("Bad value"), 2, "error: bad value\nhint: program show --help\n"),
        (click.Abort(), 1, "error: aborted\n"),
        (KeyboardInterrupt(), 130, "\n"),
    ],
)
def test_an_error_is_a_sentence_a_hint_and_an_exit_code(error: BaseException, exit_code: int, printed: str) -> None:
    """Each error of ours and of click has the same form, without control characters and without a traceback."""
    done = CliRunner().invoke(group(error), ["show"], prog_name="program")
    assert (done.exit_code, done.stdout, done.stderr) == (exit_code, "", printed)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["shwo"], "error: no such command 'shwo'"),
        (["show", "--otuput", "json"], "error: no such option"),
        (["--shwo"], "error: no such option"),
        (["show", "-o", "yaml"], "error: invalid value for '--output'"),
    ],
)
def test_usage_errors_are_two(words: list[str], sentence: str) -> None:
    """An unknown command, option or value ends with exit code 2, and a similar name is offered."""
    done = CliRunner().invoke(group(), words, prog_name="program")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(sentence)
    assert "hint: program" in done.stderr


def test_a_group_has_help_and_its_commands_formats() -> None:
    """The help of a group is not an error message, but a usage error; `--output` and `-o` mean the same."""
    done = CliRunner().invoke(group(), [], prog_name="program")
    assert done.exit_code in (0, 2)
    assert done.output.startswith("Usage: program")
    for spelling in ("--output", "-o"):
        assert CliRunner().invoke(group(), ["show", spelling, "json"]).stdout == "json auto\n"


@pytest.mark.parametrize(("typed", "meant"), [("shwo", "show"), ("raed", "read")])
def test_a_mistyped_command_gets_a_suggestion(typed: str, meant: str) -> None:
    """The nearest of all names is offered, also of commands that are not imported yet."""
    place = "isochrone_agent.cli.probe:command"
    program = group()
    program.entries = {"read": command_line.Entry(place, "Read.")}
    done = CliRunner().invoke(program, [typed], prog_name="program")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"error: no such command {typed!r}; did you mean {meant!r}?\nhint: program --help\n"


INTERRUPTED_MODULE = """
import os, signal, weakref
import click

command = click.Command("show", callback=lambda: print("shown"))
# As in the import machinery: what a callback of a weak reference raises is lost.
lock = {1}
weakref.finalize(lock, os.kill, os.getpid(), signal.SIGINT)
del lock
"""


def test_an_interrupt_while_a_command_is_imported_ends_the_program(tmp_path: Path) -> None:
    """Ctrl-C ends the program without a traceback, even where Python would lose the exception and go on."""
    (tmp_path / "interrupted.py").write_text(INTERRUPTED_MODULE)
    code = (
        "from isochrone_common.cli.command_line import CommandGroup, Entry\n"
        "CommandGroup(entries={'show': Entry('interrupted:command', '')}).main(['show'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script(shell: str) -> None:
    """Each shell gets a script that calls the program through its own variable."""
    done = CliRunner().invoke(group(), ["completion", shell])
    assert done.exit_code == 0
    assert f"_ISOCHRONE_X_COMPLETE={shell}_complete" in done.stdout


@given(st.text())
def test_what_a_terminal_gets_has_no_control_characters(text: str) -> None:
    """JSON keeps its value, with escapes; a table has spaces."""
    command = click.Command("c", callback=lambda: command_line.print_json({text: [text]}, indent=None))
    printed = CliRunner().invoke(command, []).stdout
    assert json.loads(printed) == {text: [text]}
    assert printed.removesuffix("\n").isprintable()
    assert aligned([(text, "b")]).isprintable()


def test_exit_codes_stand_in_the_help() -> None:
    """Each code has a line, further ones after the common three."""
    lines = ["  0  ok", "  1  failed", "  2  usage or settings", "  3  unreachable"]
    assert command_line.exit_codes(_3="unreachable").splitlines()[2:] == lines


def test_a_malformed_token_is_wrong_usage() -> None:
    """What cannot be a token is refused with exit code 2 before the collector is called."""
    with pytest.raises(join_command.JoinSettingsError, match="must begin with 'isochrone-join-'") as caught:
        join_command._request("127.0.0.1:1", "a", None, None, None)
    assert caught.value.exit_code == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder to another user needs root")
def test_a_folder_of_another_user(tmp_path: Path) -> None:
    """A reader's identity may be anywhere; an agent could not read one that another user wrote into its folder."""
    os.chown(tmp_path, 65534, 65534)
    join_command._check_folder(tmp_path, "--identity FILE", own_folder=False)
    with pytest.raises(join_command.JoinSettingsError, match="belongs to another user"):
        join_command._check_folder(tmp_path, "--data-dir FOLDER", own_folder=True)


MODEL = "import sys, isochrone_wire.model, isochrone_wire.errors; print({'click', 'structlog'} & set(sys.modules))"
LOADED = "import sys, isochrone_agent.cli.run; print('rich' in sys.modules, 'structlog' in sys.modules)"
AFTERWARDS = "import isochrone_common.cli.service, rich.text; print(rich.text.Text('found'))"

FAILURE = """
import sys; sys.stderr = sys.stdout
from isochrone_common.cli.service import set_up_logs; set_up_logs("json")
import structlog
try: 1 / 0
except ZeroDivisionError: structlog.get_logger().exception("probe.failed")
"""


def printed(program: str) -> str:
    """What a Python of its own prints: this one has loaded too much to tell."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(("program", "expected"), [(MODEL, "set()"), (LOADED, "False True"), (AFTERWARDS, "found")])
def test_what_is_not_imported(program: str, expected: str) -> None:
    """Values load neither click nor structlog, an agent's `run` no rich, which can be imported afterwards."""
    assert printed(program) == expected


def test_a_log_for_machines_tells_why() -> None:
    """The JSON line of a failure holds its traceback, not merely that there was one."""
    line = json.loads(printed(FAILURE))
    assert (line["event"], "exc_info" in line) == ("probe.failed", False)
    assert "ZeroDivisionError: division by zero" in line["exception"]
