"""The typed client against a real socket: answers are complete, and failures become typed errors."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from fixtures.fake_collector import (
    COVERAGE,
    DIFFERENTIALS,
    SAMPLES,
    SPEND,
    STANDINGS,
    TARGETS,
    VANTAGES,
    WINDOW,
    FakeCollector,
)
from isochrone_client import connection
from isochrone_client.client import ReadClient
from isochrone_client.errors import (
    AccessError,
    AddressError,
    ClientError,
    CollectorError,
    NoTableError,
    RefusedError,
    SlowError,
    UnreachableError,
)
from isochrone_wire.answers import DifferentialList, Metric, Selection
from isochrone_wire.fleet import CoverageList, SpendList
from isochrone_wire.insights import LatencyBudgetList, Leaderboard, RegionCostList, SimulationList, TierList
from isochrone_wire.queries.documents import document
from testdata import insights

ALL = Selection(window=WINDOW)
Ask = Callable[[ReadClient], Any]
ASKS: list[tuple[Ask, Any]] = [
    (lambda client: client.list_targets(), TARGETS),
    (lambda client: client.list_samples(ALL, limit=10), SAMPLES),
    (lambda client: client.get_leaderboard(ALL), Leaderboard(window=WINDOW, standings=STANDINGS)),
    (
        lambda client: client.get_differentials(ALL, baseline="us-east-2"),
        DifferentialList(window=WINDOW, differentials=DIFFERENTIALS),
    ),
    (lambda client: client.get_coverage(ALL), CoverageList(window=WINDOW, coverage=COVERAGE)),
    (lambda client: client.list_vantages(), VANTAGES),
    (lambda client: client.get_spend(ALL), SpendList(spend=SPEND)),
    (lambda client: client.get_region_costs(ALL), RegionCostList(window=WINDOW, costs=insights.REGION_COSTS)),
    (
        lambda client: client.get_latency_budgets(ALL),
        LatencyBudgetList(window=WINDOW, budgets=insights.LATENCY_BUDGETS),
    ),
    (lambda client: client.get_tiers(ALL), TierList(window=WINDOW, tiers=insights.TIERS)),
    (lambda client: client.get_rate_limits(ALL), insights.RATE_LIMITS),
    (lambda client: client.list_drift(ALL), insights.DRIFT),
    (lambda client: client.list_alerts(WINDOW), insights.ALERTS),
    (lambda client: client.list_incidents(WINDOW, past=True), insights.INCIDENTS),
    (
        lambda client: client.simulate(ALL),
        SimulationList(window=WINDOW, members=insights.MEMBERS, simulations=insights.SIMULATIONS),
    ),
    (lambda client: [row for rows in client.export_samples(ALL) for row in rows], list(reversed(SAMPLES))),
]


@pytest.mark.parametrize(("ask", "answer"), ASKS)
def test_answers_come_back_whole(observatory: FakeCollector, ask: Ask, answer: object) -> None:
    """Answers survive the wire unchanged."""
    with ReadClient(observatory.address) as client:
        found = ask(client)
    assert found == answer or document(found) == document(answer)  # whose rows have an order


def test_requests_arrive_whole(observatory: FakeCollector) -> None:
    """Every part of a request reaches the collector."""
    selection = Selection(window=WINDOW, regions=("us-east-2",), targets=("openai/*",))
    with ReadClient(observatory.address) as client:
        client.get_differentials(selection, baseline="a", against=("b", "c"), metric=Metric.RTT)
        client.list_samples(selection, limit=7)
    differentials, samples = observatory.requests
    assert (differentials.path, samples.path) == ("/v1/diff", "/v1/samples")
    assert (differentials.one("baseline"), differentials.one("metric")) == ("a", "rtt")
    assert differentials.all("against") == ["b", "c"]
    assert differentials.window == WINDOW
    assert (samples.all("region"), samples.all("target"), samples.one("limit")) == (["us-east-2"], ["openai/*"], "7")


@pytest.mark.parametrize(
    ("kind", "error", "exit_code"),
    [
        ("bad-request", RefusedError, 2),
        ("unknown-name", RefusedError, 2),
        ("not-built", NoTableError, 2),
        ("database-unavailable", UnreachableError, 3),
        ("deadline-exceeded", SlowError, 1),
        ("about:blank", CollectorError, 1),
        ("resource-exhausted", CollectorError, 1),
        ("internal", CollectorError, 1),
        ("unauthenticated", AccessError, 1),
        ("forbidden", AccessError, 1),
    ],
)
def test_a_problem_becomes_one_error(
    observatory: FakeCollector, kind: str, error: type[ClientError], exit_code: int
) -> None:
    """Each kind of problem becomes one error with its exit code and a hint."""
    observatory.failure = (kind, "the reason")
    with ReadClient(observatory.address) as client, pytest.raises(error) as caught:
        client.list_targets()
    assert caught.value.exit_code == exit_code
    assert caught.value.hint


@pytest.mark.parametrize(
    ("detail", "command"),
    [
        ("unknown client region 'eu'; known: us", "isochrone routes"),
        ("unknown route 'chta'; known: chat", "isochrone routes"),
        ("unknown region 'eu'; known: us", "isochrone vantages"),
        ("unknown use 'voise'", "isochrone slo"),
        ("unknown target 'kimi'", "isochrone targets"),
    ],
)
def test_the_hint_names_the_command_that_lists_the_known_names(
    observatory: FakeCollector, detail: str, command: str
) -> None:
    """Each kind of name has its command, and the collector's sentence is kept."""
    observatory.failures = {"/v1/tiers": ("unknown-name", detail)}
    with ReadClient(observatory.address) as client, pytest.raises(RefusedError) as caught:
        client.get_tiers(ALL)
    assert str(caught.value) == detail
    assert caught.value.hint.startswith(f"`{command}`")


