"""Enrolment and authentication: tokens, credentials, roles and certificates, over real sockets and a real database."""

import os
import stat
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fixtures.collector import Caller, Collector, StartCollector, run_command
from fixtures.postgres import rows
from fixtures.simulator import certificate_for
from isochrone_collector.auth.authenticator import Authenticator
from isochrone_collector.auth.enrolment import Enrolment
from isochrone_collector.clock import now_at
from isochrone_collector.errors import RequestError, ResourceExhausted, Unauthenticated
from isochrone_collector.store import access
from isochrone_collector.store.access import CredentialRow
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_common import enrolment, identity_file
from isochrone_common.address import parse_address
from isochrone_common.channel import open_channel
from isochrone_common.credentials import (
    Credential,
    JoinToken,
    format_fingerprint,
    hash_secret,
    parse_credential,
    parse_join_token,
)
from isochrone_common.enrolment import EnrolmentError
from isochrone_common.identity_file import Identity
from isochrone_common.trust import ClientCertificate, Trust, presented_certificate
from isochrone_wire.model import SECOND_US, Batch, Vantage
from isochrone_wire.operations import AccessState, Role
from isochrone_wire.v1 import fleet_pb2, fleet_pb2_grpc
from testdata.waiting import eventually

PLAN = "baseline: us-east-2\ntargets: [{model: a, provider: sim, base_url: http://h}]\n"
US_1 = Vantage(name="us-1", region="us-east-2")
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
PERMISSION_DENIED = grpc.StatusCode.PERMISSION_DENIED

ASKED: dict[str, Callable[[Caller], object]] = {
    "push": lambda call: call.push(Batch(vantage=US_1, epoch=1, seq=0)),
    "fetch": lambda call: call.fetch_plan(vantage=US_1),
    "read": lambda call: call.targets(),
    "vantages": lambda call: call.vantages(),
    "apply": lambda call: call.apply(PLAN, dry_run=True),
    "invite": lambda call: call.invite("mallory"),
    "list": lambda call: call.access(),
    "revoke": lambda call: call.revoke("nobody-at-all"),
}
MAY = {
    Role.VANTAGE: {"push", "fetch"},
    Role.READER: {"read", "vantages"},
    Role.OPERATOR: {"read", "vantages", "apply", "invite", "list", "revoke"},
}


@pytest.fixture(scope="module")
def guarded(shared_guarded_collector: Collector) -> Collector:
    return shared_guarded_collector


@contextmanager
def calling(collector: Collector, who: Identity | None) -> Iterator[Caller]:
    caller = Caller(collector.address, who)
    try:
        yield caller
    finally:
        caller.close()


def joined(collector: Collector, name: str, **more: object) -> Identity:
    token = collector.call.invite(name, **more)
    return enrolment.join(parse_address(collector.address), token, version="test")


def refused(asked: Callable[[], object]) -> grpc.StatusCode | None:
    """Return the status of a refusal, `None` for a successful call."""
    try:
        asked()
    except grpc.RpcError as error:
        return error.code()
    return None


def told(asked: Callable[[], object]) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        asked()
    return str(caught.value.details())


