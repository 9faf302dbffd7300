"""The typed client against a real socket: answers are complete, and failures become typed errors."""

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
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
    FakeObservatory,
)
from isochrone_client.client import ObservatoryClient
from isochrone_client.errors import (
    AccessError,
    AddressError,
    ClientError,
    CollectorError,
    RefusedError,
    SlowError,
    UnreachableError,
)
from isochrone_wire.answers import DifferentialList, Metric, Selection
from isochrone_wire.fleet import CoverageList, SpendList
from isochrone_wire.insights import LatencyBudgetList, Leaderboard, RegionCostList, SimulationList, TierList
from isochrone_wire.v1 import observatory_pb2
from testdata import insights

ALL = Selection(window=WINDOW)
Ask = Callable[[ObservatoryClient], Any]
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
    (
        lambda client: client.get_region_costs(ALL),
        RegionCostList(window=WINDOW, costs=insights.REGION_COSTS),
    ),
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
def test_answers_come_back_whole(observatory: FakeObservatory, ask: Ask, answer: object) -> None:
    """Answers survive the wire unchanged."""
    with ObservatoryClient(observatory.address) as client:
        assert ask(client) == answer


def test_requests_arrive_whole(observatory: FakeObservatory) -> None:
    """Every part of a request reaches the collector."""
    selection = Selection(window=WINDOW, regions=("us-east-2",), targets=("openai/*",))
    with ObservatoryClient(observatory.address) as client:
        client.get_differentials(selection, baseline="a", against=("b", "c"), metric=Metric.RTT)
        client.list_samples(selection, limit=7)
    differentials, samples = observatory.requests
    assert isinstance(differentials, observatory_pb2.GetDifferentialsRequest)
    assert differentials.knows_mixed
    assert (differentials.baseline, list(differentials.against), differentials.metric) == ("a", ["b", "c"], "rtt")
    assert (differentials.selection.window.from_at, differentials.selection.window.until_at) == (
        WINDOW.from_at,
        WINDOW.until_at,
    )
    assert list(samples.selection.regions) == ["us-east-2"]
    assert list(samples.selection.targets) == ["openai/*"]
    assert samples.limit == 7


@pytest.mark.parametrize(
    ("status", "error", "exit_code"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, RefusedError, 2),
        (grpc.StatusCode.NOT_FOUND, RefusedError, 2),
        (grpc.StatusCode.UNAVAILABLE, UnreachableError, 3),
        (grpc.StatusCode.DEADLINE_EXCEEDED, SlowError, 1),
        (grpc.StatusCode.UNIMPLEMENTED, CollectorError, 1),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, CollectorError, 1),
        (grpc.StatusCode.INTERNAL, CollectorError, 1),
        (grpc.StatusCode.UNAUTHENTICATED, AccessError, 1),
        (grpc.StatusCode.PERMISSION_DENIED, AccessError, 1),
    ],
)
def test_a_status_becomes_one_error(
    observatory: FakeObservatory, status: grpc.StatusCode, error: type[ClientError], exit_code: int
) -> None:
    """Each gRPC status becomes one error with its exit code and a hint, and keeps its cause."""
    observatory.failure = (status, "the reason")
    with ObservatoryClient(observatory.address) as client, pytest.raises(error) as caught:
        client.list_targets()
    assert caught.value.exit_code == exit_code
    assert caught.value.hint
    assert isinstance(caught.value.__cause__, grpc.RpcError)


def test_a_refusal_has_the_collectors_sentence(observatory: FakeObservatory) -> None:
    """The collector's sentence about an invalid request is not changed."""
    with (
        ObservatoryClient(observatory.address) as client,
        pytest.raises(RefusedError, match=r"^no target is called 'x'$"),
    ):
        client.get_coverage(Selection(window=WINDOW, targets=("x",)))


def test_an_unknown_value_is_an_error(observatory: FakeObservatory) -> None:
    """An answer that this version cannot decode is an error, not a wrong value."""
    observatory.message = observatory_pb2.GetDifferentialsResponse(
        differentials=[observatory_pb2.Differential(metric="ttft", decision="perhaps")]
    )
    with ObservatoryClient(observatory.address) as client, pytest.raises(CollectorError, match="decision") as caught:
        client.get_differentials(ALL, baseline="us-east-2")
    assert "upgrade" in caught.value.hint


def test_a_closed_port_is_unreachable() -> None:
    """A port without a listener is unreachable, and the error names it."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        with ObservatoryClient(address) as client, pytest.raises(UnreachableError, match=address) as caught:
            client.list_targets()
    assert "isochrone-collector serve" in caught.value.hint


def test_a_silent_listener_is_unreachable() -> None:
    """A listener that accepts and stays silent fails after the connect timeout, not after the answer timeout."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with ObservatoryClient(address, connect_timeout_us=200_000) as client, pytest.raises(UnreachableError):
            client.list_targets()


def test_another_protocol_is_unreachable() -> None:
    """A web server on the port is not a collector."""

    def answer(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        web = threading.Thread(target=answer, args=(server,))
        web.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with ObservatoryClient(address, connect_timeout_us=1_000_000) as client, pytest.raises(UnreachableError):
            client.list_targets()
        web.join()


def test_a_slow_collector_times_out(observatory: FakeObservatory) -> None:
    """If the answer takes longer than the timeout, the hint is a shorter window."""
    observatory.released = threading.Event()
    with ObservatoryClient(observatory.address, timeout_us=300_000) as client, pytest.raises(SlowError) as caught:
        client.list_targets()
    observatory.released.set()
    assert "--window" in caught.value.hint


def test_an_answer_too_large_is_explained() -> None:
    """An answer that is larger than a message may be is an error with a hint, not a broken connection."""

    def flood(_request: bytes, _context: grpc.ServicerContext) -> bytes:
        return b"\x00" * (9 << 20)

    handler = grpc.method_handlers_generic_handler(
        "isochrone.v1.Observatory", {"ListTargets": grpc.unary_unary_rpc_method_handler(flood)}
    )
    with ThreadPoolExecutor(max_workers=1) as threads:
        server = grpc.server(threads)
        server.add_generic_rpc_handlers((handler,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with ObservatoryClient(f"127.0.0.1:{port}") as client, pytest.raises(CollectorError) as caught:
            client.list_targets()
        server.stop(grace=None).wait()
    assert "shorter --window" in caught.value.hint


def test_a_proxy_is_not_used(observatory: FakeObservatory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment is not used for loopback."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with ObservatoryClient(observatory.address) as client:
        assert client.list_targets() == TARGETS


def test_other_machines_are_refused_before_a_connection() -> None:
    """There is no connection attempt to another machine that was not joined."""
    with pytest.raises(AddressError):
        ObservatoryClient("192.0.2.1:4600")
