"""An agent from its join token to its samples in PostgreSQL, over TLS; and where its secrets are not."""

import json
import os
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from fixtures.agent import Agent, StartAgent
from fixtures.collector import Collector, StartCollector
from fixtures.simulator import API_KEY, Simulator
from isochrone_agent.collector_client import ReconnectingChannel
from isochrone_agent.settings import load_settings
from isochrone_common import identity_file
from isochrone_common.credentials import SECRET_BYTES, JoinToken, parse_credential
from isochrone_wire.model import SECOND_US
from testdata import preforked
from testdata.waiting import eventually
from testdata.wiretap import Wiretap

PLAN = """
baseline: us-east-2
every: 1s
targets:
  - {{provider: sim, model: fault-none, base_url: "{base_url}", credential: sim}}
"""
OPTIONS = dict.fromkeys(
    ("vantage", "region", "collector", "data_dir", "credentials", "concurrency", "connect_to", "family", "ca_file")
)


def agent_command(
    *words: str, stdin: str = "", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return preforked.run("isochrone_agent", *words, stdin=stdin, env=os.environ | (environment or {}))


def rows(collector: Collector) -> int:
    with psycopg.connect(collector.database_url) as connection:
        found = connection.execute("SELECT count(*) FROM sample").fetchone()
    return int(found[0]) if found else 0


def probes(agent: Agent) -> int:
    return agent.log().count('"probe.done"')


def dump(collector: Collector) -> bytes:
    """Every row of every table, as text; bytea in hexadecimal."""
    with psycopg.connect(collector.database_url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        pieces = [
            str(row)
            for (table,) in tables
            for row in connection.execute(sql.SQL("SELECT t::text FROM {} AS t").format(sql.Identifier(table)))
        ]
    return "\n".join(pieces).encode()


@pytest.fixture
def collector(start_collector: StartCollector, simulator_with_key: Simulator, tmp_path: Path) -> Collector:
    """A collector that speaks TLS, with a plan whose target wants a key."""
    guarded = start_collector(more=["--tls"])
    guarded.call.apply(PLAN.format(base_url=simulator_with_key.base_url))
    return guarded


@pytest.fixture
def keys(tmp_path: Path) -> Sequence[str]:
    """The options of an agent that has the simulator's key."""
    (tmp_path / "key").write_text(API_KEY + "\n")
    file = tmp_path / "credentials.toml"
    file.write_text(f'[sim]\nfile = "{tmp_path / "key"}"\nhosts = ["127.0.0.1"]\n')
    return ["--credentials", str(file), "--log-format", "json"]


def test_secrets_are_nowhere_but_where_they_belong(
    collector: Collector, start_agent: StartAgent, keys: Sequence[str], tmp_path: Path
) -> None:
    """Keys and secrets are in no log, spool or table, nor on the wire between agent and collector."""
    folder = tmp_path / "vm"
    with Wiretap(collector.port) as tap:
        token = collector.call.invite("us-1")
        done = agent_command(
            "join", f"127.0.0.1:{tap.port}", "--token-file", "-", "--data-dir", str(folder), stdin=token
        )
        assert done.returncode == 0, done.stderr
        file = folder / "identity.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        agent = start_agent(vantage="us-1", folder=folder, more=keys)
        eventually(30, lambda: rows(collector) >= 2, "samples in PostgreSQL")
        assert agent.stop() == 0
        recorded = bytes(tap.recorded)
    credential = parse_credential(identity_file.read(file).credential)
    spool = b"".join(path.read_bytes() for path in folder.glob("spool*") if path.is_file())
    places = {
        "agent log": agent.log().encode(),
        "collector log": collector.log().encode(),
        "join": (done.stdout + done.stderr).encode(),
        "spool": spool,
        "database": dump(collector),
        "wire": recorded,
    }
    assert all(len(content) > 50 for content in places.values()), {name: len(c) for name, c in places.items()}
    needles = {
        "key": [API_KEY.encode()],
        "credential": [str(credential).encode(), credential.secret, credential.secret.hex().encode()],
        "token": [token.encode()],
    }
    found = [
        (what, where) for what, forms in needles.items() for where, text in places.items() for f in forms if f in text
    ]
    assert found == []
    assert API_KEY in (tmp_path / "key").read_text()


def test_a_rotated_identity_is_taken_up_while_running(
    collector: Collector, start_agent: StartAgent, keys: Sequence[str], tmp_path: Path
) -> None:
    """The agent joins again beside itself, the old credential ends, and samples go on landing from one process."""
    folder = tmp_path / "vm"
    address = ("join", collector.address, "--data-dir", str(folder))
    told = {"ISOCHRONE_JOIN_TOKEN": collector.call.invite("us-1")}
    assert agent_command(*address, environment=told).returncode == 0
    agent = start_agent(vantage="us-1", folder=folder, more=keys)
    eventually(30, lambda: rows(collector) >= 1, "samples with the first credential")
    token = collector.call.invite("us-1", rotation=True, overlap_us=4 * SECOND_US)
    done = agent_command(*address, "--token", token)
    assert "(replaced)" in done.stdout
    eventually(10, lambda: "identity.renewed" in agent.log(), "the new identity")
    eventually(15, lambda: "expired" in str([one.state for one in collector.call.access()]), "the overlap ends")
    before = rows(collector)
    eventually(30, lambda: rows(collector) > before, "samples with the second credential")
    assert agent.process.poll() is None
    assert agent.stop() == 0


def test_a_revoked_agent_says_why_and_delivers_when_it_is_let_in_again(
    collector: Collector, start_agent: StartAgent, keys: Sequence[str], tmp_path: Path
) -> None:
    """The collector's sentence is in the agent's log while it measures on; once it has joined again all of it lands."""
    address = ("join", collector.address, "--data-dir", str(tmp_path / "vm"), "--token")
    assert agent_command(*address, collector.call.invite("us-1")).returncode == 0
    agent: Agent = start_agent(vantage="us-1", folder=tmp_path / "vm", more=keys)
    eventually(30, lambda: rows(collector) >= 1, "samples in PostgreSQL")
    collector.call.revoke("us-1")
    eventually(20, lambda: "the credential of 'us-1' has been revoked" in agent.log(), "the reason")
    before, probed = rows(collector), probes(agent)
    eventually(10, lambda: probes(agent) > probed, "it measures on")
    assert rows(collector) == before
    assert agent_command(*address, collector.call.invite("us-1")).returncode == 0
    eventually(40, lambda: rows(collector) > before, "samples with the new credential")
    assert agent.stop() == 0
    assert rows(collector) == probes(agent)


def test_joining_says_what_is_wrong(collector: Collector, start_collector: StartCollector, tmp_path: Path) -> None:
    """A wrong or used token, a folder that cannot be used and no collector: a sentence, an exit code, no file."""
    other = start_collector(more=["--tls"])
    token = collector.call.invite("us-1")
    folder = tmp_path / "vm"
    where = ("--data-dir", str(folder))
    (tmp_path / "file").touch()
    cases = [
        (("join", other.address, "--token", token, *where), 1, "nothing has been sent"),
        (("join", "127.0.0.1:1", "--token", token, *where), 3, "no collector answers"),
        (("join", collector.address, *where), 2, "a join token is needed"),
        (("join", collector.address, "--token", "geheim", *where), 2, "must begin with 'isochrone-join-'"),
        (
            ("join", collector.address, "--token", token, "--data-dir", str(tmp_path / "file" / "x")),
            2,
            "cannot be made",
        ),
        (("join", "host:x", "--token", token, *where), 2, "no valid port"),
        (("join", collector.address, "--token", token, "--ca", str(tmp_path / "none"), *where), 2, "cannot read"),
        (("join", collector.address, "--token", token, "--client-key", "k", *where), 2, "must be given together"),
    ]
    for words, exit_code, sentence in cases:
        done = agent_command(*words)
        assert (done.returncode, sentence in done.stderr) == (exit_code, True), (words, done.stderr)
        assert "geheim" not in done.stderr
        assert "Traceback" not in done.stderr
        assert not (folder / "identity.json").exists()
    assert agent_command("join", collector.address, "--token", token, *where).returncode == 0
    again = agent_command("join", collector.address, "--token", token, *where)
    assert (again.returncode, "used already" in again.stderr) == (1, True)
    reader = collector.call.invite("ida", role="reader", region=None)
    wrong = agent_command("join", collector.address, "--token", reader, *where)
    assert (wrong.returncode, "the token was for role reader" in wrong.stderr) == (1, True)


def test_check_speaks_as_whoever_joined(collector: Collector, tmp_path: Path) -> None:
    """`check` calls the collector over TLS with the identity in the data folder, and states hints separately."""
    folder = tmp_path / "vm"
    agent_command("join", collector.address, "--data-dir", str(folder), "--token", collector.call.invite("us-1"))
    done = agent_command("check", "--data-dir", str(folder), "-o", "json")
    document = json.loads(done.stdout)
    findings = {one["check"]: one for one in document["findings"]}
    assert document["schema"] == "isochrone.check/2"
    assert {frozenset(one) for one in findings.values()} == {frozenset(("check", "verdict", "sentence", "hint"))}
    assert findings["collector"]["verdict"] == "ok", findings
    # The plan's target wants a key, and here is none.
    assert (done.returncode, findings["credentials"]["verdict"]) == (1, "fail")
    assert findings["credentials"]["hint"].startswith("write a [")


async def test_an_identity_of_another_is_not_taken_up(collector: Collector, tmp_path: Path) -> None:
    """While an agent runs, only a newer identity of the same vantage replaces its own; junk and another's do not."""
    folder = tmp_path / "vm"
    agent_command("join", collector.address, "--data-dir", str(folder), "--token", collector.call.invite("us-1"))
    settings = load_settings(None, OPTIONS | {"data_dir": str(folder)})
    assert settings.identity is not None
    async with ReconnectingChannel(settings) as connection:
        first = connection.current
        for text in ("junk", identity_file.to_text(settings.identity).replace("us-1", "us-2")):
            settings.identity_path.write_text(text)
            await connection.refresh()
            assert connection.current is first
        identity_file.write(settings.identity_path, settings.identity)
        await connection.refresh()
        assert connection.current is not first


def test_nobody_joins_into_another_users_folder(tmp_path: Path) -> None:
    """What one user left there the agent of another could not read: it is refused before the token is used."""
    if os.geteuid() != 0:
        pytest.skip("giving a folder to another user needs root")
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    token = str(JoinToken(id=1, secret=bytes(SECRET_BYTES), fingerprint=b""))
    done = agent_command("join", "127.0.0.1:1", "--token", token, "--data-dir", str(folder))
    assert (done.returncode, "belongs to another user" in done.stderr) == (2, True), done.stderr
    assert list(folder.iterdir()) == []
