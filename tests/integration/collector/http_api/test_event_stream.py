"""Server-sent events: every generation once and in order, from any starting point, for slow readers too."""

import asyncio
import socket
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from fixtures.web import ELSEWHERE, StartWeb, Web, first, until
from isochrone_collector.auth import authenticator
from isochrone_collector.auth.authenticator import Authenticator, Principal
from isochrone_collector.errors import DatabaseUnavailable, Unauthenticated
from isochrone_collector.http_api import responses, route_tables, streams
from isochrone_wire.json_format import to_json_value
from isochrone_wire.model import SECOND_US
from isochrone_wire.operations import Role
from isochrone_wire.routes import RouteTable
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
async def test_resuming_misses_and_repeats_nothing(
    web: Web, path: str, headers: dict[str, str], expected: list[int]
) -> None:
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
    monkeypatch.setattr(streams, "SEND_TIMEOUT_US", SECOND_US // 5)
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


async def test_a_revoked_credential_ends_a_silent_stream_and_a_long_poll(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
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
