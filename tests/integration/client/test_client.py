"""The typed client against a real socket: answers are complete, failures become typed errors, names may be short, and
streams of samples survive.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from fixtures.fake_collector import (
    COVERAGE,
    DIFFERENTIALS,
    NOW_AT,
    SAMPLES,
    SPEND,
    STANDINGS,
    TARGETS,
    VANTAGES,
    WINDOW,
    FakeCollector,
    stored,
)
from isochrone_client import connection
from isochrone_client.address import Collector
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
    UsageError,
)
from isochrone_client.streams import SampleStream, export_samples
from isochrone_common.address import parse_address
from isochrone_wire.answers import DifferentialList, Metric, Selection
from isochrone_wire.fleet import CoverageList, SampleList, SpendList, StoredSample
from isochrone_wire.insights import LatencyBudgetList, Leaderboard, RegionCostList, SimulationList, TierList
from isochrone_wire.queries.documents import document
from testdata import insights
from testdata.routes import TABLES, VOICE

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
    (lambda client: client.get_status(), insights.STATUS),
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
def test_a_problem_is_an_error(observatory: FakeCollector, kind: str, error: type[ClientError], exit_code: int) -> None:
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
def test_the_hint_names_the_command_that_lists_names(observatory: FakeCollector, detail: str, command: str) -> None:
    """Each kind of name has its command, and the collector's sentence is kept."""
    observatory.failures = {"/v1/tiers": ("unknown-name", detail)}
    with ReadClient(observatory.address) as client, pytest.raises(RefusedError) as caught:
        client.get_tiers(ALL)
    assert str(caught.value) == detail
    assert caught.value.hint.startswith(f"`{command}`")


def test_a_refusal_has_the_collectors_sentence(observatory: FakeCollector) -> None:
    """A refusal has the collector's sentence; an answer that cannot be decoded names the field."""
    with (
        ReadClient(observatory.address) as client,
        pytest.raises(RefusedError, match=r"^no target is called 'x'$"),
    ):
        client.get_coverage(Selection(window=WINDOW, targets=("x",)))
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
    """A port without a listener is unreachable, and the error names it and from where the address comes."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        there = Collector(parse_address(address), source="context prod")
        named = rf"{address} \(from context prod\): Connection refused"
        with ReadClient(there) as client, pytest.raises(UnreachableError, match=named) as caught:
            client.list_targets()
    assert "isochrone-collector serve" in caught.value.hint


@pytest.mark.parametrize("port", [None, 4600])
def test_another_server_is_no_collector(monkeypatch: pytest.MonkeyPatch, port: int | None) -> None:
    """A server that does not speak HTTP is unreachable; at the port of agents the hint has the other one."""
    with answering(b"\x00\x00\x18\x04\x00") as address:
        if port is not None:
            monkeypatch.setattr(connection, "DEFAULT_PORT", int(address.rpartition(":")[2]))
        with ReadClient(address) as client, pytest.raises(UnreachableError) as caught:
            client.list_targets()
    assert ("try --collector 127.0.0.1:4680" in caught.value.hint) is (port is not None)


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
def answering(answer: bytes, *, bytes_later: int = 0) -> Iterator[str]:
    """A server that gives one answer to its first request, and then byte by byte, if there are `bytes_later`."""

    def serve(server: socket.socket) -> None:
        connected, _ = server.accept()
        with connected, suppress(OSError):
            connected.recv(1000)
            connected.sendall(answer)
            for _ in range(bytes_later):
                time.sleep(0.05)
                connected.sendall(b" ")

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


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_a_collector_that_answers_byte_by_byte_times_out(begin: bytes) -> None:
    """The timeout is that of the whole answer with its head, however often a part of it arrives."""
    with (
        answering(begin, bytes_later=400) as address,
        ReadClient(address, timeout_us=300_000) as client,
        pytest.raises(SlowError),
    ):
        client.list_targets()


def test_an_answer_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is too long is an error, and is not read to its end."""
    monkeypatch.setattr(connection, "_MAX_ANSWER_BYTES", 100)
    with (
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n" + 101 * b" ") as address,
        ReadClient(address) as client,
        pytest.raises(CollectorError, match="is too long"),
    ):
        client.list_targets()


