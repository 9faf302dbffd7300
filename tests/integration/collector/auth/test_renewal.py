"""Lifetimes of credentials, their renewal and the collector's next certificate, with real collectors, agents and
commands.
"""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import grpc
import psycopg
import pytest

from fixtures.agent import Agent, StartAgent
from fixtures.collector import Caller, Collector, StartCollector, run_command
from isochrone_common import enrolment, identity_file
from isochrone_common.address import parse_address
from isochrone_common.credentials import fingerprint_of, format_fingerprint
from isochrone_common.identity_file import Identity
from isochrone_common.trust import presented_certificate
from isochrone_wire.model import DAY_US, SECOND_US, Batch, Vantage
from isochrone_wire.operations import Access
from isochrone_wire.v1 import fleet_pb2
from testdata import preforked
from testdata.waiting import eventually

PLAN = "baseline: us-east-2\nevery: 1s\ntargets: [{model: a, provider: sim, base_url: http://h.invalid}]\n"
US_1 = Vantage(name="us-1", region="us-east-2")
LOGGED = ["--log-format", "json"]


@pytest.fixture
def collector(start_collector: StartCollector) -> Collector:
    return start_collector(more=["--tls"])


def join(collector: Collector, name: str, **more: object) -> Identity:
    return enrolment.join(parse_address(collector.address), collector.call.invite(name, **more), version="test")


def push(collector: Collector, identity: Identity) -> str:
    """Push a heartbeat as us-1; return OK, or the reason of the refusal."""
    caller = Caller(collector.address, identity)
    try:
        caller.push(Batch(vantage=US_1, epoch=1, seq=0))
    except grpc.RpcError as error:
        return str(error.details())
    else:
        return "OK"
    finally:
        caller.close()


def renew(collector: Collector, identity: Identity) -> Identity:
    """Return the identity with the successor of its credential."""
    caller = Caller(collector.address, identity)
    try:
        answer = caller.renew()
    finally:
        caller.close()
    assert answer.credential is not None
    return replace(identity, credential=answer.credential, expires_at=answer.expires_at, renew_at=answer.renew_at)


def credentials(collector: Collector, name: str) -> list[Access]:
    """Return the credentials of a name, oldest first."""
    found = [one for one in collector.call.access() if one.name == name]
    return sorted(found, key=lambda one: one.created_at)


def change(collector: Collector, statement: str) -> None:
    """Change credentials by hand; the collector reloads all when another one has been made."""
    with psycopg.connect(collector.database_url) as connection:
        connection.execute(statement)
        made = "INSERT INTO credential VALUES ((random() * 1e9)::bigint, 'by hand', 'reader', NULL, '', now(), now())"
        connection.execute(made)


def end_first(collector: Collector, identity: Identity) -> None:
    """Let the oldest credential of a name expire, and wait until the collector refuses it."""
    oldest = f"(SELECT id FROM credential WHERE name = '{identity.name}' ORDER BY created_at LIMIT 1)"
    change(collector, f"UPDATE credential SET expires_at = now() WHERE id = {oldest}")
    eventually(5, lambda: "has expired, because a newer one is in use" in push(collector, identity), "its end")


def age(path: Path) -> None:
    identity_file.write(path, replace(identity_file.read(path), renew_at=1))


def log_of(agent: Agent, event: str) -> list[dict[str, str]]:
    """Return the log lines of an agent with this event."""
    lines = (json.loads(line) for line in agent.log().splitlines() if line.startswith("{"))
    return [line for line in lines if line["event"] == event]


def test_every_role_has_a_lifetime(collector: Collector) -> None:
    """365 days for agents and readers, 90 for operators, another one or none on request; `serve`'s own has none."""
    asked: dict[str, tuple[dict[str, object], int | None]] = {
        "us-1": ({}, 365),
        "ida": ({"role": "reader", "region": None}, 365),
        "ops": ({"role": "operator", "region": None}, 90),
        "ci": ({"role": "reader", "region": None, "lifetime_us": 3 * DAY_US}, 3),
        "old": ({"role": "reader", "region": None, "lifetime_us": 0}, None),
    }
    for name, (more, days) in asked.items():
        identity = join(collector, name, **more)
        (listed,) = credentials(collector, name)
        assert (listed.expires_at, listed.renew_at) == (identity.expires_at, identity.renew_at)
        if days is None:
            assert identity.expires_at is None
        else:
            assert listed.expires_at == listed.created_at + days * DAY_US
            assert identity.renew_at == listed.created_at + days * DAY_US * 2 // 3
    operator = identity_file.read(collector.data_dir / "operator.json")
    assert operator.expires_at is None


