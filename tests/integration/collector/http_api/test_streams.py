"""Streams of tables, notices and samples."""

import asyncio
import json
import socket
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from fixtures.collector import Collector
from fixtures.web import ELSEWHERE, StartWeb, Web, first, until
from isochrone_client.window import now_at
from isochrone_collector.auth import authenticator
from isochrone_collector.auth.authenticator import Authenticator, Principal
from isochrone_collector.errors import DatabaseUnavailable, Unauthenticated
from isochrone_collector.http_api import listener, responses, route_tables
from isochrone_wire.json_format import rfc3339, to_json_value
from isochrone_wire.model import MINUTE_US, SECOND_US
from isochrone_wire.operations import Role
from isochrone_wire.routes import RouteTable
from testdata.pushed_rounds import SG, US, Fleet, rounds_until
from testdata.routes import CHAT, VOICE

WATCH = "/v1/routes/us-east-2/watch"
BRIEF: dict[str, Any] = {"max_watchers": 10, "heartbeat_us": SECOND_US // 10}


def numbered(*generations: int, of: RouteTable = CHAT, sentence: str = "") -> list[RouteTable]:
    return [replace(of, generation=number, etag=f"g{number}", sentence=sentence) for number in generations]


async def test_a_snapshot_comes_first_and_then_what_changes(web: Web) -> None:
    """A stream begins with the region's tables in force, oldest first, then each as it is published."""
    async with web.watch(WATCH) as events:
        snapshot = await first(events, 2)
        assert [event.data for event in snapshot] == [to_json_value(VOICE), to_json_value(CHAT)]
        await web.publish(*numbered(49), *numbered(50, of=ELSEWHERE), *numbered(51, of=VOICE))
        later = await first(events, 2)
    assert [(event.id, event.event) for event in (*snapshot, *later)] == [
        *((47, "table"), (48, "table")),
        *((49, "table"), (51, "table")),
    ]
    assert [event.data["route"] for event in later] == ["chat", "voice"]


@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        (WATCH, {"last_event_id": "48"}, [49, 50, 51]),
        (WATCH, {"last_event_id": "50"}, [51]),
        (f"{WATCH}?after=49", {}, [50, 51]),
        (f"{WATCH}?after=1", {"last_event_id": "50"}, [51]),
        (f"{WATCH}?route=voice&after=48", {}, [50]),
    ],
)
async def test_resuming_loses_nothing(web: Web, path: str, headers: dict[str, str], expected: list[int]) -> None:
    """A reader that sends its last event id gets every later event once, in order."""
    await web.publish(*numbered(49), *numbered(50, of=VOICE), *numbered(51))
    async with web.watch(path, **headers) as events:
        found = await first(events, len(expected))
        await web.publish(*numbered(52, of=VOICE))
        found += await first(events, 1)
    assert [event.id for event in found] == [*expected, 52]


async def test_a_reader_that_is_ahead_gets_a_snapshot(web: Web) -> None:
    """An unknown newer generation, as after a database restore, is answered with the tables in force."""
    async with web.watch(WATCH, last_event_id="999") as events:
        assert [event.id for event in await first(events, 2)] == [47, 48]


async def test_heartbeats_are_sent(start_web: StartWeb) -> None:
    """Without changes, comments are sent as heartbeats for readers and proxies."""
    web = await start_web(**BRIEF)
    await web.publish(CHAT)
    async with web.watch(f"{WATCH}?after=48") as events:
        assert [await asyncio.wait_for(anext(events), 20) for _ in range(3)] == [None, None, None]


