"""The command before any request: help, imports and usage errors."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import isochrone_client
from isochrone_client import errors
from isochrone_client.cli import COMMANDS, cli
from isochrone_client.commands import options
from isochrone_common.cli.command_line import CommandGroup
from isochrone_wire import __version__

READING = ["diff", "leaderboard", "slo", "tiers", "targets", "simulate", "samples", "coverage", "vantages", "regions"]
HEAVY = (
    "psycopg",
    "pyarrow",
    "numpy",
    "scipy",
    "pydantic",
    "yaml",
    "alembic",
    "sqlalchemy",
    "isochrone_collector",
    "isochrone_agent",
    "isochrone_migrations",
    "isochrone_sim",
)


def modules_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_reading_needs_the_base_install_only() -> None:
    """No reading command, and none that names collectors, imports gRPC or a package that an agent does not have."""
    loads = "; ".join(f"COMMANDS[{name!r}].load()" for name in (*READING, "context", "join"))
    loaded = modules_after(f"from isochrone_client.cli import COMMANDS; {loads}")
    assert {module for module in HEAVY if module in loaded} == set()
    assert {"grpc", "google"} & loaded == set()


def test_a_command_makes_only_the_classes_of_its_own_answer() -> None:
    """`diff` loads none of the values of other answers, each of which costs half a millisecond."""
    loaded = modules_after("from isochrone_client.cli import COMMANDS; COMMANDS['diff'].load()")
    assert {
        f"isochrone_wire.{name}" for name in ("model", "fleet", "insights", "routes", "operations")
    } & loaded == set()
    assert "isochrone_wire.answers" in loaded


def test_no_module_imports_another_room() -> None:
    """The client imports the wire and itself, never collector, agent or their dependencies; the MCP SDK is an extra."""
    client = Path(isochrone_client.__file__).parent
    sources = [path for path in client.rglob("*.py") if path != client / "mcp.py"]
    imports = re.compile(r"^\s*(?:from|import) (\w+)", re.MULTILINE)
    found = {name for source in sources for name in imports.findall(source.read_text())}
    assert found & set(HEAVY) == set()


@pytest.mark.parametrize("name", [*READING, "completion"])
def test_the_table_says_what_the_command_says(name: str) -> None:
    """The help in the list of commands is the first sentence of the command's own help."""
    command = COMMANDS[name].load()
    assert (command.help or "").split("\n\n")[0] == COMMANDS[name].help
    assert command.name == name


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_help_has_an_example(name: str, flag: str) -> None:
    """The help of each command has an example line to copy into a shell."""
    result = CliRunner().invoke(cli, [name, flag], prog_name="isochrone")
    assert result.exit_code == 0
    assert re.search(rf"^\s+isochrone {name}", result.stdout, re.MULTILINE)


@pytest.mark.parametrize("name", READING)
def test_reading_commands_share_their_options(name: str) -> None:
    """Each reading command has the same options for collector, timeout and output."""
    options = {option for parameter in COMMANDS[name].load().params for option in parameter.opts}
    assert {"--collector", "--timeout", "--output", "-o", "--fields", "--watch", "--exit-code"} <= options
    assert ("--window" in options) == (name not in ("targets", "vantages"))


def test_exit_codes_are_documented() -> None:
    """Every exit code of an error is in the help."""
    text = CliRunner().invoke(cli, ["--help"]).stdout
    described = {int(code) for code in re.findall(r"^\s+(\d)  \w", text, re.MULTILINE)}
    used = {
        cls.exit_code for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, errors.ClientError)
    }
    assert used | {0, 2} <= described


def test_the_version_is_the_distributions() -> None:
    """`--version` names the command and the one version of the distribution."""
    assert CliRunner().invoke(cli, ["--version"], prog_name="isochrone").stdout == f"isochrone {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["dif"],
        ["diff", "--metric", "speed"],
        ["diff", "--outptu", "json"],
        ["samples", "--limit", "0"],
        ["targets", "--timeout", "0"],
        ["diff", "--window", "24x"],
        ["leaderboard", "--collector", "10.1.2.3:4600"],
        ["leaderboard", "--watch", "5", "--exit-code"],
        ["diff", "--watch", "--exit-code"],
        ["targets", "--watch", "0"],
        ["samples", "--follow", "--watch"],
        ["targets", "--fields", ""],
        ["targets", "--fields", " ,"],
        ["report", "--file", "report.pdf"],
        ["report", "--file", "report.html", "--output", "markdown"],
        ["join", "127.0.0.1:4600", "--token", "a"],
    ],
)
def test_usage_errors_are_two(arguments: list[str]) -> None:
    """Invalid arguments end with exit code 2 and a sentence on stderr, without a request."""
    result = CliRunner().invoke(cli, arguments, prog_name="isochrone")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--file", "s.xlsx"],
            "s.xlsx ends in .xlsx, which names no format; end it in .parquet, .csv, .jsonl, or choose",
        ),
        (["--file", "s.csv.gz"], "s.csv.gz ends in .gz, which names no format"),
        (["--file", "s.parquet", "--output", "csv"], "--output csv contradicts s.parquet, which ends in .parquet"),
        (["--file", "s.CSV", "-o", "jsonl"], "--output jsonl contradicts s.CSV, which ends in .csv"),
    ],
)
def test_an_export_writes_no_other_format_than_its_name_states(arguments: list[str], sentence: str) -> None:
    """An ending that names no format, or another one than --output, is a usage error before any request."""
    result = CliRunner().invoke(cli, ["samples", "export", *arguments], prog_name="isochrone")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {sentence}")


