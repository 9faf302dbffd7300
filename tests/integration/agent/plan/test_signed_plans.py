"""Signed plans from `plan key` to a real agent, which refuses what an operator has not signed."""

import json
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest

from fixtures.agent import Agent, StartAgent
from fixtures.collector import Collector, StartCollector, run_command
from isochrone_common import identity_file
from testdata import preforked
from testdata.waiting import eventually

PLAN = "baseline: {0}\nevery: 1s\ntargets: [{{model: a, provider: sim, base_url: http://h.invalid}}]\n"


@pytest.fixture
def collector(start_collector: StartCollector) -> Collector:
    return start_collector(more=["--tls"])


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """The file of a new key, whose public half is beside it."""
    file = tmp_path / "plan-key.pem"
    done = run_command("plan", "key", str(file))
    assert done.returncode == 0, done.stderr
    assert run_command("plan", "key", str(file)).stdout == done.stdout
    assert file.stat().st_mode & 0o777 == 0o600
    file.with_suffix(".pub").write_text(done.stdout.strip())
    return file


def apply(collector: Collector, folder: Path, baseline: str, *more: str) -> str:
    """Apply a plan with that baseline."""
    return collector.apply(PLAN.format(baseline), folder, *_as_operator(collector), *more).stdout


def roll_back(collector: Collector, version: int, key: Path) -> tuple[int, str]:
    """Roll back to a version with a new signature; return exit code and output."""
    words = ("plan", "rollback", str(version), "--yes", "--sign", str(key))
    done = run_command(*words, "--collector", collector.address, *_as_operator(collector))
    return done.returncode, done.stdout + done.stderr


def refusal(collector: Collector) -> str | None:
    """Return why the agent refuses the plan, as its newest heartbeat reported it."""
    (vantage,) = collector.call.vantages().vantages
    return vantage.refused_plan_reason


def running(agent: Agent) -> list[int]:
    """Return the versions of the plans that the agent has started."""
    lines = (json.loads(line) for line in agent.log().splitlines() if line.startswith("{"))
    return [line["version"] for line in lines if line["event"] == "plan.started"]


def test_an_agent_runs_signed_plans_only(
    collector: Collector, start_agent: StartAgent, key: Path, tmp_path: Path
) -> None:
    """An unsigned plan and an earlier signature are refused and reported, and the running plan continues; a rollback is
    signed again.
    """
    folder = tmp_path / "vm"
    token = collector.call.invite("us-1")
    words = ("join", collector.address, "--token", token, "--data-dir", str(folder))
    done = preforked.run("isochrone_agent", *words, "--plan-key", key.with_suffix(".pub").read_text())
    assert done.returncode == 0, done.stderr
    assert identity_file.read(folder / "identity.json").plan_key == key.with_suffix(".pub").read_text()
    assert "signature: isochrone-plan-" in apply(collector, tmp_path, "us-east-2", "--sign", str(key))
    options = ["--log-format", "json"]
    agent = start_agent(vantage="us-1", folder=folder, more=options)
    eventually(20, lambda: _version(collector) == 1, "the signed plan")

    assert "agents that have pinned a key refuse" in apply(collector, tmp_path, "eu-west-1")
    eventually(30, lambda: "the plan is not signed" in (refusal(collector) or ""), "the refusal of an unsigned plan")
    assert _version(collector) == 1

    apply(collector, tmp_path, "ap-south-1", "--sign", str(key))
    eventually(30, lambda: _version(collector) == 3, "the next signed plan")
    _replay(collector, 1)
    eventually(30, lambda: "before one that ran here" in (refusal(collector) or ""), "the refusal of the replay")
    assert agent.stop() == 0
    again = start_agent(vantage="us-1", folder=folder, more=options)
    eventually(30, lambda: "before one that ran here" in again.log(), "the refusal after a restart")
    assert _version(collector) == 3

    code, said = roll_back(collector, 2, key)
    assert (code, "plan 2 was not signed with this key" in said) == (2, True), said
    code, said = roll_back(collector, 1, key)
    assert code == 0, said
    eventually(30, lambda: _version(collector) == 5, "the rollback")
    assert again.stop() == 0


def test_a_wrong_signature_is_refused(collector: Collector, key: Path, tmp_path: Path) -> None:
    """A file that is no key, and a document that the collector has changed since it was signed."""
    (tmp_path / "no-key").write_text("x")
    (tmp_path / "plan.yaml").write_text(PLAN.format("us-east-2"))
    words: Sequence[str] = ("apply", str(tmp_path / "plan.yaml"), "--collector", collector.address, "--yes", "--sign")
    done = run_command(*words, str(tmp_path / "no-key"), *_as_operator(collector))
    assert (done.returncode, "is not a private key" in done.stderr) == (2, True)
    assert run_command(*words, str(key), *_as_operator(collector)).returncode == 0
    apply(collector, tmp_path, "eu-west-1", "--sign", str(key))
    with psycopg.connect(collector.database_url) as connection:
        connection.execute("UPDATE plan SET document = replace(document, 'h.invalid', 'x.invalid') WHERE version = 1")
    code, said = roll_back(collector, 1, key)
    assert (code, "is not the one that was signed" in said) == (2, True), said


def _as_operator(collector: Collector) -> tuple[str, str]:
    return "--identity", str(collector.data_dir / "operator.json")


def _version(collector: Collector) -> int:
    """Return the version that the agent runs."""
    vantages = collector.call.vantages().vantages
    return vantages[0].plan_version if vantages else 0


def _replay(collector: Collector, version: int) -> None:
    """Put an earlier plan with its own signature into force, as a stolen collector could."""
    with psycopg.connect(collector.database_url) as connection:
        connection.execute(
            "INSERT INTO plan (version, document, applied_at, applied_by, signature)"
            " SELECT 4, document, now(), 'mallory', signature FROM plan WHERE version = %s",
            [version],
        )