@pytest.mark.parametrize("asked", ASKED)
def test_calls_without_a_valid_credential_are_refused(guarded: Collector, asked: str) -> None:
    """Every call is refused with the reason, alike for a wrong secret and an unknown credential; health is not."""
    operator = identity_file.read(guarded.data_dir / "operator.json")
    known = parse_credential(operator.credential)
    for credential, words in (
        ("", "no usable|no credential|Bearer|must begin with"),
        ("geheim", "must begin with 'isochrone-key-'"),
        (str(Credential(id=77, secret=bytes(32))), "this collector does not know the credential"),
        (str(Credential(id=known.id, secret=bytes(32))), "this collector does not know the credential"),
    ):
        with calling(guarded, replace(operator, credential=credential)) as caller:
            assert refused(lambda caller=caller: ASKED[asked](caller)) is UNAUTHENTICATED  # type: ignore[misc]  # bound now
            sentence = told(lambda caller=caller: ASKED[asked](caller))  # type: ignore[misc]  # as above
            assert any(part in sentence for part in words.split("|")), sentence
            assert "geheim" not in sentence
            status = health_pb2_grpc.HealthStub(caller.channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
            assert status.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("role", list(Role))
def test_each_role_has_its_calls(guarded: Collector, role: Role) -> None:
    """A vantage pushes, a reader queries, an operator queries and operates; everything else is PERMISSION_DENIED."""
    name = "us-1" if role is Role.VANTAGE else f"a-{role}"
    who = joined(guarded, name, role=role.value, region="us-east-2" if role is Role.VANTAGE else None)
    assert (who.role, who.name) == (role, name)
    with calling(guarded, who) as caller:
        statuses = {asked: refused(lambda ask=ask: ask(caller)) for asked, ask in ASKED.items()}  # type: ignore[misc]  # bound now
    expected = {asked for asked, status in statuses.items() if status is not PERMISSION_DENIED}
    assert expected == MAY[role]
    assert UNAUTHENTICATED not in statuses.values()
    if role is Role.OPERATOR:
        guarded.call.revoke("mallory")
    guarded.call.revoke(name)


@pytest.mark.parametrize(("name", "region"), [("de-1", "us-east-2"), ("us-7", "mars")])
def test_a_credential_is_bound_to_its_vantage(guarded: Collector, name: str, region: str) -> None:
    """Another name or another region is refused for pushes and for plans, and nothing of it is recorded."""
    claimed = Vantage(name=name, region=region)
    with calling(guarded, joined(guarded, "us-7" if region == "mars" else "us-8")) as caller:
        for asked in (
            lambda: caller.push(Batch(vantage=claimed, epoch=1, seq=0)),
            lambda: caller.fetch_plan(vantage=claimed),
        ):
            assert refused(asked) is PERMISSION_DENIED
            assert "cannot speak for" in told(asked)
    assert claimed not in [Vantage(name=one.name, region=one.region) for one in guarded.call.vantages().vantages]


def test_forged_and_foreign_tokens_are_refused(guarded: Collector) -> None:
    """Both are refused alike, and the real token stays valid."""
    token, address = guarded.call.invite("jp-1"), parse_address(guarded.address)
    whole = parse_join_token(token)
    for spoilt in (replace(whole, secret=bytes(32)), replace(whole, id=whole.id ^ 1)):
        with pytest.raises(EnrolmentError, match="did not make the join token"):
            enrolment.join(address, str(spoilt), version="test")
    assert enrolment.join(address, token, version="test").region == "us-east-2"


def test_a_token_is_valid_once(guarded: Collector) -> None:
    """Of many simultaneous joins with one token, one gets a credential and the others an error."""
    token, address = guarded.call.invite("br-1"), parse_address(guarded.address)

    def attempt(_: int) -> str:
        try:
            return enrolment.join(address, token, version="test").credential
        except EnrolmentError as error:
            return str(error)

    with ThreadPoolExecutor(6) as crowd:
        answers = list(crowd.map(attempt, range(6)))
    assert sum(answer.startswith("isochrone-key-") for answer in answers) == 1
    assert sum("used" in answer for answer in answers) == 5
    assert [one.state for one in guarded.call.access() if one.name == "br-1"] == [AccessState.ACTIVE]


def test_a_lost_reply_is_repeated(guarded: Collector) -> None:
    """The same client key gets the same credential again, until that is revoked; another key gets nothing."""
    token, key = guarded.call.invite("repeated"), os.urandom(32)
    address = parse_address(guarded.address)
    with open_channel(address, presented_certificate(address).pinned) as channel:
        join = fleet_pb2_grpc.FleetStub(channel).Join
        replies = [join(fleet_pb2.JoinRequest(token=token, client_key=key), timeout=20) for _ in range(3)]
        assert len({reply.credential for reply in replies}) == 1
        requests = [fleet_pb2.JoinRequest(token=token, client_key=other) for other in (os.urandom(32), b"")]
        assert {refused(partial(join, request, timeout=20)) for request in requests} == {UNAUTHENTICATED}
        assert [one.state for one in guarded.call.access() if one.name == "repeated"] == [AccessState.ACTIVE]
        guarded.call.revoke("repeated")
        again = fleet_pb2.JoinRequest(token=token, client_key=key)
        assert refused(partial(join, again, timeout=20)) is UNAUTHENTICATED


@pytest.fixture
def enrolled(database: Database) -> Enrolment:
    """The enrolment of a collector, without the rest of it."""

    async def unchanged() -> None:
        pass

    return Enrolment(
        database=database, join_database=database, clock=now_at, fingerprint=lambda: b"", on_change=unchanged
    )


async def test_guessed_tokens_of_one_address_keep_no_other_from_repeating_a_join(enrolled: Enrolment) -> None:
    """Tokens that are not open are looked up at a rate per address, and a repeated join is one of them."""
    times: dict[str, Any] = {"expires_us": 60 * SECOND_US, "overlap_us": 0, "rotation": False}
    token = (await enrolled.invite(name="us-1", role=Role.VANTAGE, region="us", **times)).token
    join = partial(enrolled.join, client_key=bytes(32), version="test")
    credential = (await join(token, address="192.0.2.1")).credential
    refusals = set()
    for number in range(1, 40):
        with pytest.raises(RequestError) as refused:
            await join(str(JoinToken(id=number, secret=bytes(32), fingerprint=b"")), address="203.0.113.9")
        refusals.add(type(refused.value))
    assert refusals == {Unauthenticated, ResourceExhausted}
    assert (await join(token, address="192.0.2.1")).credential == credential


async def test_the_database_decides_whether_a_credential_is_renewed(enrolled: Enrolment) -> None:
    """A credential that was revoked elsewhere has no successor, and a successor that was revoked is not repeated."""
    invite = partial(enrolled.invite, role=Role.READER, region=None, expires_us=60 * SECOND_US, overlap_us=0)
    for name, ends, reason in (("ida", "own", "is not valid"), ("eve", "successor", "its successor has ended")):
        token = (await invite(name=name, rotation=False)).token
        joined = await enrolled.join(token, client_key=b"", address="192.0.2.1", version="test")
        first = parse_credential(joined.credential)
        successor = parse_credential((await enrolled.renew(first)).credential or "")
        await enrolled.end_credential(first if ends == "own" else successor)
        with pytest.raises(Unauthenticated, match=reason):
            await enrolled.renew(first)


def test_expired_and_revoked_tokens_are_refused(guarded: Collector) -> None:
    """A token ends at its expiry and with the revocation of its name."""
    address = parse_address(guarded.address)
    expired = guarded.call.invite("in-1", expires_us=1)
    with pytest.raises(EnrolmentError, match="has expired"):
        enrolment.join(address, expired, version="test")
    revoked = guarded.call.invite("in-2")
    assert guarded.call.revoke("in-2") == 1
    with pytest.raises(EnrolmentError, match="has been revoked"):
        enrolment.join(address, revoked, version="test")


def test_a_restore_voids_what_the_backup_has_revived(start_collector: StartCollector) -> None:
    """Join tokens, readers and other operators end, vantages only where they are named; the caller keeps his own."""
    collector = start_collector(more=["--tls"])
    address = parse_address(collector.address)
    vantage = enrolment.join(address, collector.call.invite("us-1"), version="test")
    for role in (Role.READER, Role.OPERATOR):
        token = collector.call.invite(f"a-{role}", role=role.value, region=None)
        enrolment.join(address, token, version="test")
    open_token = collector.call.invite("us-2")
    identity = ["--identity", str(collector.data_dir / "operator.json")]
    done = run_command("restored", "--yes", *identity)
    assert done.returncode == 0, done.stderr
    assert "revoked: 1 join tokens, 2 credentials" in done.stdout
    assert "us-1" in done.stdout
    with pytest.raises(EnrolmentError, match="has been revoked"):
        enrolment.join(address, open_token, version="test")
    states = {one.name: one.state for one in collector.call.access() if not one.name.startswith("operator@")}
    revoked = {"a-reader": AccessState.REVOKED, "a-operator": AccessState.REVOKED}
    assert states == {"us-1": AccessState.ACTIVE} | revoked
    with calling(collector, vantage) as caller:
        assert refused(lambda: caller.fetch_plan(vantage=US_1)) is None
        assert collector.call.record_restore(vantages=True).credentials == 1
        assert refused(lambda: caller.fetch_plan(vantage=US_1)) is UNAUTHENTICATED
    done = run_command("audit", "--action", "database.restored", *identity)
    assert done.stdout.count("database.restored") == 2


@pytest.mark.parametrize("text", ["", "isochrone-join-", "geheim", "isochrone-key-AAAA"])
def test_a_malformed_token_is_not_sent(guarded: Collector, text: str) -> None:
    """A malformed token is refused before any connection, and not quoted."""
    with pytest.raises(EnrolmentError, match="join token") as caught:
        enrolment.join(parse_address("127.0.0.1:1"), text, version="test")
    assert not caught.value.unreachable
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "a b"},
        {"name": "x" * 64},
        {"region": "a b"},
        {"region": None},
        {"role": "king"},
        {"role": "reader"},
        {"expires_us": 0},
        {"expires_us": 31 * 86_400 * SECOND_US},
        {"overlap_us": -1},
        {"rotation": True},
    ],
)
def test_invalid_invitations_are_refused(guarded: Collector, fields: dict[str, Any]) -> None:
    """An invalid invitation is refused with its reason, and creates nothing."""
    before, status = len(guarded.call.access()), grpc.StatusCode
    code = refused(lambda: guarded.call.invite(**({"name": "cn-1"} | fields)))
    assert code is (status.NOT_FOUND if "rotation" in fields else status.INVALID_ARGUMENT)
    assert len(guarded.call.access()) == before


