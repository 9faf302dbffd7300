"""The transport on the streams of real providers: the caller gets them, or the answer of the second member."""

import asyncio
import json
from dataclasses import replace

import httpx2
import pytest

from fixtures.peer import ANSWER, STREAM_HEAD, Handler, peer, saying
from fixtures.routing_client import MESSAGES, World
from isochrone.routing.httpx2 import AsyncTransport
from testdata.wire_corpus import CORPUS, Stream

PATHS = {"openai-chat": "chat/completions", "openai-responses": "responses", "anthropic": "messages"}
# One stream of each kind that a client has to tell apart; the unit tests have all of them.
KINDS = ("empty-data", "ping", "unframed", "error-before", "limit-before", "abort-before", "filter", "refusal", "cut")
STREAMS = [
    stream
    for stream in CORPUS
    if stream.is_stream and stream.dialect in PATHS and any(kind in stream.name for kind in KINDS)
]


def provider(stream: Stream) -> Handler:
    fields = "".join(f"{name}: {value}\r\n" for name, value in stream.headers.items())
    head = f"HTTP/1.1 200 OK\r\n{fields}connection: close\r\n\r\n".encode()

    async def handle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for data in (head, *(frame for _, frame in stream.frames)):
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(0)

    return handle


@pytest.mark.parametrize("stream", STREAMS, ids=repr)
async def test_what_the_caller_gets(world: World, stream: Stream) -> None:
    """A stream that fails before its first content costs the caller nothing; any other arrives unchanged."""
    async with peer(provider(stream)) as first, peer(saying(STREAM_HEAD + ANSWER)) as second:
        entries = [world.entry(str(port), url=f"http://127.0.0.1:{port}/v1") for port in (first, second)]
        entries = [replace(entry, dialect=stream.dialect) for entry in entries]
        world.publish(replace(entries[0], weight=1.0), entries[1])
        routes = await asyncio.to_thread(world.routes)
        async with httpx2.AsyncClient(transport=AsyncTransport(routes)) as client:
            body = {"model": "chat", "stream": True, "messages": MESSAGES}
            answer = await client.post(f"http://127.0.0.1:9/v1/{PATHS[stream.dialect]}", json=body)
    is_failed = stream.expected.client == "failed"
    assert answer.content == (ANSWER if is_failed else b"".join(frame for _, frame in stream.frames))
    assert routes.counters["failovers"] == is_failed


async def test_a_long_answer_without_a_stream_is_no_failure(world: World) -> None:
    """JSON that is longer than any error body is not judged as one."""
    body = json.dumps({"choices": [{"message": {"content": "error " * 9000}}]}).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
    async with peer(saying(head + body)) as first:
        world.publish(world.entry("long", weight=1.0, url=f"http://127.0.0.1:{first}/v1"), world.entry("none"))
        routes = await asyncio.to_thread(world.routes)
        async with httpx2.AsyncClient(transport=AsyncTransport(routes)) as client:
            request = {"model": "chat", "messages": MESSAGES}
            answer = await client.post("http://127.0.0.1:9/v1/chat/completions", json=request)
    assert answer.content == body
    assert routes.counters["failovers"] == 0
