"""The addresses on which the collector serves: TLS by default, a rate limit for joining, and the Unix socket."""

import time
from collections import Counter
from pathlib import Path
from stat import S_IMODE

import grpc
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from fixtures.collector import Caller, Collector, StartCollector, run_command
from fixtures.postgres import address_of, rows
from isochrone_client.client import ReadClient
from isochrone_collector.cli.operator_client import OperatorClient
from isochrone_collector.errors import CollectorUnreachable
from isochrone_common import enrolment, identity_file
from isochrone_common.address import Address
from isochrone_common.channel import open_channel
from isochrone_common.credentials import JoinToken, format_fingerprint
from isochrone_common.enrolment import EnrolmentError
from isochrone_common.trust import PLAIN, Trust, presented_certificate
from isochrone_wire.model import Batch, Vantage
from isochrone_wire.operations import AuditTrail
from isochrone_wire.v1 import fleet_pb2, fleet_pb2_grpc
from testdata.waiting import eventually

US_1 = Vantage(name="us-1", region="us-east-2")
MANY = 400
AT_ONCE = 20


@pytest.fixture
def exposed(start_collector: StartCollector) -> Collector:
    """A collector on every address of this machine, without further options."""
    return start_collector(more=["--listen", "0.0.0.0:0"])


def test_tls_is_the_default_on_a_reachable_address(exposed: Collector) -> None:
    """Without --tls a certificate is made; a vantage that joins over 127.0.0.1 compares it with the token's."""
    address = Address("127.0.0.1", exposed.port)
    shown = presented_certificate(address)
    assert format_fingerprint(shown.fingerprint) in exposed.log()
    assert identity_file.read(exposed.data_dir / "operator.json").address == address
    who = enrolment.join(address, exposed.call.invite("us-1"), version="test")
    assert who.trust.roots == shown.certificate
    caller = Caller(str(address), who)
    caller.push(Batch(vantage=US_1, epoch=1, seq=0))
    caller.close()
    assert [one.name for one in exposed.call.vantages().vantages] == ["us-1"]


def test_plain_text_gets_no_answer_there(exposed: Collector) -> None:
    """Plain text is refused on loopback too, and the client refuses plain text to another machine's address."""
    caller = Caller(f"127.0.0.1:{exposed.port}")
    with pytest.raises(grpc.RpcError) as caught:
        caller.access()
    caller.close()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(ValueError, match="plain text is allowed on loopback only"):
        open_channel(Address("192.0.2.1", exposed.port), PLAIN)


