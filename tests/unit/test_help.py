"""What the commands say of themselves fits where it is said."""

import re
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from isochrone_agent.cli.main import cli as agent
from isochrone_client.cli import cli as client
from isochrone_collector.cli.main import cli as collector
from isochrone_sim.cli import cli as simulator
from isochrone_wire.text import ESTIMAND_SENTENCE

# Nothing of these is needed to list commands; most take longer to import than click.
SLOW = {
    *(
        "alembic",
        "asyncio",
        "google.protobuf",
        "grpc",
        "httpcore",
        "httpx",
        "mcp",
        "numpy",
        "psycopg",
        "pydantic",
        "rich",
    ),
    *(
        "pydantic",
        "rich",
        "scipy",
        "sqlalchemy",
        "starlette",
        "structlog",
        "yaml",
        "isochrone_wire.model",
        "isochrone_wire.v1",
    ),
}
QUICK = ("isochrone", "isochrone-agent", "isochrone-collector")
MAX_RATIO = 1.8
COUNTING = """\
import atexit, sys
count = 0
def called(*_):
    global count
    count += 1
atexit.register(lambda: print("calls:", count))
sys.setprofile(called)
"""
PROGRAMS = {"isochrone": client, "isochrone-agent": agent, "isochrone-collector": collector, "isochrone-sim": simulator}


def groups(program: str) -> Iterator[tuple[list[str], click.Group]]:
    """Every group of a program, itself first, with the words that lead to it."""
    waiting: list[tuple[list[str], click.Group]] = [([], PROGRAMS[program])]
    while waiting:
        words, group = waiting.pop()
        yield words, group
        context = click.Context(group)
        commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
        waiting += [([*words, name], found) for name, found in commands.items() if isinstance(found, click.Group)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_command_is_cut_short_in_the_list_of_commands(program: str) -> None:
    """On 80 columns each command is listed with a whole sentence: click would cut a longer one and put dots."""
    for words, group in groups(program):
        shown = CliRunner().invoke(PROGRAMS[program], [*words, "--help"], env={"COLUMNS": "80"}).output
        listed = shown.partition("--help ")[2]
        assert "..." not in listed, listed
        said = [line.split() for line in listed.splitlines()]
        for name in group.list_commands(click.Context(group)):
            assert any(line[:1] == [name] and len(line) > 1 for line in said), (name, listed)


def test_commands_are_listed_by_topic() -> None:
    """The commands of a reader stand under what they are about, each of them once."""
    shown = CliRunner().invoke(client, ["--help"], env={"COLUMNS": "80"}).output
    assert re.findall(r"^(\w+):$", shown, re.MULTILINE) == ["Options", "Now", "Compare", "History", "Routes", "Manage"]
    names = re.findall(r"^  ([a-z][a-z-]*) +[A-Z]", shown, re.MULTILINE)
    assert sorted(names) == sorted(client.entries)


@pytest.mark.parametrize("name", ["diff", "leaderboard", "slo", "regions", "routes", "tiers", "simulate"])
def test_commands_with_intervals_say_what_they_are_of(name: str) -> None:
    """The help of a command whose answer has intervals has the sentence on the long-run level."""
    shown = CliRunner().invoke(client, [name, "--help"]).output
    assert ESTIMAND_SENTENCE in " ".join(shown.split())


def leaves(program: str) -> Iterator[tuple[str, click.Command]]:
    """Every command of a program that is not a group, with the words that lead to it."""
    for words, group in groups(program):
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if command is not None and not isinstance(command, click.Group):
                yield " ".join([*words, name]), command


@pytest.mark.parametrize("program", PROGRAMS)
def test_exit_codes_are_listed(program: str) -> None:
    """Each program lists the codes 0, 1 and 2, and those that call a collector 3 as well."""
    shown = CliRunner().invoke(PROGRAMS[program], ["--help"]).output
    listed = re.findall(r"^ +(\d)  \w", shown.partition("Exit codes:\n")[2], re.MULTILINE)
    assert listed[:3] == ["0", "1", "2"]
    assert ("3" in listed) == (program != "isochrone-sim")
    assert ("4" in listed) == (program == "isochrone")


@pytest.mark.parametrize("program", PROGRAMS)
def test_formats_have_one_spelling(program: str) -> None:
    """No command lists --format, and each choice of output formats is --output with -o."""
    for words, command in leaves(program):
        options = {option for parameter in command.params for option in parameter.opts}
        assert "--format" not in options, words
        assert ("--output" in options) == ("-o" in options), words


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_completes(program: str) -> None:
    """Each program has a completion command, whose script calls the program by its name."""
    done = CliRunner().invoke(PROGRAMS[program], ["completion", "bash"], prog_name=program)
    assert done.exit_code == 0
    assert f"_{program.replace('-', '_').upper()}_COMPLETE=bash_complete" in done.stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_command_has_an_example(program: str) -> None:
    """The help of each command has a line to copy into a shell."""
    for words, _ in leaves(program):
        shown = CliRunner().invoke(PROGRAMS[program], [*words.split(), "--help"], prog_name=program).output
        assert re.search(rf"Examples?:\n +.*{program} ", shown), words


@pytest.mark.parametrize("program", PROGRAMS)
def test_examples_follow_the_options(program: str) -> None:
    """The example is the end of the help of a command or group."""
    for words in [*(words.split() for words, _ in leaves(program)), *(words for words, _ in groups(program))]:
        shown = CliRunner().invoke(PROGRAMS[program], [*words, "--help"], prog_name=program).output
        assert "Example" not in shown.partition("Options:\n")[0], words


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    ("redirection", "reason"), [(">/dev/full", "No space left on device"), (">&-", "it is closed")]
)
def test_a_standard_output_that_cannot_be_written_is_an_error(program: str, redirection: str, reason: str) -> None:
    """Help that cannot be printed ends with one sentence and exit code 1, without a traceback."""
    module = PROGRAMS[program].callback.__module__
    code = f"from {module} import main; main()"
    line = f"exec \"$0\" -c '{code}' --help {redirection}"
    done = subprocess.run(["/bin/sh", "-c", line, sys.executable], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"error: cannot write to standard output: {reason}\n")


def help_of(program: str) -> str:
    """The code that prints a program's help as its entry point does."""
    return f"import sys\nsys.argv[1:] = ['--help']\nfrom {PROGRAMS[program].callback.__module__} import main\nmain()"


@pytest.mark.parametrize("program", QUICK)
def test_help_imports_nothing_slow(program: str) -> None:
    """Listing the commands loads no library but click, and none of the modules behind the commands."""
    code = f"import atexit, sys\natexit.register(lambda: print('loaded:', *sys.modules))\n{help_of(program)}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage: " in done.stdout
    assert SLOW & set(done.stdout.rpartition("loaded:")[2].split()) == set()


def calls(code: str) -> int:
    """The number of calls of functions, and of returns, in a new interpreter that runs the code. Unlike its time, it
    does not depend on other work on the machine.
    """
    done = subprocess.run([sys.executable, "-c", COUNTING + code], capture_output=True, text=True, check=True)
    return int(done.stdout.rpartition("calls:")[2])


def test_help_is_quick() -> None:
    """Each help takes at most 1.8 times as many calls as the import of click."""
    alone = calls("import click")
    ratios = {program: round(calls(help_of(program)) / alone, 2) for program in QUICK}
    assert max(ratios.values()) <= MAX_RATIO, ratios
