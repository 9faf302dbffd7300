"""The command: tables for people, JSON for programs, errors as sentences."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from isochrone_sim.cli import cli
from isochrone_sim.faults import FAULTS
from isochrone_sim.tables import endpoints_table


def run(*options: str) -> Result:
    return CliRunner().invoke(cli, options)


def test_the_world_as_a_table() -> None:
    """Fifteen models with their figures, what is assumed is marked, within 100 columns."""
    done = run("world")
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert max(map(len, lines)) <= 100
    assert "published figures, 2026-05-20" in lines[1]
    row = next(line.split() for line in lines if line.startswith("deepseek-v4-flash"))
    assert row == ["deepseek-v4-flash", "deepseek", "60", "0.25", "180", "150", "(-30)", "215", "(+35)*"]


def test_the_world_as_json() -> None:
    """Durations are integers in microseconds, and offsets say where they come from."""
    document = json.loads(run("world", "--output", "json").output)
    assert (document["schema"], document["baseline"], len(document["models"])) == (
        "isochrone-sim.world/1",
        "us-east-2",
        15,
    )
    kimi = next(model for model in document["models"] if model["id"] == "kimi-k2.5")
    assert kimi["ttft_us"] == {"us-east-2": 600_000, "ap-southeast-1": 480_000, "eu-central-1": 655_000}
    assert kimi["differential_us"]["ap-southeast-1"] == -120_000
    assert kimi["offset_source"] == {"ap-southeast-1": "published", "eu-central-1": "assumed"}


def test_true_differences() -> None:
    """Of any two regions, in either direction."""
    pair = ("us-east-2", "ap-southeast-1")
    there = json.loads(run("world", "--truth-differential", *pair, "--output", "json").output)
    back = json.loads(run("world", "--truth-differential", *reversed(pair), "--output", "json").output)
    assert there["differential_us"]["glm-5"] == -80_000
    assert back["differential_us"] == {name: -us for name, us in there["differential_us"].items()}
    assert (there["offset_source"]["glm-5"], there["offset_source"]["qwen3-8b"]) == ("published", "assumed")
    table = run("world", "--truth-differential", *pair).output.splitlines()
    assert next(line.split() for line in table if line.startswith("glm-5")) == [
        "glm-5",
        "500",
        "420",
        "-80",
        "published",
    ]


def test_faults_are_listed(tmp_path: Path) -> None:
    """Each fault has a sentence, as a table within 100 columns and as JSON; the example is a world file."""
    lines = run("faults").output.splitlines()
    assert max(map(len, lines)) <= 100
    assert all(
        any(line.startswith(name) and fault.sentence in line for line in lines) for name, fault in FAULTS.items()
    )
    document = json.loads(run("faults", "--output", "json").output)
    assert [row["model"] for row in document["faults"]] == [f"fault-{name}" for name in FAULTS]
    path = tmp_path / "world.json"
    path.write_text(run("world", "--example").output)
    done = run("world", "--world", str(path))
    assert (done.exit_code, "swift-1" in done.output) == (0, True)


def test_a_person_is_told_where_to_ask() -> None:
    """The table of a ready simulator names every region's base URL and a request to begin with."""
    endpoints = {"us-east-2": "http://127.0.0.1:8081/v1", "ap-southeast-1": "http://127.0.0.1:8082/v1"}
    lines = endpoints_table(endpoints, "qwen3-8b").splitlines()
    assert [line.split() for line in lines[1:3]] == [list(pair) for pair in endpoints.items()]
    told = "\n".join(lines)
    for piece in ("curl -N http://127.0.0.1:8081/v1/chat/completions", '"model": "qwen3-8b"', "127.0.0.1:8081/truth"):
        assert piece in told


@pytest.mark.parametrize("command", [(), ("serve",), ("world",), ("faults",)])
def test_help_shows_an_example(command: tuple[str, ...]) -> None:
    """Whoever asks for help sees how a command is used, or what its exit codes mean."""
    done = run(*command, "--help")
    assert done.exit_code == 0
    assert ("isochrone-sim " + command[0] if command else "Exit codes") in done.output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("serve", "--listen", "0.0.0.0:0"), "can be reached from other machines"),
        (("serve", "--listen", "mars=127.0.0.1:0"), "unknown region 'mars'"),
        (("world", "--world", "none.json"), "No such file"),
        (("world", "--truth-differential", "us-east-2", "singapore"), "unknown region 'singapore'"),
    ],
)
def test_errors_are_sentences(options: tuple[str, ...], sentence: str) -> None:
    """Wrong usage is exit code 2, a sentence and a hint, and no traceback."""
    done = run(*options)
    assert (done.exit_code, done.exception is None or isinstance(done.exception, SystemExit)) == (2, True)
    assert sentence in done.output
    assert "hint:" in done.output
