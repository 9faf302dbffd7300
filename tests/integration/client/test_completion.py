"""Completion of names in a shell, and `--fields`, with answers of a collector."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fixtures.fake_collector import FakeCollector
from isochrone_client import client
from isochrone_client.address import Collector
from isochrone_client.cli import cli


def completed(words: str, **environment: str) -> list[str]:
    """What bash offers for the last of these words."""
    variables = {
        "_ISOCHRONE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "ISOCHRONE_IDENTITY": "",
        **environment,
    }
    done = CliRunner().invoke(cli, [], prog_name="isochrone", complete_var="_ISOCHRONE_COMPLETE", env=variables)
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("isochrone leaderboard --region us", ["us-east-2"]),
        ("isochrone diff --against ap", ["ap-southeast-1"]),
        ("isochrone diff --baseline ", ["ap-southeast-1", "us-east-2"]),
        ("isochrone samples --target open", ["openai/gpt-5-mini"]),
        ("isochrone diff --explain gpt", ["gpt-5-mini"]),
        ("isochrone explain us", ["us-east-2"]),
        ("isochrone slo --output j", ["json"]),
    ],
)
def test_names_are_completed(observatory: FakeCollector, words: str, offered: list[str]) -> None:
    """Regions are those of plan and vantages, targets those of the plan, by their name or their model."""
    assert completed(words, ISOCHRONE_COLLECTOR=observatory.address) == offered
    if "ISOCHRONE" not in words and "--output" not in words:
        command, _, rest = words.removeprefix("isochrone ").partition(" ")
        assert completed(f"isochrone {command} --collector {observatory.address} {rest}") == offered


def test_without_a_collector_nothing_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that is unreachable, or does not answer within half a second, prints nothing."""
    limits_us = []

    class Recorded(client.ReadClient):
        def __init__(self, where: str | Collector, **limits: Any) -> None:
            super().__init__(where, **limits)
            limits_us.append(limits)

    monkeypatch.setattr(client, "ReadClient", Recorded)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for where in ("127.0.0.1:1", "no address:", f"127.0.0.1:{silent.getsockname()[1]}"):
            assert completed("isochrone leaderboard --region us", ISOCHRONE_COLLECTOR=where) == []
    assert limits_us == [{"timeout_us": 500_000, "connect_timeout_us": 500_000}] * 2


def test_contexts_are_completed(tmp_path: Path) -> None:
    """`--collector` offers the contexts of the configuration."""
    (tmp_path / "isochrone").mkdir()
    (tmp_path / "isochrone" / "config.toml").write_text("[contexts.prod]\ncollector = '127.0.0.1:1'\n")
    assert completed("isochrone diff --collector pr", XDG_CONFIG_HOME=str(tmp_path)) == ["prod"]
    assert completed("isochrone context use p", XDG_CONFIG_HOME=str(tmp_path)) == ["prod"]


def run(observatory: FakeCollector, *arguments: str, **environment: str) -> Result:
    """Run the command in this process."""
    variables = {"ISOCHRONE_COLLECTOR": observatory.address, **environment}
    return CliRunner().invoke(cli, arguments, env=variables, prog_name="isochrone")


def test_fields_are_chosen_listed_and_checked(observatory: FakeCollector) -> None:
    """`--fields` selects, `--fields help` lists, and an unknown field ends with exit code 2 and the nearest name."""
    rows = json.loads(run(observatory, "diff", "--fields", "decision, target", "-o", "json").stdout)["rows"]
    assert list(rows[0]) == ["decision", "target"]
    listed = run(observatory, "samples", "--fields", "help")
    assert (listed.exit_code, "ttft_us" in listed.stdout.splitlines()) == (0, True)
    unknown = run(observatory, "coverage", "--fields", "regoin")
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert "did you mean 'region'?" in unknown.stderr


def test_defaults_come_from_the_configuration(observatory: FakeCollector, tmp_path: Path) -> None:
    """Output and baseline of the configuration are defaults: a context's first, and options precede them."""
    (tmp_path / "isochrone").mkdir()
    (tmp_path / "isochrone" / "config.toml").write_text(
        "[defaults]\noutput = 'json'\nbaseline = 'us-east-2'\n"
        f"[contexts.lab]\ncollector = '{observatory.address}'\nbaseline = 'eu-central-1'\n"
    )
    home = {"XDG_CONFIG_HOME": str(tmp_path), "ISOCHRONE_COLLECTOR": "lab"}
    assert json.loads(run(observatory, "diff", **home).stdout)["rows"]
    assert observatory.requests[-1].one("baseline") == "eu-central-1"
    assert run(observatory, "diff", "-o", "csv", "--baseline", "a", **home).stdout.startswith("target,")
    assert observatory.requests[-1].one("baseline") == "a"