def test_the_old_credential_is_valid_until_the_new_one_is_used(collector: Collector) -> None:
    """A lost reply can be repeated; the earlier credential ends minutes after the first use of its successor."""
    first = join(collector, "us-1")
    second = renew(collector, first)
    assert renew(collector, first) == second
    assert len(credentials(collector, "us-1")) == 2
    assert push(collector, first) == "OK"
    old, new = credentials(collector, "us-1")
    assert old.expires_at == first.expires_at
    assert new.expires_at == second.expires_at == new.created_at + 365 * DAY_US
    assert push(collector, second) == "OK"
    eventually(5, lambda: credentials(collector, "us-1")[0].expires_at != old.expires_at, "the end of the first")
    ends_at = credentials(collector, "us-1")[0].expires_at or 0
    assert 500 * SECOND_US < ends_at - new.created_at < 700 * SECOND_US
    assert push(collector, first) == "OK"
    end_first(collector, first)
    assert push(collector, second) == "OK"
    actions = json.loads(_operate(collector, "audit", "--action", "access.renew", "-o", "json"))["entries"]
    assert [entry["target"] for entry in actions] == ["vantage us-1"]


def test_a_credential_is_renewed_behind_a_balancer(collector: Collector, start_collector: StartCollector) -> None:
    """Any collector repeats a renewal whose reply was lost, and gives the earlier credential one end."""
    other = beside(collector, start_collector)
    first = join(collector, "us-1")
    assert push(other, first) == "OK"
    second = renew(collector, first)
    assert renew(other, first) == second
    assert push(other, first) == push(other, second) == push(collector, first) == "OK"

    def ends() -> int | None:
        return credentials(collector, "us-1")[0].expires_at

    eventually(5, lambda: ends() != first.expires_at, "the end of the first")
    ends_at = ends()
    third = renew(other, second)
    assert push(collector, second) == push(collector, third) == push(other, third) == "OK"
    eventually(5, lambda: credentials(collector, "us-1")[1].expires_at != second.expires_at, "the end of the second")
    assert ends() == ends_at
    end_first(collector, first)
    eventually(5, lambda: "has expired" in push(other, first), "its end at the other collector")
    with pytest.raises(grpc.RpcError, match="has expired"):
        renew(other, first)
    assert push(other, third) == "OK"


def beside(collector: Collector, start_collector: StartCollector) -> Collector:
    """Start another collector on the database and the certificate files of the first one."""
    files = collector.data_dir / "tls"
    shared = ["--tls", "--certificate", str(files / "certificate.pem"), "--key", str(files / "key.pem")]
    return start_collector(database_url=collector.database_url, more=shared)


def announced(collector: Collector, identity: Identity) -> list[bytes]:
    caller = Caller(collector.address, identity)
    try:
        response = caller.fleet.Renew(fleet_pb2.RenewRequest(), timeout=10)
    finally:
        caller.close()
    return [fingerprint_of(certificate) for certificate in response.certificates]


def move_back(collector: Collector, *, days: int) -> None:
    [access] = credentials(collector, "us-1")
    assert access.expires_at is not None
    created_at, expires_at = ((at - days * DAY_US) / SECOND_US for at in (access.created_at, access.expires_at))
    change(
        collector,
        f"UPDATE credential SET created_at = to_timestamp({created_at}), expires_at = to_timestamp({expires_at}) "
        "WHERE expires_at IS NOT NULL",
    )


