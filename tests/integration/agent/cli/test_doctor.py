"""`isochrone-agent doctor` beside a real collector: what is well is ok, what is missing is named, no key is shown."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fix_collector import StartCollector
from isochrone_agent.cli.kernel_clock import kernel_clock
from isochrone_agent.spool.spool import Spool

KEY = "sk-this-is-nobodys-business"
PLAN = """\
baseline: us-east-2
every: 1h
targets:
  - {provider: sim, model: a, base_url: "http://127.0.0.1:1/v1"}
  - {provider: sim, model: b, base_url: "http://127.0.0.1:1/v1", credential: sim}
"""
CREDENTIALS = '[sim]\nenv = "SIM_KEY"\nhosts = ["127.0.0.1"]\n'


def consult(
    folder: Path, collector: str, *more: str, **environment: str
) -> tuple["subprocess.CompletedProcess[str]", dict[str, Any]]:
    """What the doctor said, and its findings by what they are of."""
    told = ["--vantage", "us-1", "--region", "us-east-2", "--data-dir", str(folder), "--collector", collector, *more]
    done = subprocess.run(
        [sys.executable, "-m", "isochrone_agent", "doctor", "--output", "json", *told],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )
    document = json.loads(done.stdout)
    assert document["schema"] == "isochrone.doctor/1"
    return done, {finding["check"]: finding for finding in document["findings"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder of the agent's own, and beside it its credentials."""
    (tmp_path / "credentials.toml").write_text(CREDENTIALS)
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    return data


def test_an_agent_that_is_well(start_collector: StartCollector, folder: Path) -> None:
    """All that can be well is ok, the key is nowhere to be read, and nothing stays behind in the folder."""
    collector = start_collector()
    collector.call.apply(PLAN)
    more = ("--credentials", str(folder.parent / "credentials.toml"))
    done, found = consult(folder, collector.address, *more, SIM_KEY=KEY)
    well = ("software", "data folder", "spool", "identity", "certificate", "collector", "plan", "keys", "names")
    assert {name: found[name]["verdict"] for name in well} == dict.fromkeys(well, "ok"), found
    assert done.returncode == 0
    assert (found["keys"]["sentence"], found["names"]["sentence"]) == ("sim (variable SIM_KEY)", "127.0.0.1")
    assert KEY not in done.stdout + done.stderr
    assert list(folder.iterdir()) == []


def test_a_missing_key_and_a_missing_name_are_named(start_collector: StartCollector, folder: Path) -> None:
    """A target without its key and a host without an address are failures that say which."""
    collector = start_collector()
    collector.call.apply(PLAN.replace('127.0.0.1:1/v1"}', 'no-such-host.invalid/v1"}'))
    more = ("--credentials", str(folder.parent / "credentials.toml"))
    done, found = consult(folder, collector.address, *more, SIM_KEY="")
    assert done.returncode == 1
    assert found["keys"]["verdict"] == found["names"]["verdict"] == "fail"
    assert "sim/b: the environment variable SIM_KEY is not set" in found["keys"]["sentence"]
    assert found["names"]["sentence"].startswith("no-such-host.invalid: ")


def test_who_has_joined_is_known(start_collector: StartCollector, folder: Path) -> None:
    """The doctor compares the certificate with the one joined to; an identity that others can read is a failure."""
    collector = start_collector(more=["--tls"])
    collector.call.apply(PLAN)
    told = [collector.address, "--token", collector.call.invite("us-1"), "--data-dir", str(folder)]
    joined = subprocess.run([sys.executable, "-m", "isochrone_agent", "join", *told], capture_output=True, check=False)
    assert joined.returncode == 0, joined.stderr
    found = consult(folder, collector.address)[1]
    assert found["identity"]["sentence"].startswith("us-1 in us-east-2; ")
    assert (found["certificate"]["verdict"], found["collector"]["verdict"]) == ("ok", "ok")
    assert found["certificate"]["sentence"].endswith("as when this agent joined")
    (folder / "identity.json").chmod(0o644)
    done, found = consult(folder, collector.address)
    assert (done.returncode, found["identity"]["verdict"]) == (1, "fail")
    assert found["identity"]["hint"].startswith("chmod 600 ")
    collector.call.revoke("us-1")
    assert consult(folder, collector.address)[1]["collector"]["verdict"] == "fail"


def test_a_damaged_spool_is_found(folder: Path) -> None:
    """What waits is read as the agent would read it; one that cannot be read is a failure, and is left as it is."""
    spool = folder / "spool.sqlite3"
    Spool(spool).close()
    assert consult(folder, "127.0.0.1:1")[1]["samples"]["sentence"].startswith("0 wait")
    spool.write_bytes(garbled := b"no database" * 1000)
    assert consult(folder, "127.0.0.1:1")[1]["samples"]["verdict"] == "fail"
    assert spool.read_bytes() == garbled


def test_nobody_answers(folder: Path) -> None:
    """Without a collector the doctor still tells of everything else, and exit code 1 says that something fails."""
    done, found = consult(folder, "127.0.0.1:1")
    assert done.returncode == 1
    assert found["collector"]["verdict"] == "fail"
    assert found["plan"]["verdict"] == "warn"
    assert found["disk"]["verdict"] == "ok"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_the_kernel_tells_of_its_clock() -> None:
    """The structure of adjtimex is read where it lies: an error bound is a time, and not another field."""
    told = kernel_clock()
    assert told is not None
    # 16 s is what the kernel says when nobody keeps its clock.
    assert 0 <= told.max_error_us <= 16_000_000