def test_a_name_in_use_is_refused(guarded: Collector) -> None:
    """A name that is invited or has joined cannot be invited; after a revocation it can."""
    guarded.call.invite("kr-1")
    assert "invited already" in told(lambda: guarded.call.invite("kr-1"))
    guarded.call.revoke("kr-1")
    joined(guarded, "kr-1")
    assert "joined already" in told(lambda: guarded.call.invite("kr-1"))
    assert guarded.call.revoke("kr-1") == 1
    with calling(guarded, joined(guarded, "kr-1")) as caller:
        caller.push(Batch(vantage=Vantage(name="kr-1", region="us-east-2"), epoch=1, seq=0))
    guarded.call.revoke("kr-1")
    assert "keeps its region" in told(lambda: guarded.call.invite("kr-1", region="mars"))


def test_a_revocation_is_effective_everywhere_within_seconds(start_collector: StartCollector) -> None:
    """A vantage that joined at one collector can call another at once, and a revocation there is effective at both."""
    first = start_collector(more=["--tls"])
    second = start_collector(database_url=first.database_url, more=["--tls"])
    here = joined(first, "us-1")
    there = replace(here, trust=identity_file.read(second.data_dir / "operator.json").trust)
    with calling(first, here) as near, calling(second, there) as far:
        assert refused(lambda: ASKED["push"](far)) is None
        assert refused(lambda: ASKED["push"](near)) is None
        second.call.revoke("us-1")
        assert told(lambda: ASKED["push"](far)) == "the credential of 'us-1' has been revoked"
        eventually(5, lambda: refused(lambda: ASKED["push"](near)) is UNAUTHENTICATED, "the first one knows")