def test_a_credential_expires_and_is_reported_before(collector: Collector) -> None:
    """It is listed as expiring, counted in a metric and by doctor, and refused with the reason after its end."""
    identity = join(collector, "us-1", lifetime_us=40 * DAY_US)
    assert push(collector, identity) == "OK"
    assert collector.scrape()["isochrone_credentials_expiring"] == 0
    move_back(collector, days=39)
    assert "us-1  vantage  us-east-2  expiring" in _operate(collector, "vantage", "list")
    judged = findings(collector)["credentials"]
    assert (judged["verdict"], "us-1 in" in judged["sentence"]) == ("warn", True)
    eventually(5, lambda: collector.scrape()["isochrone_credentials_expiring"] == 1, "the metric")
    assert push(collector, identity) == "OK"
    move_back(collector, days=1)
    eventually(5, lambda: "has expired, at the end of its lifetime; join again" in push(collector, identity), "the end")


def test_a_revoked_credential_is_not_renewed(collector: Collector) -> None:
    """Revocation ends the successor too, and a credential without a lifetime has none."""
    first = join(collector, "us-1")
    second = renew(collector, first)
    collector.call.revoke("us-1")
    for identity in (first, second):
        assert "has been revoked" in push(collector, identity)
        with pytest.raises(grpc.RpcError, match="has been revoked"):
            renew(collector, identity)
    with pytest.raises(grpc.RpcError, match="has no lifetime"):
        renew(collector, join(collector, "us-3", lifetime_us=0))


def test_an_agent_renews_its_credential(collector: Collector, start_agent: StartAgent, tmp_path: Path) -> None:
    """A running agent stores the successor and uses it, also after the end of the first credential."""
    path = tmp_path / "vm" / "identity.json"
    identity_file.write(path, join(collector, "us-1"))
    age(path)
    first = identity_file.read(path)
    agent = start_agent(vantage="us-1", folder=path.parent, more=LOGGED)
    eventually(20, lambda: identity_file.read(path).credential != first.credential, "a successor in the identity file")
    eventually(20, lambda: "identity.renewed" in agent.log(), "the channel with the successor")
    eventually(40, lambda: credentials(collector, "us-1")[1].last_used_at is not None, "use of the successor")
    end_first(collector, first)
    assert push(collector, identity_file.read(path)) == "OK"
    assert "has expired" not in agent.log()
    assert agent.stop() == 0


def test_a_command_renews_the_identity_of_a_reader(collector: Collector, tmp_path: Path) -> None:
    """Any command does, and the next one uses the successor."""
    path = tmp_path / "ida.json"
    identity_file.write(path, join(collector, "ida", role="reader", region=None))
    first = identity_file.read(path)
    assert _ask(path).returncode == 0
    assert identity_file.read(path) == first
    age(path)
    assert _ask(path).returncode == 0
    second = identity_file.read(path)
    assert second.credential != first.credential
    assert _ask(path).returncode == 0
    eventually(5, lambda: credentials(collector, "ida")[1].last_used_at is not None, "use of the successor")
    operator = tmp_path / "ops.json"
    identity_file.write(operator, join(collector, "ops", role="operator", region=None))
    age(operator)
    before = identity_file.read(operator).credential
    done = run_command("vantage", "list", "--identity", str(operator))
    assert done.returncode == 0, done.stderr
    assert identity_file.read(operator).credential != before


def test_the_certificate_is_rotated_under_a_running_agent(
    collector: Collector, start_agent: StartAgent, start_collector: StartCollector, tmp_path: Path
) -> None:
    """Agent and reader pin the announced certificate and go on after the switch; one that was away must join again."""
    path, reader, away = (tmp_path / name / "identity.json" for name in ("vm", "reader", "away"))
    identity_file.write(path, join(collector, "us-1"))
    identity_file.write(reader, join(collector, "ida", role="reader", region=None))
    identity_file.write(away, join(collector, "us-2"))
    collector.call.apply(PLAN)
    first = presented_certificate(parse_address(collector.address)).fingerprint
    agent = start_agent(vantage="us-1", folder=path.parent, more=LOGGED)
    eventually(20, lambda: bool(log_of(agent, "batch.stored")), "samples")

    assert "the collector presents it from" in _rotate(collector)
    eventually(40, lambda: len(_pins(path)) == 2, "the agent's second pin")
    assert _pins(path)[0] == first
    eventually(5, lambda: len(_pins(collector.data_dir / "operator.json")) == 2, "the operator's second pin")
    os.utime(reader, (1, 1))
    assert _ask(reader).returncode == 0
    assert _pins(reader) == _pins(path)

    assert "(announced before)" in _rotate(collector, "--now")
    address = parse_address(collector.address)
    eventually(10, lambda: presented_certificate(address).fingerprint == _pins(path)[-1] != first, "the switch")
    eventually(40, lambda: len(_pins(path)) == 1, "the agent forgets the old pin")
    assert agent.stop() == 0
    again = start_agent(vantage="us-1", folder=path.parent, more=LOGGED)
    eventually(20, lambda: bool(log_of(again, "batch.stored")), "samples after the switch")
    assert "CERTIFICATE_VERIFY_FAILED" not in agent.log() + again.log()
    assert _ask(reader).returncode == 0
    assert push(collector, identity_file.read(path)) == "OK"

    late = start_agent(vantage="us-2", folder=away.parent, more=LOGGED)
    eventually(20, lambda: "join again" in str(log_of(late, "push.failed")), "the hint")
    refused = _ask(away)
    assert "its certificate differs" in refused.stderr


