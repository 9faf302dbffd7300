"""`isochrone-agent doctor` with a real collector: healthy checks are ok, problems are named, no key is printed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fixtures.collector import StartCollector
from isochrone_agent.cli.health_checks import kernel_clock
from isochrone_agent.spool.spool import Spool
from testdata import preforked

KEY = "sk-this-is-nobodys-business"
PLAN = """\
baseline: us-east-2
every: 1h
targets:
  - {provider: sim, model: a, base_url: "http://127.0.0.1:1/v1"}
  - {provider: sim, model: b, base_url: "http://127.0.0.1:1/v1", credential: sim}
"""
CREDENTIALS = '[sim]\nenv = "SIM_KEY"\nhosts = ["127.0.0.1"]\n'


def run_doctor(
    folder: Path, collector: str, *more: str, **environment: str
) -> tuple["subprocess.CompletedProcess[str]", dict[str, Any]]:
    options = ["--vantage", "us-1", "--region", "us-east-2", "--data-dir", str(folder), "--collector", collector, *more]
    command = ["doctor", "--output", "json", *options]
    done = preforked.run("isochrone_agent", *command, env={**os.environ, **environment})
    document = json.loads(done.stdout)
    assert document["schema"] == "isochrone.doctor/1"
    return done, {result["check"]: result for result in document["findings"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder owned by the agent, next to its credentials."""
    (tmp_path / "credentials.toml").write_text(CREDENTIALS)
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    return data


def test_a_healthy_agent(start_collector: StartCollector, folder: Path) -> None:
    """Every check is ok, the key is not printed, and no file is left in the folder."""
    collector = start_collector()
    collector.call.apply(PLAN)
    more = ("--credentials", str(folder.parent / "credentials.toml"))
    done, found = run_doctor(folder, collector.address, *more, SIM_KEY=KEY)
    healthy = ("software", "data folder", "spool", "identity", "certificate", "collector", "plan", "keys", "names")
    assert {name: found[name]["verdict"] for name in healthy} == dict.fromkeys(healthy, "ok"), found
    assert done.returncode == 0
    assert (found["keys"]["sentence"], found["names"]["sentence"]) == ("sim (variable SIM_KEY)", "127.0.0.1")
    assert KEY not in done.stdout + done.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("command", ["doctor", "check"])
def test_an_agent_without_a_collector(folder: Path, command: str) -> None:
    """The plan file is checked in place of the collector; what is wrong with it is named."""
    plan = folder.parent / "plan.yaml"

    def run() -> tuple[int, dict[str, Any]]:
        words = [command, "--output", "json", "--plan", str(plan), "--data-dir", str(folder)]
        credentials = ["--credentials", str(folder.parent / "credentials.toml")]
        done = preforked.run("isochrone_agent", *words, *credentials, env={**os.environ, "SIM_KEY": KEY})
        return done.returncode, {result["check"]: result for result in json.loads(done.stdout)["findings"]}

    plan.write_text(PLAN)
    code, found = run()
    assert (code, found["plan file"]["verdict"]) == (0, "ok"), found
    assert found["plan file"]["sentence"] == f"{plan}, 2 targets; no collector is used"
    assert not found.keys() & {"collector", "identity", "certificate"}
    plan.write_text(PLAN.replace("every: 1h", "every: often"))
    code, found = run()
    assert (code, found["plan file"]["verdict"]) == (1, "fail")
    assert "often" in found["plan file"]["sentence"]