def test_a_local_connection_is_no_operator_there(exposed: Collector) -> None:
    """A connection from this machine needs a credential where others can connect too."""
    shown = presented_certificate(Address("127.0.0.1", exposed.port))
    with open_channel(Address("127.0.0.1", exposed.port), shown.pinned) as channel:
        assert [code for code, _ in _joins(channel, ["no token"])] == [grpc.StatusCode.UNAUTHENTICATED]
    stranger = identity_file.read(exposed.data_dir / "operator.json")
    trust = Trust(roots=stranger.trust.roots, server_name=stranger.trust.server_name)
    with open_channel(Address("127.0.0.1", exposed.port), trust) as channel:
        stub = fleet_pb2_grpc.FleetStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.FetchPlan(fleet_pb2.FetchPlanRequest(), timeout=30)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_guessing_tokens_is_rate_limited(exposed: Collector) -> None:
    """Of one address 50 joins and 5 forged tokens per second are answered after bursts; a valid token is accepted."""
    address = Address("127.0.0.1", exposed.port)
    token = exposed.call.invite("us-1")
    with open_channel(address, presented_certificate(address).pinned) as channel:
        forged = [str(JoinToken(id=number + 1, secret=bytes(32), fingerprint=b"")) for number in range(MANY)]
        begun = time.monotonic()
        answers = _joins(channel, forged)
        seconds = time.monotonic() - begun
    codes = Counter(code for code, _ in answers)
    assert codes.keys() == {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert 20 <= codes[grpc.StatusCode.UNAUTHENTICATED] <= 20 + 5 * seconds
    unanswered = sum("too many joins from this address" in details for _, details in answers)
    assert 200 <= MANY - unanswered <= 200 + 50 * seconds
    # One line per second after a burst.
    assert exposed.log().count("request.refused") < MANY / 2

    def comes_in() -> bool:
        try:
            return enrolment.join(address, token, version="test").name == "us-1"
        except EnrolmentError:
            return False

    eventually(20, comes_in, "the good token is heard")


def test_a_caller_without_a_credential_learns_nothing_of_the_database(exposed: Collector) -> None:
    """While the database is away a join is refused with a general text; the reason is in the log."""
    address = Address("127.0.0.1", exposed.port)
    token = exposed.call.invite("us-1")
    _shut(exposed.database_url)
    with open_channel(address, presented_certificate(address).pinned) as channel:
        [answer] = _joins(channel, [token])
    general = "the database is unavailable at the moment; try again later"
    assert answer == (grpc.StatusCode.UNAVAILABLE, general)
    assert any("database.unavailable" in line and general not in line for line in exposed.log().splitlines())


def test_a_collector_without_a_database_is_told_from_none(exposed: Collector) -> None:
    """While the database is away commands say that the collector has failed, and why, not that none answers."""
    address = Address("127.0.0.1", exposed.port)
    token = exposed.call.invite("us-1")
    _shut(exposed.database_url)
    failed = f"the collector at {address} failed: the database is un"
    with pytest.raises(EnrolmentError, match=failed):
        enrolment.join(address, token, version="test")
    operator = OperatorClient(collector=str(address), identity=exposed.data_dir / "operator.json")
    with pytest.raises(CollectorUnreachable, match=failed) as caught:
        operator.call("ListAudit", AuditTrail)
    assert "--database-url" in caught.value.hint


def _shut(database_url: str) -> None:
    """End all connections to a database, and allow no others."""
    name = str(conninfo_to_dict(database_url)["dbname"])
    rows(
        address_of(database_url, "postgres"),
        sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(name)),
    )
    rows(
        address_of(database_url, "postgres"),
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
        [name],
    )


def _joins(channel: grpc.Channel, tokens: list[str]) -> list[tuple[grpc.StatusCode, str]]:
    """Return the codes and details of calls with many tokens, sent as many at once as a connection takes."""
    stub = fleet_pb2_grpc.FleetStub(channel)
    answers: list[tuple[grpc.StatusCode, str]] = []
    for few in range(0, len(tokens), AT_ONCE):
        requests = [fleet_pb2.JoinRequest(token=token, version="test") for token in tokens[few : few + AT_ONCE]]
        calls = [stub.Join.future(request, timeout=30) for request in requests]
        answers += [(call.code(), call.details()) for call in calls]
    return answers


PLAN = "baseline: us-east-2\ntargets: [{model: a, provider: sim, base_url: http://h}]\n"


def test_agents_and_commands_use_the_unix_socket(start_collector: StartCollector, tmp_path: Path) -> None:
    """Plans and queries pass over a socket for this user only, which replaces that of a killed collector."""
    socket = tmp_path / "collector.sock"
    more = ("--unix-socket", str(socket))
    start_collector(more=more).kill()
    assert socket.is_socket()
    start_collector(more=more).call.apply(PLAN)
    assert S_IMODE(socket.stat().st_mode) == 0o600
    caller = Caller(f"unix:{socket}")
    plan = caller.fetch_plan(vantage=Vantage(name="us-1", region="us-east-2"))
    caller.close()
    assert plan is not None
    assert [target.model for target in plan.targets] == ["a"]
    with ReadClient(f"unix:{socket}") as client:
        assert [target.model for target in client.list_targets().targets] == ["a"]
    assert run_command("plan", "history", "--collector", f"unix:{socket}").returncode == 0