def test_a_rotation_is_effective_everywhere_within_seconds(start_collector: StartCollector) -> None:
    """A credential that is replaced at another collector ends here too, although it is in the copy."""
    one, other = start_collector(more=["--tls"]), start_collector(more=["--tls"])
    old = joined(one, "us-1")
    there = replace(old, trust=identity_file.read(other.data_dir / "operator.json").trust)
    with calling(other, there) as caller:
        caller.push(Batch(vantage=US_1, epoch=1, seq=0))
        new = joined(one, "us-1", region=None, role="", rotation=True)
        eventually(10, lambda: refused(lambda: caller.fetch_plan(vantage=US_1)) is UNAUTHENTICATED, "the old one ends")
        assert "a newer one is in use" in told(lambda: caller.fetch_plan(vantage=US_1))
    with calling(one, new) as caller:
        assert refused(lambda: caller.fetch_plan(vantage=US_1)) is None


def test_credentials_overlap_while_they_are_rotated(guarded: Collector) -> None:
    """The old credential stays valid for the overlap after the new one is used, and is then refused with the reason."""
    old = joined(guarded, "us-5")
    vantage = Vantage(name="us-5", region="us-east-2")

    def push(call: Caller) -> object:
        return call.push(Batch(vantage=vantage, epoch=1, seq=0))

    with calling(guarded, old) as caller:
        token = guarded.call.invite("us-5", rotation=True, overlap_us=2 * SECOND_US)
        assert refused(lambda: push(caller)) is None
        new = enrolment.join(parse_address(guarded.address), token, version="test")
        assert (new.name, new.region) == ("us-5", "us-east-2")
        with calling(guarded, new) as renewed:
            assert refused(lambda: push(renewed)) is None
            assert refused(lambda: push(caller)) is None
            eventually(10, lambda: refused(lambda: push(caller)) is UNAUTHENTICATED, "the overlap ends")
            assert "has expired" in told(lambda: push(caller))
            assert refused(lambda: push(renewed)) is None