def test_a_policy_that_refuses_targets_is_reported(start_collector: StartCollector, folder: Path) -> None:
    """`doctor` and `check` fail on a target that the policy refuses, and on a policy that others can change."""
    collector = start_collector()
    collector.call.apply(PLAN.replace('127.0.0.1:1/v1"}', 'no-such-host.invalid/v1"}'))
    policy = folder / "policy.toml"
    policy.write_text('[[allow]]\nurl = "http://127.0.0.1:1"\nrequests_per_day = 9\n')
    policy.chmod(0o600)
    more = ("--credentials", str(folder.parent / "credentials.toml"))
    done, found = run_doctor(folder, collector.address, *more, SIM_KEY=KEY)
    assert (done.returncode, found["policy"]["verdict"]) == (1, "fail")
    assert "no-such-host.invalid/v1/chat/completions is not below an allowed URL" in found["policy"]["sentence"]
    assert "no-such-host" not in found["names"]["sentence"]
    options = ["--vantage", "us-1", "--region", "us-east-2", "--data-dir", str(folder)]
    checked = preforked.run("isochrone_agent", "check", *options, "--collector", collector.address)
    assert checked.returncode == 1
    assert "refuses sim/a" in checked.stdout
    policy.chmod(0o666)
    sentence = run_doctor(folder, collector.address, *more, SIM_KEY=KEY)[1]["policy"]["sentence"]
    assert sentence == f"{policy} can be changed by other users"


def test_a_missing_key_and_a_missing_name_are_named(start_collector: StartCollector, folder: Path) -> None:
    """A target without its key and a host without an address are failures that name them."""
    collector = start_collector()
    collector.call.apply(PLAN.replace('127.0.0.1:1/v1"}', 'no-such-host.invalid/v1"}'))
    more = ("--credentials", str(folder.parent / "credentials.toml"))
    done, found = run_doctor(folder, collector.address, *more, SIM_KEY="")
    assert done.returncode == 1
    assert found["keys"]["verdict"] == found["names"]["verdict"] == "fail"
    assert "sim/b: the environment variable SIM_KEY is not set" in found["keys"]["sentence"]
    assert found["names"]["sentence"].startswith("no-such-host.invalid: ")


def test_the_identity_of_a_joined_agent_is_checked(start_collector: StartCollector, folder: Path) -> None:
    """The certificate is compared with the one pinned by `join`; an identity file that others can read is a failure."""
    collector = start_collector(more=["--tls"])
    collector.call.apply(PLAN)
    arguments = [collector.address, "--token", collector.call.invite("us-1"), "--data-dir", str(folder)]
    joined = preforked.run("isochrone_agent", "join", *arguments)
    assert joined.returncode == 0, joined.stderr
    found = run_doctor(folder, collector.address)[1]
    assert found["identity"]["sentence"].startswith("us-1 in us-east-2; ")
    assert (found["certificate"]["verdict"], found["collector"]["verdict"]) == ("ok", "ok")
    assert found["certificate"]["sentence"].endswith("as pinned by this agent")
    (folder / "identity.json").chmod(0o644)
    done, found = run_doctor(folder, collector.address)
    assert (done.returncode, found["identity"]["verdict"]) == (1, "fail")
    assert found["identity"]["hint"].startswith("chmod 600 ")
    collector.call.revoke("us-1")
    assert run_doctor(folder, collector.address)[1]["collector"]["verdict"] == "fail"


def test_a_damaged_spool_is_found(folder: Path) -> None:
    """A damaged spool is found and left unchanged; without a collector every other check runs."""
    spool = folder / "spool.sqlite3"
    Spool(spool).close()
    assert run_doctor(folder, "127.0.0.1:1")[1]["samples"]["sentence"].startswith("0 wait")
    spool.write_bytes(garbled := b"no database" * 1000)
    samples = run_doctor(folder, "127.0.0.1:1")[1]["samples"]
    assert (samples["verdict"], "cannot be read" in samples["sentence"]) == ("fail", True)
    assert spool.read_bytes() == garbled
    done, found = run_doctor(folder, "127.0.0.1:1")
    assert done.returncode == 1
    assert found["collector"]["verdict"] == "fail"
    assert found["plan"]["verdict"] == "warn"
    assert found["disk"]["verdict"] == "ok"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports it")
def test_the_kernel_reports_its_clock() -> None:
    """The structure of adjtimex is read at the right offsets: the error bound is a time, and not another field."""
    clock = kernel_clock()
    assert clock is not None
    # 16 s is what the kernel reports when the clock is not synchronised.
    assert 0 <= clock.max_error_us <= 16_000_000