async def test_too_many_watchers_are_refused(start_web: StartWeb) -> None:
    """A watcher above the limit gets 503 with Retry-After; a freed place can be taken."""
    web = await start_web(max_watchers=2)
    await web.publish(CHAT)
    async with web.watch(WATCH) as one, web.watch(WATCH) as two:
        assert [event.id for event in (*await first(one, 1), *await first(two, 1))] == [48, 48]
        for path in (WATCH, f"{WATCH}?after=48", "/v1/routes/us-east-2?wait=5s&after=48"):
            refused = await web.get(path)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5"), path
            assert refused.json()["type"] == "urn:isochrone:problem:resource-exhausted"
        assert (await web.get("/v1/routes/us-east-2")).status_code == 200
    await until(lambda: web.publisher.watchers == 0)
    async with web.watch(WATCH) as again:
        assert [event.id for event in await first(again, 1)] == [48]


async def test_a_slow_reader_is_dropped_and_resumes(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that does not read is disconnected, uses no memory, and gets everything when it resumes."""
    monkeypatch.setattr(listener, "SEND_TIMEOUT_US", SECOND_US // 5)
    long = "x" * 100_000
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        await asyncio.to_thread(slow.connect, (web.address.host, web.address.port))
        slow.sendall(f"GET {WATCH}?after=48 HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        await until(lambda: web.publisher.watchers == 1)
        await web.publish(*numbered(*range(49, 79), sentence=long))
        await until(lambda: web.publisher.watchers == 0)
        read = await asyncio.to_thread(read_to_the_end, slow)
    assert len(read) < 1_000_000
    assert not read.endswith(b"0\r\n\r\n")
    async with web.watch(WATCH, last_event_id="60") as events:
        assert [event.id for event in await first(events, 18)] == list(range(61, 79))


async def test_an_answer_that_waits_for_a_stalled_reader_ends(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that follow one another unread, of whatever path, do not hold their connection for ever."""
    monkeypatch.setattr(listener, "SEND_TIMEOUT_US", SECOND_US // 5)
    monkeypatch.setattr(listener, "IDLE_US", 3600 * SECOND_US)
    await web.publish(*numbered(49, sentence="x" * 1_000_000))
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        await asyncio.to_thread(slow.connect, (web.address.host, web.address.port))
        slow.sendall(b"GET /v1/routes/us-east-2 HTTP/1.1\r\nHost: h\r\n\r\n" * 2)
        # Shorter than the two answers, so the connection was closed before it was read.
        await asyncio.sleep(1)
        read = await asyncio.to_thread(read_to_the_end, slow)
    assert 0 < len(read) < 1_000_000


def read_to_the_end(connection: socket.socket) -> bytes:
    connection.settimeout(10)
    return b"".join(iter(lambda: connection.recv(65_536), b""))


async def test_a_table_is_encoded_once(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """A generation is encoded once for all watchers."""
    async with web.watch(f"{WATCH}?after=48") as one, web.watch(f"{WATCH}?after=48") as two:
        await until(lambda: web.publisher.watchers == 2)
        written: list[int] = []
        usual = responses.encode

        def counted(table: RouteTable) -> bytes:
            written.append(table.generation)
            return usual(table)

        monkeypatch.setattr(responses, "encode", counted)
        await web.publish(*numbered(49))
        assert [event.id for event in (*await first(one, 1), *await first(two, 1))] == [49, 49]
    assert written == [49]


async def test_streams_end_when_the_collector_stops(web: Web) -> None:
    """A stream of a stopping collector ends properly after the last published table."""
    async with web.watch(WATCH) as events:
        await first(events, 2)
        web.publisher.close()
        assert [event async for event in events if event is not None] == []
    await until(lambda: web.publisher.watchers == 0)


async def test_a_revoked_credential_ends_the_stream(start_web: StartWeb, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream ends when its credential is revoked, even without events, but not while the database is unavailable."""
    monkeypatch.setattr(authenticator, "RECHECK_S", 0.05)
    web = await start_web(**BRIEF)
    await web.publish(CHAT)

    async def nobody_knows(*_: object) -> None:
        raise DatabaseUnavailable("away")

    async def refused(*_: object) -> None:
        raise Unauthenticated("the credential has been revoked")

    async with web.watch(f"{WATCH}?after=48") as events:
        assert await anext(events) is None
        monkeypatch.setattr(Authenticator, "authenticate", nobody_knows)
        assert [await anext(events), await anext(events)] == [None, None]
        monkeypatch.setattr(Authenticator, "authenticate", refused)
        async with asyncio.timeout(10):
            assert [event async for event in events if event is not None] == []
    assert (await web.get("/v1/routes")).status_code == 401
    await until(lambda: web.publisher.watchers == 0)


async def test_a_revoked_credential_ends_streams_and_long_polls(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """No event or heartbeat has to come first; the poll is answered with 401."""
    monkeypatch.setattr(authenticator, "RECHECK_S", 0.05)
    poll = asyncio.create_task(web.get("/v1/routes/us-east-2?wait=20s&after=48"))
    async with web.watch(f"{WATCH}?after=48") as events:
        await until(lambda: web.publisher.watchers == 2)

        async def refused(*_: object) -> None:
            raise Unauthenticated("the credential has been revoked")

        monkeypatch.setattr(Authenticator, "authenticate", refused)
        async with asyncio.timeout(10):
            assert [event async for event in events] == []
            assert (await poll).status_code == 401
    assert web.publisher.watchers == 0


async def test_watches_are_counted_per_credential(start_web: StartWeb, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller whose watches are all open gets 503 for another stream and for a long poll; other callers are served."""
    monkeypatch.setattr(route_tables, "MAX_WATCHES", 1)

    async def named(_: object, metadata: Iterable[tuple[str, str]], __: object) -> Principal:
        return Principal(role=Role.READER, name=dict(metadata)["authorization"])

    monkeypatch.setattr(Authenticator, "authenticate", named)
    web = await start_web()
    await web.publish(CHAT)
    async with web.watch(WATCH, authorization="ida") as one, web.watch(WATCH, authorization="bo") as two:
        assert [event.id for event in (*await first(one, 1), *await first(two, 1))] == [48, 48]
        for path in (WATCH, "/v1/routes/us-east-2?wait=5s&after=48"):
            refused = await web.get(path, authorization="ida")
            assert (refused.status_code, refused.json()["type"]) == (503, "urn:isochrone:problem:resource-exhausted")
        assert (await web.get("/v1/routes/us-east-2", authorization="ida")).status_code == 200
    await until(lambda: web.publisher.watchers == 0)
    async with web.watch(WATCH, authorization="ida") as again:
        assert [event.id for event in await first(again, 1)] == [48]


PLAN = f"""
baseline: {US}
every: 60s
targets:
  - {{provider: moonshot, model: kimi-k2.5, base_url: http://moonshot}}
  - {{provider: openai, model: gpt-5-mini, base_url: http://openai}}
"""
ROUNDS = 100
SAMPLES = 8 * ROUNDS
END_AT = now_at() // MINUTE_US * MINUTE_US - 10 * MINUTE_US
WINDOW = {"from": rfc3339(END_AT - ROUNDS * MINUTE_US), "until": rfc3339(END_AT)}
EXPORT, WATCH_SAMPLES = "/v1/samples/export", "/v1/samples/watch"


def latency_us(_target: str, _region: str) -> int:
    return 200_000


@pytest.fixture(scope="module")
def fleet(shared_collector: Collector) -> Fleet:
    shared_collector.call.apply(PLAN)
    fleet = Fleet({target.name: target.id for target in shared_collector.call.targets().targets})
    fleet.push_rounds(shared_collector.call, rounds_until(END_AT, ROUNDS), latency_us)
    return fleet


@pytest.fixture(scope="module")
def http(shared_collector: Collector, fleet: Fleet) -> Iterator[httpx.Client]:  # its samples
    with httpx.Client(base_url=shared_collector.http, trust_env=False, timeout=60) as client:
        yield client


def exported(http: httpx.Client, **parameters: Any) -> list[dict[str, Any]]:
    answer = http.get(EXPORT, params={**WINDOW, **parameters}).raise_for_status()
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def test_an_export_has_every_sample_once(http: httpx.Client) -> None:
    """Every sample of the window is a line, oldest round first, and equals its row of /v1/samples."""
    rows = exported(http)
    assert len({row["id"] for row in rows}) == len(rows) == SAMPLES
    assert [row["round_at"] for row in rows] == sorted(row["round_at"] for row in rows)
    (listed,) = http.get(f"/v1/samples/{rows[7]['id']}").json()["rows"]
    assert listed == rows[7]
    assert exported(http, region=SG, target="openai/*") == [
        row for row in rows if (row["region"], row["target"]) == (SG, "openai/gpt-5-mini")
    ]


@pytest.mark.parametrize("lines", [1, 250, SAMPLES - 1, SAMPLES])
def test_an_export_continues_after_any_line(http: httpx.Client, lines: int) -> None:
    """An export that broke after any line continues with the next one: nothing is lost or repeated."""
    rows = exported(http)
    assert exported(http, after=rows[lines - 1]["id"]) == rows[lines:]


def test_the_newest_samples_come_first(http: httpx.Client) -> None:
    """`newest` limits the export to the newest rounds, newest first."""
    rows = exported(http, newest=10)
    assert len(rows) == 10
    assert rows[0]["round_at"] == max(row["round_at"] for row in exported(http))
    assert [row["round_at"] for row in rows] == sorted((row["round_at"] for row in rows), reverse=True)
    assert exported(http, **{"from": "2001-01-01T00:00:00Z", "until": "2001-01-02T00:00:00Z"}) == []


@pytest.mark.parametrize(
    ("path", "parameters", "status", "detail"),
    [
        (EXPORT, {"after": "sample_x"}, 400, "'sample_x' is not the id of a sample"),
        (EXPORT, {"newest": "3", "after": "sample_" + "A" * 59}, 400, "cannot be continued"),
        (EXPORT, {"newest": "10001"}, 400, "'10001' is not a whole number from 0 to 10000"),
        (EXPORT, {"region": "mars"}, 404, "unknown region 'mars'"),
        (WATCH_SAMPLES, {"region": "mars"}, 404, "unknown region 'mars'"),
        (WATCH_SAMPLES, {"since": "2020-01-01T00:00:00Z"}, 400, "export older samples instead"),
    ],
)
def test_a_refusal_comes_before_the_first_byte(
    http: httpx.Client, path: str, parameters: dict[str, str], status: int, detail: str
) -> None:
    """A stream that cannot begin has a status and a problem document, as any other answer."""
    answer = http.get(path, params=parameters)
    assert answer.status_code == status
    assert detail in answer.json()["detail"]


def test_samples_are_sent_as_they_are_stored(shared_collector: Collector, http: httpx.Client, fleet: Fleet) -> None:
    """The first event comes at once and states from when a broken stream continues; stored samples follow."""
    newest = rounds_until(END_AT + MINUTE_US, 1)
    with http.stream("GET", WATCH_SAMPLES, params={"region": SG}) as stream:
        lines = stream.iter_lines()
        began = next_event(lines)
        assert began["rows"] == []
        fleet.push_rounds(shared_collector.call, newest, latency_us)
        stored = next_event(lines)
    assert {(row["region"], row["round_at"]) for row in stored["rows"]} == {(SG, rfc3339(newest[0]))}
    ids = {row["id"] for row in stored["rows"]}
    for params, headers in (({"since": began["resume_at"]}, {}), ({}, {"Last-Event-ID": began["id"]})):
        with http.stream("GET", WATCH_SAMPLES, params=params, headers=headers) as stream:
            assert ids < {row["id"] for row in next_event(stream.iter_lines())["rows"]}


def next_event(lines: Iterator[str]) -> dict[str, Any]:
    event_id = ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "id":
            event_id = value
        if name == "data":
            return {**json.loads(value), "id": event_id}
    raise AssertionError("the stream ended")
