"""Responses of members that break off, never end or cannot be read, and callers that leave, through the transports."""

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest

from fixtures.peer import ANSWER, Handler, peer
from fixtures.routing_client import MESSAGES, PATIENCE, World, ask, client_of, stream
from isochrone.routing.engine import Attempt, Engine, Incoming, Outgoing
from isochrone.routing.httpx2 import AsyncTransport, Transport
from isochrone_wire.routes import Hedge, RouteEntry
from testdata import sdks
from testdata.waiting import eventually

URL = "http://127.0.0.1:1/v1/chat/completions"
STREAMED = {"model": "chat", "messages": MESSAGES, "max_tokens": 3, "stream": True}
GZIPPED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n"


def in_one_write(data: bytes) -> Handler:
    """A handler that reads a small request and sends these bytes."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.write(data)
        await writer.drain()

    return handle


@pytest.mark.parametrize("fault", ["cut", "reset", "html"])
def test_an_answer_that_breaks_off_costs_no_request(world: World, fault: str) -> None:
    """A response without a stream is read to its end, so that the next member is asked if half of it is missing; a web
    page is no answer.
    """
    world.first_then(fault, "none")
    routes = world.routes()
    assert ask(client_of(routes)) == "fault-none"
    assert routes.counters["failovers"] == 1


def test_a_web_page_is_no_stream(world: World) -> None:
    """A web page in place of a stream is a failure of the member."""
    world.first_then("html", "none")
    assert stream(client_of(world.routes())) == "fault-none"


@pytest.mark.parametrize(("fault", "key"), [("401", "own"), ("401", None), ("404", "own")])
def test_a_refused_key(world: World, fault: str, key: str | None) -> None:
    """A refusal of the member's own key is its failure; that of the caller's key, or of the request, is not."""
    world.publish(world.entry(fault, weight=1.0, credential_ref=key), world.entry("none"))
    client = client_of(world.routes(keys={"own": "sk-1"}))
    if (fault, key) == ("401", "own"):
        assert ask(client) == "fault-none"
    else:
        with pytest.raises(sdks.openai.APIStatusError) as caught:
            ask(client)
        assert caught.value.status_code == int(fault)


def test_comments_without_end_are_the_callers(world: World) -> None:
    """A stream that sends bytes without content is held up to some megabytes; then the caller reads it as it comes."""
    world.first_then("endless-comments", "none")
    with (
        httpx2.Client(transport=Transport(world.routes()), timeout=30) as client,
        client.stream("POST", URL, json=STREAMED) as response,
    ):
        size = 0
        for data in response.iter_bytes():
            size += len(data)
            if size > 16 << 20:
                break


async def test_a_compressed_stream_is_the_callers(world: World) -> None:
    """A provider that compresses although it was not asked to has not failed: the caller can read it."""
    async with peer(in_one_write(GZIPPED + gzip.compress(ANSWER))) as port:
        world.publish(world.entry("crlf", weight=1.0, url=f"http://127.0.0.1:{port}/v1"), world.entry("none"))
        routes = await asyncio.to_thread(world.routes)
        async with httpx2.AsyncClient(transport=AsyncTransport(routes)) as client:
            answer = await client.post(URL, json=STREAMED)
    assert answer.content == ANSWER
    assert routes.counters["failovers"] == 0


def test_a_stall_after_the_first_token_is_the_callers(world: World) -> None:
    """The caller's own timeout ends it, and its connection."""
    world.first_then("stall", "none")
    before = len(world.simulator.truth())
    client = client_of(world.routes(), timeout=0.5)
    with pytest.raises((httpx2.ReadTimeout, sdks.openai.APITimeoutError)):
        list(client.chat.completions.create(**STREAMED | {"max_tokens": 40}))
    eventually(PATIENCE, lambda: world.simulator.endings(before) == ["client_left"], "the end of the exchange")