def test_a_refusal_has_the_collectors_sentence(observatory: FakeCollector) -> None:
    """The collector's sentence about an invalid request is not changed."""
    with (
        ReadClient(observatory.address) as client,
        pytest.raises(RefusedError, match=r"^no target is called 'x'$"),
    ):
        client.get_coverage(Selection(window=WINDOW, targets=("x",)))


def test_an_unknown_value_is_an_error(observatory: FakeCollector) -> None:
    """An answer that this version cannot decode is an error that names the field, not a wrong value."""
    answer = document(DifferentialList(window=WINDOW, differentials=DIFFERENTIALS))
    answer["rows"][1]["decision"] = "perhaps"
    observatory.text = json.dumps(answer)
    with (
        ReadClient(observatory.address) as client,
        pytest.raises(CollectorError, match=r"rows\.1\.decision: 'perhaps'") as caught,
    ):
        client.get_differentials(ALL, baseline="us-east-2")
    assert "upgrade" in caught.value.hint


def test_a_closed_port_is_unreachable() -> None:
    """A port without a listener is unreachable, and the error names it."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        with ReadClient(address) as client, pytest.raises(UnreachableError, match=address) as caught:
            client.list_targets()
    assert "isochrone-collector serve" in caught.value.hint


@pytest.mark.parametrize("port", [None, 4600])
def test_another_server_is_no_collector(monkeypatch: pytest.MonkeyPatch, port: int | None) -> None:
    """A server that does not speak HTTP is unreachable; at the port of agents the hint names the other one."""
    with answering(b"\x00\x00\x18\x04\x00") as address:
        if port is not None:
            monkeypatch.setattr(connection, "DEFAULT_PORT", int(address.rpartition(":")[2]))
        with ReadClient(address) as client, pytest.raises(UnreachableError) as caught:
            client.list_targets()
    assert ("port" in caught.value.hint) is (port is not None)


def test_another_web_server_is_no_collector() -> None:
    """A web server on the port is not a collector: neither its errors nor its pages are answers."""
    for head in (b"400 Bad Request", b"200 OK"):
        with (
            answering(b"HTTP/1.1 %s\r\nContent-Length: 6\r\n\r\n<html>" % head) as address,
            ReadClient(address) as client,
            pytest.raises(UnreachableError),
        ):
            client.list_targets()


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server that gives one answer to its first request."""

    def serve(server: socket.socket) -> None:
        connected, _ = server.accept()
        with connected:
            connected.recv(1000)
            connected.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_an_idle_connection_that_was_closed_is_replaced(observatory: FakeCollector) -> None:
    """The collector closes idle connections; the next question opens another one."""
    with ReadClient(observatory.address) as client:
        assert set(client.list_targets().targets) == set(TARGETS.targets)
        (idle,) = client._connections._idle
        idle.sock.shutdown(socket.SHUT_RDWR)
        assert set(client.list_targets().targets) == set(TARGETS.targets)


def test_a_slow_collector_times_out(observatory: FakeCollector) -> None:
    """If the answer takes longer than the timeout, the hint is a shorter window."""
    observatory.released = threading.Event()
    with ReadClient(observatory.address, timeout_us=300_000) as client, pytest.raises(SlowError) as caught:
        client.list_targets()
    observatory.released.set()
    assert "--window" in caught.value.hint


def test_a_collector_that_answers_byte_by_byte_times_out() -> None:
    """The timeout is that of the whole answer, however often a part of it arrives."""

    def serve(server: socket.socket) -> None:
        connected, _ = server.accept()
        with connected, suppress(OSError):
            connected.recv(1000)
            connected.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            for _ in range(400):
                time.sleep(0.05)
                connected.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with ReadClient(address, timeout_us=300_000) as client, pytest.raises(SlowError):
            client.list_targets()
        thread.join()


def test_a_proxy_is_not_used(observatory: FakeCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment is not used for loopback."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with ReadClient(observatory.address) as client:
        assert set(client.list_targets().targets) == set(TARGETS.targets)


def test_other_machines_are_refused_before_a_connection() -> None:
    """There is no connection attempt to another machine that was not joined."""
    with pytest.raises(AddressError):
        ReadClient("192.0.2.1")


def test_closing_ends_the_streams_of_other_threads(observatory: FakeCollector) -> None:
    """A client that is closed ends a stream that another thread reads."""
    client = ReadClient(observatory.address)
    batches = client.follow_samples(ALL)
    assert next(batches).samples == ()
    closing = threading.Timer(0.1, client.close)
    closing.start()
    with pytest.raises(UnreachableError):
        next(batches)
    closing.join()