def test_a_proxy_is_not_used(observatory: FakeCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy is not used for loopback, and a machine that was not joined is not even connected to."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with ReadClient(observatory.address) as client:
        assert set(client.list_targets().targets) == set(TARGETS.targets)
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


SHORT = Selection(window=WINDOW, regions=("us-east",), targets=("gpt-5-mini",))
SHORT_ASKS: list[Callable[[ReadClient], Any]] = [
    lambda client: client.list_samples(SHORT, limit=5),
    lambda client: client.get_leaderboard(SHORT),
    lambda client: client.get_coverage(SHORT),
    lambda client: client.get_latency_budgets(SHORT),
    lambda client: client.get_tiers(SHORT),
    lambda client: client.list_drift(SHORT),
    lambda client: client.simulate(SHORT),
    lambda client: list(client.export_samples(SHORT)),
]


@pytest.fixture
def strict(observatory: FakeCollector) -> FakeCollector:
    """A fake that knows two regions and refuses others, like a collector."""
    observatory.regions = frozenset({"us-east-2", "ap-southeast-1"})
    return observatory


@pytest.mark.parametrize("ask", SHORT_ASKS)
def test_every_request_takes_short_names(strict: FakeCollector, ask: Callable[[ReadClient], Any]) -> None:
    """A short name is expanded and the request is repeated, for every kind of request."""
    with ReadClient(strict.address) as client:
        assert ask(client)
    request = strict.requests[-1]
    assert (request.all("region"), request.all("target")) == (["us-east-2"], ["openai/gpt-5-mini"])


def test_baselines_take_short_names(strict: FakeCollector) -> None:
    """Both sides of a differential may have short names."""
    with ReadClient(strict.address) as client:
        answer = client.get_differentials(Selection(window=WINDOW), baseline="us", against=("ap",))
    assert {(row.baseline, row.region) for row in answer.differentials} == {("us-east-2", "ap-southeast-1")}
    request = strict.requests[-1]
    assert (request.one("baseline"), request.all("against")) == ("us-east-2", ["ap-southeast-1"])


def test_full_names_need_no_lookup(strict: FakeCollector) -> None:
    """A request with full names is sent once, without a lookup."""
    with ReadClient(strict.address) as client:
        client.get_coverage(Selection(window=WINDOW, regions=("us-east-2",), targets=("openai/*",)))
    assert len(strict.requests) == 1


def test_an_unknown_name_gets_the_collectors_refusal(strict: FakeCollector) -> None:
    """A name that cannot be expanded gets the collector's refusal, and the request is not repeated."""
    with ReadClient(strict.address) as client, pytest.raises(RefusedError, match="no region is called 'mars'"):
        client.get_coverage(Selection(window=WINDOW, regions=("mars",)))
    assert [request.path for request in strict.requests].count("/v1/coverage") == 1


def test_an_ambiguous_name_is_refused_by_the_client(observatory: FakeCollector) -> None:
    """A name that matches several targets is an error; if the lookup fails too, the first refusal is raised."""
    sold = tuple(replace(target, name=f"{target.provider}/x", model="x") for target in observatory.targets.targets)
    observatory.targets = replace(observatory.targets, targets=sold)
    with ReadClient(observatory.address) as client, pytest.raises(UsageError, match="2 targets"):
        client.get_tiers(Selection(window=WINDOW, targets=("x",)))
    observatory.failure = ("unknown-name", "no target is called 'x'")
    with ReadClient(observatory.address) as client, pytest.raises(RefusedError, match="called 'x'"):
        client.get_tiers(Selection(window=WINDOW, targets=("x",)))


def test_tables_of_all_regions_that_have_one(observatory: FakeCollector) -> None:
    """Without names every table is listed; only an unknown name is refused, unless no table exists at all."""
    with ReadClient(observatory.address) as client:
        assert client.list_tables(route="no-such-route") == client.list_tables(("mars",)) == ()
        observatory.restart(*TABLES)
        assert sorted(one.generation for one in client.list_tables()) == sorted(one.generation for one in TABLES)
        assert client.list_tables(route=VOICE.route) == (VOICE,)
        for regions, route in (((), "no-such-route"), (("mars",), ""), (("us-east-2", "mars"), "")):
            with pytest.raises(RefusedError, match="unknown "):
                client.list_tables(regions, route)


def test_a_long_list_is_streamed(observatory: FakeCollector) -> None:
    """A long list is streamed and the same; a stream that is silent for the timeout counts as lost."""
    with ReadClient(observatory.address) as client:
        assert set(client.list_samples(ALL, limit=5_000)) == set(SAMPLES)
        assert len(client.list_samples(replace(ALL, regions=("us-east-2",)), limit=2)) == 2
    assert [request.path for request in observatory.requests] == ["/v1/samples/export", "/v1/samples"]
    observatory.released = threading.Event()
    with ReadClient(observatory.address, timeout_us=300_000) as client, pytest.raises(SlowError):
        next(client.follow_samples(ALL))
    observatory.released.set()


def test_an_export_resumes_where_it_broke(observatory: FakeCollector) -> None:
    """After a break each sample is exported once, even in the round of the break, and the break is reported."""
    twins = [stored(3, ttft_us=number) for number in range(3)]
    observatory.samples = (stored(5), *twins, stored(2), stored(1))
    observatory.cuts_export = True
    reports: list[str] = []
    with ReadClient(observatory.address) as client:
        rows = [row for batch in export_samples(client, ALL, report=reports.append) for row in batch]
    assert rows == [*observatory.samples]
    assert len(reports) == 1
    assert "the connection was closed" in reports[0]
    assert observatory.requests[-1].one("after") == rows[1].id


def test_an_export_that_never_started_fails(observatory: FakeCollector) -> None:
    """An export that received nothing cannot be resumed."""
    with ReadClient("127.0.0.1:1") as client, pytest.raises(UnreachableError):
        next(export_samples(client, ALL, report=pytest.fail))
    assert observatory.requests == []


def test_following_starts_with_the_newest(observatory: FakeCollector) -> None:
    """The stream starts with the newest samples, as many as requested, and does not repeat them."""
    with ReadClient(observatory.address) as client:
        batches = SampleStream(client, ALL, report=pytest.fail).samples(limit=2)
        assert set(next(batches)) == set(SAMPLES[:2])
        new = stored(0, ttft_us=77)
        observatory.samples = (*SAMPLES, new)
        assert next(batches) == (new,)


def test_following_an_absent_collector_fails() -> None:
    """At the start an absent collector is an error; the stream does not wait for it."""
    with ReadClient("127.0.0.1:1") as client, pytest.raises(UnreachableError):
        next(SampleStream(client, ALL, report=pytest.fail).samples(limit=1))


class Script:
    """A client whose streams of samples are written beforehand: each break resumes with the next one."""

    def __init__(self, *streams: Sequence[SampleList | Exception]) -> None:
        self.streams = list(streams)
        self.since: list[int] = []

    def list_samples(self, _selection: Selection, *, limit: int, matching: str) -> tuple[StoredSample, ...]:
        assert (limit, matching) == (1, "ttft>1")
        return ()

    def follow_samples(self, _selection: Selection, *, since_at: int = 0, matching: str) -> Iterator[SampleList]:
        assert matching == "ttft>1"
        self.since.append(since_at)
        for batch in self.streams.pop(0):
            if isinstance(batch, Exception):
                raise batch
            yield batch


def test_a_stream_that_resumes_drops_what_it_had() -> None:
    """Only samples from before a break are dropped, in any batches; those that cannot come again are forgotten."""
    one, two, three, four = (stored(place, received_at=NOW_AT + place) for place in range(4))
    broken = UnreachableError("gone", hint="wait")
    client: Any = Script(
        [SampleList(resume_at=NOW_AT), SampleList(samples=(one, two), resume_at=NOW_AT + 1), broken],
        [SampleList(samples=(two, three), resume_at=NOW_AT + 1), SampleList(resume_at=NOW_AT + 3)],
        [SampleList(samples=(four,), resume_at=NOW_AT + 3)],
    )
    stream = SampleStream(client, ALL, report=lambda _sentence: None, matching="ttft>1")
    batches = stream.samples(limit=1)
    assert [next(batches) for _ in range(4)] == [(), (one, two), (three,), (four,)]
    assert client.since == [0, NOW_AT + 1, NOW_AT + 3]
    assert set(stream._seen) == {four.id}