def test_a_body_in_pieces_is_routed(world: World) -> None:
    """A body that a generator yields is sent whole, to a member and to the request's own address."""
    world.first_then("none", "crlf")

    def pieces(model: bytes) -> Iterator[bytes]:
        yield b'{"model": "' + model
        yield b'", "messages": [{"role": "user", "content": "[0123456789ab] Hi"}]}'

    with httpx2.Client(transport=Transport(world.routes())) as client:
        assert client.post(URL, content=pieces(b"chat")).json()["model"] == "fault-none"
        own = f"{world.simulator.base_url}/chat/completions"
        assert client.post(own, content=pieces(b"fault-cr")).json()["model"] == "fault-cr"


async def test_an_asynchronous_body_in_pieces_is_routed(world: World) -> None:
    """As above, with an asynchronous generator."""
    world.first_then("none", "crlf")
    routes = await asyncio.to_thread(world.routes)

    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"model": "chat", '
        yield b'"messages": [{"role": "user", "content": "[0123456789ab] Hi"}]}'

    async with httpx2.AsyncClient(transport=AsyncTransport(routes)) as client:
        assert (await client.post(URL, content=pieces())).json()["model"] == "fault-none"


async def test_a_caller_that_leaves_ends_both_requests(world: World) -> None:
    """A cancelled request ends the first one and the second one at their providers."""
    world.first_then("silence", "headers-only", hedge=Hedge(target="sim/headers-only", delay_us=50_000))
    before = len(world.simulator.truth())
    routes = await asyncio.to_thread(world.routes)
    async with httpx2.AsyncClient(transport=AsyncTransport(routes), timeout=60) as client:
        asking = asyncio.create_task(client.post(URL, json=STREAMED))
        await asyncio.to_thread(eventually, PATIENCE, lambda: routes.counters["hedges"] == 1, "the second request")
        await asyncio.sleep(0.1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        left = ["client_left"] * 2
        await asyncio.to_thread(eventually, PATIENCE, lambda: world.simulator.endings(before) == left, "the ends")


@pytest.mark.parametrize("turns", range(6))
async def test_a_response_that_comes_as_the_caller_leaves_is_closed(
    world: World, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """However many turns of the event loop lie between a response and the cancellation, no connection stays open."""
    world.first_then("none", "crlf", hedge=Hedge(target="sim/crlf", delay_us=0))
    routes = await asyncio.to_thread(world.routes)
    engine, arrives = Engine(routes, routes.new_pool()), asyncio.Event()
    counts = Counter[str]()

    async def close() -> None:
        counts["closed"] += 1

    async def attempt(_outgoing: Outgoing, _request: Any, entry: RouteEntry) -> Attempt:
        await (arrives if entry.target == "sim/crlf" else asyncio.Event()).wait()
        counts["opened"] += 1
        return Attempt(entry, Incoming(status=200, headers=[], rest=_nothing(), aclose=close))

    monkeypatch.setattr(engine, "_attempt", attempt)
    body = json.dumps(STREAMED).encode()
    outgoing = Outgoing(method="POST", url=URL, headers=[], body=body, extensions={})
    asking = asyncio.create_task(engine.send(outgoing))
    while not routes.counters["hedges"]:
        await asyncio.sleep(0.01)
    arrives.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    if asking.cancel():
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.sleep(0.05)
        assert counts["closed"] == counts["opened"]
    await engine.aclose()


async def _nothing() -> AsyncIterator[bytes]:
    yield b""


def test_members_that_all_rest(world: World) -> None:
    """While every member rests after a failure, requests still reach them in the order of the table."""
    world.publish(world.entry("500", weight=1.0), world.entry("503"))
    routes = world.routes()
    client = client_of(routes)
    for _ in range(3):
        with pytest.raises(sdks.openai.InternalServerError) as caught:
            ask(client)
        assert caught.value.status_code == 503


def test_a_table_whose_only_weight_is_of_another_dialect(world: World) -> None:
    """Members without weight are asked in their order if those with weight cannot take the request."""
    world.publish(world.entry("crlf", weight=1.0, dialect="gemini"), world.entry("none"), world.entry("cr"))
    assert ask(client_of(world.routes())) == "fault-none"
