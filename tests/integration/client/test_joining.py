"""Commands of operators and readers against a collector with TLS."""

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fixtures.collector import Collector, StartCollector, run_command
from isochrone_client.cli import cli
from isochrone_common import identity_file

PLAN = "baseline: us-east-2\ntargets: [{model: a, provider: sim, base_url: http://h}]\n"


@pytest.fixture
def collector(start_collector: StartCollector) -> Collector:
    return start_collector(more=["--tls"])


def operate(collector: Collector, *words: str) -> str:
    done = run_command(*words, "--identity", str(collector.data_dir / "operator.json"))
    assert done.returncode == 0, done.stderr
    return done.stdout


def ask(home: Path, *words: str) -> Result:
    """Run the reading command with the configuration in `home`."""
    return CliRunner().invoke(cli, words, env={"XDG_CONFIG_HOME": str(home)}, prog_name="isochrone")


def test_an_operator_adds_lists_and_revokes(collector: Collector) -> None:
    """From `vantage add` to `vantage revoke`, and the same for people: printed lines work and lists are correct."""
    text = operate(collector, "vantage", "add", "sg-1", "--region", "ap-southeast-1", "--address", "c.example")
    assert "  isochrone-agent join c.example:4600 --token isochrone-join-" in text
    invitation = json.loads(
        operate(collector, "access", "add", "ida", "--role", "reader", "--expires", "2h", "-o", "json")
    )
    assert invitation["command"] == f"isochrone join {collector.address} --token {invitation['token']}"
    assert (invitation["schema"], invitation["role"]) == ("isochrone.invitation/1", "reader")
    assert "sg-1  vantage  ap-southeast-1  invited" in operate(collector, "vantage", "list")
    listed = json.loads(operate(collector, "access", "list", "-o", "json"))["access"]
    assert {(one["name"], one["state"]) for one in listed} >= {("ida", "invited")}
    assert "sg-1" not in {one["name"] for one in listed}
    rotated = operate(collector, "vantage", "rotate", "sg-1", "--overlap", "30m")
    assert "isochrone-agent join" in rotated
    assert "sg-1: 1 ended" in operate(collector, "vantage", "revoke", "sg-1")
    assert "sg-1" not in operate(collector, "vantage", "list")
    refused = run_command("vantage", "revoke", "ida", "--identity", str(collector.data_dir / "operator.json"))
    assert (refused.returncode, "access revoke ida" in refused.stderr) == (2, True)


def test_without_an_identity_an_operators_command_has_a_hint(collector: Collector, tmp_path: Path) -> None:
    """No collector, no credential, a revoked one, another machine, no file: each has a sentence and a hint."""
    stale = tmp_path / "stale.json"
    identity_file.write(stale, identity_file.read(collector.data_dir / "operator.json"))
    collector.call.revoke(identity_file.read(stale).name)
    cases = [
        (("--collector", "127.0.0.1:1"), 3, "no collector answers"),
        (("--collector", collector.address), 1, "requires TLS and a credential"),
        (("--collector", collector.address, "--identity", str(stale)), 1, "has been revoked"),
        (("--collector", "192.0.2.1:4600"), 2, "another machine"),
        (("--identity", str(tmp_path / "none")), 2, "cannot read"),
        (("--identity", "/dev/null"), 2, "cannot be used"),
    ]
    for words, exit_code, sentence in cases:
        done = run_command("vantage", "list", *words)
        assert (done.returncode, sentence in done.stderr) == (exit_code, True), (words, done.stderr)
        assert "hint:" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_plan_is_applied_over_tls(collector: Collector, tmp_path: Path) -> None:
    """`apply` uses the operator's identity like every other operator command."""
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    assert "plan 1" in operate(collector, "apply", str(file), "--yes")
    assert collector.call.targets().plan_version == 1


def test_a_reader_joins_reads_and_is_revoked(collector: Collector, tmp_path: Path) -> None:
    """After joining every command uses that collector; a revoked credential is exit code 1 with a hint."""
    collector.call.apply(PLAN)
    token = collector.call.invite("ida", role="reader", region=None)
    joined = ask(tmp_path, "join", collector.address, "--token", token)
    assert (joined.exit_code, joined.stderr) == (0, "")
    file = tmp_path / "isochrone" / "identity.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "current context: default" in joined.stdout
    assert f"default  {collector.http_address}" in ask(tmp_path, "context", "list").stdout
    assert "sim/a" in ask(tmp_path, "targets", "--collector", "default").stdout
    assert "sim/a" in ask(tmp_path, "targets").stdout
    for address in (collector.address, collector.http_address):
        assert "sim/a" in ask(tmp_path, "targets", "--collector", address).stdout
    collector.call.revoke("ida")
    refused = ask(tmp_path, "targets")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "the credential of 'ida' has been revoked" in refused.stderr
    assert "hint: ask an operator for access" in refused.stderr


def test_failures_of_joining(collector: Collector, start_collector: StartCollector, tmp_path: Path) -> None:
    """Another collector's token, no collector, an invalid and a used token: each has a sentence and an exit code."""
    other = start_collector(more=["--tls"])
    token = collector.call.invite("ida", role="reader", region=None)
    cases = [
        ((other.address, "--token", token), 1, "nothing has been sent"),
        (("127.0.0.1:1", "--token", token), 3, "no collector answers"),
        ((collector.address, "--token", "geheim"), 2, "must begin with"),
        ((collector.address,), 2, "pass --token"),
        (("host:x", "--token", token), 2, "no valid port"),
    ]
    for words, exit_code, sentence in cases:
        result = ask(tmp_path, "join", *words)
        assert (result.exit_code, sentence in result.stderr) == (exit_code, True), (words, result.stderr)
    assert not (tmp_path / "isochrone" / "identity.json").exists()
    assert ask(tmp_path, "join", collector.address, "--token", token).exit_code == 0
    assert "used already" in ask(tmp_path, "join", collector.address, "--token", token).stderr


def test_another_certificate_is_an_error(collector: Collector, start_collector: StartCollector, tmp_path: Path) -> None:
    """An impostor at the collector's address gets no credential, and the reader gets an error, not a timeout."""
    token = collector.call.invite("ida", role="reader", region=None)
    assert ask(tmp_path, "join", collector.address, "--token", token).exit_code == 0
    collector.stop()
    impostor = start_collector(
        port=collector.port, http_port=collector.http_port, database_url=collector.database_url, more=["--tls"]
    )
    result = ask(tmp_path, "targets")
    assert (result.exit_code, "is not the one that was joined" in result.stderr) == (1, True), result.stderr
    assert "ida" not in impostor.log()