def test_collectors_with_the_same_files_announce_alike(collector: Collector, start_collector: StartCollector) -> None:
    """Behind a balancer an agent pins the next certificate, and both switch to it; doctor shows it and the instant."""
    other = beside(collector, start_collector)
    identity = join(other, "us-1")
    assert "rotation" not in findings(collector)
    _rotate(collector)
    eventually(10, lambda: len(announced(other, identity)) == 2, "the announcement of the other collector")
    first, coming = announced(other, identity)
    eventually(10, lambda: announced(collector, identity) == [first, coming], "that of the first one")
    for one, more in ((collector, " and presented from 20"), (other, "")):
        found = findings(one)["rotation"]
        assert found["verdict"] == "ok"
        assert found["sentence"].startswith(f"the next certificate, {format_fingerprint(coming)}, is announced{more}")
    _rotate(collector, "--now")
    for one in (collector, other):
        address = parse_address(one.address)
        eventually(10, lambda: presented_certificate(address).fingerprint == coming, "the switch")  # noqa: B023  # at once
    pinned = replace(identity, trust=replace(identity.trust, roots=presented_certificate(address).certificate))
    eventually(10, lambda: announced(other, pinned) == announced(collector, pinned) == [coming], "one certificate")


def test_a_switch_that_was_interrupted_is_completed(start_collector: StartCollector, tmp_path: Path) -> None:
    """A collector that was killed between the two files of the new pair starts with it."""
    folder = tmp_path / "data"
    collector = start_collector(data_dir=folder, more=["--tls"])
    _rotate(collector)
    tls = folder / "tls"
    coming = fingerprint_of((tls / "next-certificate.pem").read_text())
    collector.stop()
    shutil.move(tls / "next-key.pem", tls / "key.pem")
    again = start_collector(data_dir=folder, more=["--tls"])
    assert presented_certificate(parse_address(again.address)).fingerprint == coming
    assert again.call.access()


def test_a_foreign_certificate_is_not_rotated(tmp_path: Path) -> None:
    """Without a pair that `serve` made, the command fails and writes nothing."""
    done = run_command("certificate", "rotate", "--data-dir", str(tmp_path))
    assert (done.returncode, "cannot rotate" in done.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


def findings(collector: Collector) -> dict[str, dict[str, str]]:
    where = ("--database-url", collector.database_url, "--data-dir", str(collector.data_dir))
    done = run_command("doctor", *where, "--identity", str(collector.data_dir / "operator.json"), "-o", "json")
    return {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}


def _rotate(collector: Collector, *more: str) -> str:
    done = run_command("certificate", "rotate", "--data-dir", str(collector.data_dir), *more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _pins(path: Path) -> list[bytes]:
    return [fingerprint_of(pin) for pin in identity_file.read(path).trust.pins]


def _operate(collector: Collector, *words: str) -> str:
    done = run_command(*words, "--identity", str(collector.data_dir / "operator.json"))
    assert done.returncode == 0, done.stderr
    return done.stdout


def _ask(path: Path) -> preforked.Completed:
    return preforked.run("isochrone_client", "vantages", "--identity", str(path))