def test_a_certificate_unlike_the_tokens_is_an_early_error(guarded: Collector, start_collector: StartCollector) -> None:
    """Both fingerprints are in the error, and neither collector has received anything."""
    other = start_collector(more=["--tls"])
    token = guarded.call.invite("us-6")
    with pytest.raises(EnrolmentError, match="nothing has been sent") as caught:
        enrolment.join(parse_address(other.address), token, version="test")
    for collector in (guarded, other):
        fingerprint = presented_certificate(parse_address(collector.address)).fingerprint
        assert format_fingerprint(fingerprint) in str(caught.value)
    assert "request" not in other.log()
    assert [one.state for one in guarded.call.access() if one.name == "us-6"] == [AccessState.INVITED]


def test_a_token_is_never_sent_in_plain_text(guarded: Collector, start_collector: StartCollector) -> None:
    """A token of a TLS collector is not sent in plain text, nor one of a plain collector to another machine."""
    plain = start_collector()
    with pytest.raises(EnrolmentError, match="does not speak TLS"):
        enrolment.join(parse_address(plain.address), guarded.call.invite("us-9"), version="test")
    bare = plain.call.invite("us-9")
    with pytest.raises(EnrolmentError, match="another machine"):
        enrolment.join(parse_address("192.0.2.1:4600"), bare, version="test")
    with calling(guarded, None) as caller:
        assert refused(caller.targets) is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(EnrolmentError) as caught:
        enrolment.join(parse_address("127.0.0.1:1"), guarded.call.invite("us-10"), version="test")
    assert caught.value.unreachable


def test_plain_text_on_loopback_needs_no_credential(start_collector: StartCollector) -> None:
    """Every process is an operator, joining works too, and no operator's file is written."""
    plain = start_collector()
    who = joined(plain, "us-1")
    assert not who.trust.tls
    for identity in (None, who):
        caller = Caller(plain.address, identity, http=plain.http_address)
        assert {name: refused(lambda ask=ask, c=caller: ask(c)) for name, ask in ASKED.items() if name != "invite"} == {  # type: ignore[misc]  # bound now
            name: grpc.StatusCode.NOT_FOUND if name == "revoke" else None for name in ASKED if name != "invite"
        }
        caller.close()
    assert not (plain.data_dir / "operator.json").exists()


def test_the_operators_file(start_collector: StartCollector) -> None:
    """Only its owner can read it; it survives a restart, and is rewritten when its credential was revoked."""
    first = start_collector(more=["--tls"])
    file = first.data_dir / "operator.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((first.data_dir / "tls" / "key.pem").stat().st_mode) == 0o600
    kept = identity_file.read(file)
    first.stop()
    again = start_collector(port=first.port, database_url=first.database_url, data_dir=first.data_dir, more=["--tls"])
    assert replace(identity_file.read(file), http_port=kept.http_port) == kept
    again.call.revoke(kept.name)
    assert told(again.call.access) == f"the credential of {kept.name!r} has been revoked"
    again.stop()
    third = start_collector(port=first.port, database_url=first.database_url, data_dir=first.data_dir, more=["--tls"])
    renewed = identity_file.read(file)
    assert renewed.credential != kept.credential
    assert renewed.trust == kept.trust
    assert third.call.access()


