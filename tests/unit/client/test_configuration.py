"""The configuration file: what it may hold, how it is written, and how it reaches the options of a command."""

import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from isochrone_client import configuration
from isochrone_client.address import resolve_collector
from isochrone_client.cli import cli
from isochrone_client.configuration import Configuration, Context, Defaults, parse, to_text
from isochrone_client.errors import ConfigurationError

FULL = Configuration(
    current="prod",
    defaults=Defaults(output="json", timeout=12.5, baseline="us-east-2"),
    contexts={
        "prod": Context(
            name="prod",
            collector="collector.example:4600",
            identity=Path("/etc/isochrone/prod.json"),
            defaults=Defaults(baseline="eu-central-1"),
        ),
        "lab.1": Context(name="lab.1", collector="127.0.0.1:4700"),
    },
)


def run(home: Path, *words: str, **environment: str) -> Result:
    variables = {"XDG_CONFIG_HOME": str(home), "ISOCHRONE_COLLECTOR": "", "ISOCHRONE_IDENTITY": "", **environment}
    return CliRunner().invoke(cli, words, env=variables, prog_name="isochrone")


def written(home: Path, text: str) -> Path:
    path = home / "isochrone" / "config.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_what_is_written_is_read() -> None:
    """Every part of a configuration survives its text."""
    assert parse(to_text(FULL)) == FULL
    assert parse(to_text(Configuration())) == Configuration()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("curent = 'x'", "unknown key 'curent'; did you mean 'current'? known: contexts, current, defaults"),
        ("[defaults]\nouput = 'csv'", "defaults: unknown key 'ouput'"),
        ("[contexts.a]\ncolector = 'h'", "did you mean 'collector'?"),
        ("[contexts.a]\nidentity = 'f'", "contexts.a has no `collector`"),
        ("[defaults]\noutput = 'jsn'", "unknown format 'jsn'"),
        ("[defaults]\ntimeout = 0", "not a number of seconds"),
        ("[defaults]\ntimeout = true", "not a number of seconds"),
        ("current = 'prod'", "unknown context 'prod'"),
        ("current = 1", "current must be a text"),
        ("contexts = 1", "contexts must be a table"),
        ("[contexts.'a b']\ncollector = 'h'", "cannot name a context"),
        ("current =", "Invalid value"),
    ],
)
def test_a_wrong_file_is_a_usage_error(tmp_path: Path, text: str, sentence: str) -> None:
    """Unknown keys name the nearest known one, and every error names the file; no collector is asked."""
    path = written(tmp_path, text)
    done = run(tmp_path, "targets")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {path}: ")
    assert sentence in done.stderr


def test_the_file_is_its_owners_and_replaced_in_one_step(tmp_path: Path) -> None:
    """Mode 0600 whatever the umask, and nothing but the file is left in the folder."""
    before = os.umask(0)
    try:
        path = configuration.write(FULL, {"XDG_CONFIG_HOME": str(tmp_path)})
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_contexts_are_added_used_shown_and_removed(tmp_path: Path) -> None:
    """The first context becomes the current one, `use` changes it, and a removed one is unknown."""
    assert run(tmp_path, "context", "add", "a", "127.0.0.1:1").exit_code == 0
    assert "127.0.0.1:2\n" in run(tmp_path, "context", "add", "b", "127.0.0.1:2", "--baseline", "us").stdout
    assert run(tmp_path, "context", "add", "b", "127.0.0.1:3").exit_code == 2
    listed = run(tmp_path, "context", "list", "-o", "csv").stdout.splitlines()
    assert listed == [
        "name,current,collector,identity,output,timeout,baseline",
        "a,True,127.0.0.1:1,,,,",
        "b,False,127.0.0.1:2,,,,us",
    ]
    assert "current context: b" in run(tmp_path, "context", "use", "b").stdout
    assert "127.0.0.1:2" in run(tmp_path, "context", "show").stdout
    assert run(tmp_path, "context", "remove", "b").exit_code == 0
    assert "choose one with" in run(tmp_path, "context", "show").stderr
    unknown = run(tmp_path, "context", "use", "aa")
    assert (unknown.exit_code, "did you mean 'a'?" in unknown.stderr) == (2, True)


def test_options_precede_variables_precede_contexts(tmp_path: Path) -> None:
    """--collector precedes ISOCHRONE_COLLECTOR, which precedes the current context; both take a context's name."""
    written(
        tmp_path, "current = 'a'\n[contexts.a]\ncollector = '127.0.0.1:1'\n[contexts.b]\ncollector = '127.0.0.1:2'\n"
    )
    assert "127.0.0.1:1 (from context a):" in run(tmp_path, "targets").stderr
    assert "127.0.0.1:2 (from context b):" in run(tmp_path, "targets", ISOCHRONE_COLLECTOR="b").stderr
    assert "127.0.0.1:3:" in run(tmp_path, "targets", "--collector", "127.0.0.1:3", ISOCHRONE_COLLECTOR="b").stderr
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert str(resolve_collector(None, environment=environment)) == "127.0.0.1:1"
    assert str(resolve_collector("b", environment=environment)) == "127.0.0.1:2"


def test_a_similar_context_is_offered(tmp_path: Path) -> None:
    """A mistyped context looks like a host name; the error offers the context."""
    written(tmp_path, "[contexts.staging]\ncollector = '127.0.0.1:1'\n")
    done = run(tmp_path, "targets", "--collector", "stagin")
    assert (done.exit_code, "did you mean context 'staging'?" in done.stderr) == (2, True)


def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    """A folder in the place of the file is an error with a hint, not an empty configuration."""
    (tmp_path / "isochrone" / "config.toml").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="cannot read"):
        configuration.read({"XDG_CONFIG_HOME": str(tmp_path)})


@pytest.mark.parametrize("command", ["diff", "routes export", "samples export", "routes kubernetes"])
def test_help_needs_no_identity(tmp_path: Path, command: str) -> None:
    """Help is shown although the identity file of the current context is missing."""
    written(tmp_path, 'current = "a"\n[contexts.a]\ncollector = "h:1"\nidentity = "/missing/identity.json"\n')
    result = run(tmp_path, *command.split(), "--help")
    assert (result.exit_code, "Usage: " in result.stdout) == (0, True), result.stderr