@pytest.mark.parametrize(
    ("output", "name", "expected"),
    [
        (None, "s.parquet", "parquet"),
        (None, "S.CSV", "csv"),
        (None, "samples", "csv"),
        (None, "-", "csv"),
        ("jsonl", "s.json", "jsonl"),
        ("csv", "s.csv", "csv"),
    ],
)
def test_the_format_of_a_file(output: str | None, name: str, expected: str) -> None:
    """--output decides, else the ending of the name, else the default."""
    known = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl"}
    assert options.file_format(output, Path(name), known, default="csv") == expected


@pytest.mark.parametrize(
    ("words", "parameter", "value"),
    [
        (["leaderboard", "--by", "tokens_per_second"], "order", "tokens-per-second"),
        (["leaderboard", "--by", "tokens-per-usd"], "order", "tokens-per-usd"),
        (["leaderboard", "--by", "e2e"], "order", "e2e"),
        (["diff", "--metric", "tokens-per-second"], "metric", "tokens_per_second"),
        (["diff", "--metric", "TTFT-cold"], "metric", "ttft_cold"),
        (["regions", "--metric", "ttft-cold"], "metric", "ttft_cold"),
        (["report", "--metric", "tokens-per-second"], "metric", "tokens_per_second"),
        (["tiers", "--output", "JSON"], "output", "json"),
    ],
)
def test_names_take_dashes_and_underscores(words: list[str], parameter: str, value: str) -> None:
    """A metric, an order and a format may be written with `-` or `_` and in any case."""
    command = COMMANDS[words[0]].load()
    assert command.make_context("isochrone", words[1:], **cli.context_settings).params[parameter] == value


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["diff", "--metric", "tfft"], "ttft"),
        (["leaderboard", "--by", "tokens-per-secnd"], "tokens-per-second"),
        (["diff", "--output", "jsn"], "json"),
        (["diff", "--only", "decidd"], "decided"),
        (["samples", "export", "--file", "x", "--output", "parqet"], "parquet"),
        (["leaderbord"], "leaderboard"),
        (["routes", "wtach"], "watch"),
        (["samples", "exprot"], "export"),
        (["context", "lst"], "list"),
    ],
)
def test_a_misspelt_name_gets_the_nearest_one(words: list[str], meant: str) -> None:
    """An unknown command, metric, order or format ends with exit code 2 and the nearest known name."""
    result = CliRunner().invoke(cli, words, prog_name="isochrone")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"; did you mean {meant!r}?" in result.stderr


@pytest.mark.parametrize("name", ["routes", "samples"])
def test_subcommands_are_listed_with_their_own_help(name: str) -> None:
    """The help of a subcommand in its group's list is the first sentence of its own help."""
    group = COMMANDS[name].load()
    assert isinstance(group, CommandGroup)
    for subcommand, entry in group.entries.items():
        command = entry.load()
        assert ((command.help or "").split("\n\n")[0], command.name) == (entry.help, subcommand)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["targets"], "json"),
        (["routes"], "json"),
        (["samples"], "json"),
        (["report"], None),
        (["samples", "export"], None),
        (["routes", "export"], None),
    ],
)
def test_the_default_format_is_that_of_answers(
    words: list[str], expected: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The configured output is the default of commands that print an answer, and of no export."""
    (tmp_path / "isochrone").mkdir()
    (tmp_path / "isochrone" / "config.toml").write_text('[defaults]\noutput = "json"\ntimeout = 5\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    command: click.Command = cli
    for word in words:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word) or command
    required = ["--region", "us-east-2", "--file", "-"] if words == ["routes", "export"] else ["--file", "x.csv"]
    context = command.make_context("isochrone", [] if len(words) == 1 else required, **cli.context_settings)
    assert context.params["output"] == expected
    assert context.params["timeout_us"] == 5_000_000


@pytest.mark.parametrize("words", [["diff", "--watch", "abc"], ["targets", "--timeout", "abc"]])
def test_seconds_are_named_in_the_error(words: list[str]) -> None:
    """A text in place of a number is called that, not by click's name of the type."""
    assert "'abc' is not a valid number of seconds" in CliRunner().invoke(cli, words).stderr


@pytest.mark.parametrize("name", [*READING, "report", "drift"])
def test_commands_that_may_be_undecided_have_an_exit_code_for_it(name: str) -> None:
    """Each of them has --exit-code, and its help names the code."""
    text = " ".join(CliRunner().invoke(cli, [name, "--help"]).stdout.split())
    assert "--exit-code Exit with 4" in text


def test_completion_knows_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Called by a shell's completion, the command lists the candidates."""
    for name, value in {"_ISOCHRONE_COMPLETE": "bash_complete", "COMP_WORDS": "isochrone r", "COMP_CWORD": "1"}.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(cli, [], prog_name="isochrone", complete_var="_ISOCHRONE_COMPLETE")
    assert result.stdout == "plain,rate-limits\nplain,regions\nplain,report\nplain,routes\n"