def test_new_certificate_files_are_loaded_while_serving(start_collector: StartCollector, tmp_path: Path) -> None:
    """New connections get the new certificate, others go on; half a pair changes nothing; operator.json follows."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old, new = certificate_for(tmp_path / "old", "DNS:a.example"), certificate_for(tmp_path / "new", "DNS:*.b.example")
    chain, key = tmp_path / "c.pem", tmp_path / "k.pem"
    chain.write_bytes(old.read_bytes())
    key.write_bytes((tmp_path / "old" / "key.pem").read_bytes())
    collector = start_collector(more=["--certificate", str(chain), "--key", str(key)])
    address = parse_address(collector.address)
    before = presented_certificate(address)
    assert before.name == "a.example"
    assert collector.call.access()

    chain.write_bytes(new.read_bytes())
    eventually(10, lambda: "certificate.unusable" in collector.log(), "half of the new pair is noticed")
    assert presented_certificate(address) == before
    key.write_bytes((tmp_path / "new" / "key.pem").read_bytes())
    os.utime(key)
    eventually(10, lambda: presented_certificate(address) != before, "the new certificate is presented")
    after = presented_certificate(address)
    assert after.name == "collector.b.example"
    assert collector.call.access()
    eventually(
        10, lambda: identity_file.read(collector.data_dir / "operator.json").trust == after.pinned, "the file follows"
    )
    with calling(collector, identity_file.read(collector.data_dir / "operator.json")) as caller:
        assert caller.access()
    token = parse_join_token(collector.call.invite("us-1"))
    assert token.fingerprint == after.fingerprint


def test_clients_with_authorities_accept_renewed_certificates(start_collector: StartCollector, tmp_path: Path) -> None:
    """A client that joined with its own authorities trusts those from then on, and the name in the address."""
    chain = certificate_for(tmp_path, "IP:127.0.0.1")
    collector = start_collector(more=["--certificate", str(chain), "--key", str(tmp_path / "key.pem")])
    token = collector.call.invite("us-1")
    trusted = Trust(roots=chain.read_text())
    who = enrolment.join(parse_address(collector.address), token, version="test", authorities=trusted)
    assert who.trust == trusted
    with calling(collector, who) as caller:
        assert refused(lambda: ASKED["fetch"](caller)) is None


def test_with_client_authorities_a_certificate_is_required_too(start_collector: StartCollector, tmp_path: Path) -> None:
    """Under mTLS every call requires a certificate of those authorities, even with a valid token."""
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    ours, theirs = (certificate_for(tmp_path / name, f"DNS:{name}") for name in ("ours", "theirs"))
    good, bad = (ClientCertificate(certificate=path, key=path.with_name("key.pem")) for path in (ours, theirs))
    collector = start_collector(more=["--tls", "--client-ca", str(ours)])
    assert refused(collector.call.access) is grpc.StatusCode.UNAVAILABLE
    operator = identity_file.read(collector.data_dir / "operator.json")
    with calling(collector, replace(operator, trust=replace(operator.trust, client=good))) as caller:
        token = caller.invite("us-1")
        for client in (None, bad):
            with pytest.raises(EnrolmentError):
                enrolment.join(parse_address(collector.address), token, version="test", client=client)
        who = enrolment.join(parse_address(collector.address), token, version="test", client=good)
    with calling(collector, who) as caller:
        assert refused(lambda: ASKED["push"](caller)) is None


def test_files_that_are_no_pair_are_an_error(tmp_path: Path, database_url: str) -> None:
    """A key of another certificate, or a file without PEM, ends the start with an error and no traceback."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    chain = certificate_for(tmp_path / "a", "DNS:a")
    certificate_for(tmp_path / "b", "DNS:b")
    (tmp_path / "junk").write_text("junk")
    for key, words in (
        (tmp_path / "b" / "key.pem", "is not the key of"),
        (tmp_path / "junk", "cannot be used"),
        (tmp_path / "none", "cannot be read"),
    ):
        done = run_command(
            *("serve", "--listen", "127.0.0.1:0", "--database-url", database_url, "--data-dir", str(tmp_path / "data")),
            *("--certificate", str(chain), "--key", str(key)),
        )
        assert done.returncode == 1
        assert words in done.stderr
        assert "Traceback" not in done.stderr


MANY = 10_000
NOW_AT = 1_800_000_000 * SECOND_US
OURS = Credential(id=MANY + 1, secret=bytes(32))
METADATA = [("authorization", f"Bearer {OURS}")]
FILL = """
INSERT INTO credential (id, name, role, region, secret_hash, created_at)
SELECT n, 'v-' || n, 'vantage', 'r', sha256(n::text::bytea), now() FROM generate_series(1, %s) AS n
"""


class Clock:
    def __init__(self) -> None:
        self.at = NOW_AT

    def __call__(self) -> int:
        return self.at


async def granted(database: Database) -> None:
    async with database.connection() as connection:
        row = CredentialRow(
            id=OURS.id,
            name="ops",
            role=Role.OPERATOR,
            region=None,
            secret_hash=hash_secret(OURS.secret),
            created_at=NOW_AT,
        )
        await access.issue(connection, row)


async def authenticated(authenticator: Authenticator) -> bool:
    try:
        await authenticator.authenticate(METADATA, [Role.OPERATOR])
    except Unauthenticated:
        return False
    return True


async def cpu_of_refresh(authenticator: Authenticator) -> float:
    began = time.process_time()
    await authenticator.refresh()
    return time.process_time() - began


async def test_a_refresh_without_changes_is_cheap(database: Database, database_url: str) -> None:
    """With ten thousand credentials, the refresh of every second costs a small part of reading them all."""
    rows(database_url, FILL, [MANY])
    authenticator = Authenticator(database=database, clock=Clock(), required=True)
    reading = await cpu_of_refresh(authenticator)
    idle = min([await cpu_of_refresh(authenticator) for _ in range(5)])
    assert idle < reading / 5, (idle, reading)


async def test_a_revocation_is_seen_at_the_next_refresh(database: Database) -> None:
    """A revocation by another collector is found in the database."""
    await granted(database)
    authenticator = Authenticator(database=database, clock=Clock(), required=True)
    await authenticator.refresh()
    assert await authenticated(authenticator)
    async with database.connection() as connection:
        await access.revoke_credential(connection, OURS.id, revoked_at=NOW_AT + 1)
    await authenticator.refresh()
    assert not await authenticated(authenticator)


async def test_a_row_changed_by_hand_is_seen_within_a_minute(database: Database, database_url: str) -> None:
    """The full read of every minute finds a change that leaves the counts as they were, also on a clock set back."""
    for later in (61 * SECOND_US, -SECOND_US):
        rows(database_url, "DELETE FROM credential")
        await granted(database)
        clock = Clock()
        authenticator = Authenticator(database=database, clock=clock, required=True)
        await authenticator.refresh()
        rows(database_url, "UPDATE credential SET secret_hash = sha256('another')")
        await authenticator.refresh()
        assert await authenticated(authenticator)
        clock.at += later
        await authenticator.refresh()
        assert not await authenticated(authenticator)


async def test_use_is_recorded_once_a_minute(database: Database, database_url: str) -> None:
    """The use of a credential is recorded once a minute, however often it is used, without a full read."""
    await granted(database)
    clock = Clock()
    authenticator = Authenticator(database=database, clock=clock, required=True)
    written: list[int] = []
    for seconds in range(0, 125, 5):
        clock.at = NOW_AT + seconds * SECOND_US
        assert await authenticated(authenticator)
        await authenticator.refresh()
        with psycopg.connect(database_url) as connection:
            row = connection.execute("SELECT extract(epoch FROM last_used_at)::bigint FROM credential").fetchone()
        assert row is not None
        written.append(row[0] - NOW_AT // SECOND_US)
    assert sorted(set(written)) == [0, 65]


async def test_a_successor_that_appears_during_a_refresh_ends_its_predecessor(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A successor that is issued and used while all credentials are read has its first use recorded all the same."""
    successor, read = Credential(id=MANY + 2, secret=bytes(32)), access.credentials
    await granted(database)
    authenticator = Authenticator(database=database, clock=Clock(), required=True)

    async def renewed_meanwhile(connection: Connection) -> list[CredentialRow]:
        rows = await read(connection)
        async with database.connection() as other:
            await access.issue(other, replace(rows[0], id=successor.id, renews=OURS.id))
        await authenticator.authenticate([("authorization", f"Bearer {successor}")], [Role.OPERATOR])
        return rows

    monkeypatch.setattr(access, "credentials", renewed_meanwhile)
    await authenticator.refresh()
    with psycopg.connect(database_url) as connection:
        ends = "SELECT extract(epoch FROM expires_at)::bigint FROM credential ORDER BY id"
        assert connection.execute(ends).fetchall() == [(NOW_AT // SECOND_US + 600,), (None,)]
