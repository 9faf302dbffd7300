"""`isochrone gateway`, the real program, with the SDKs of OpenAI and Anthropic against the simulator's providers."""

import asyncio
import json
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest

from fixtures.gateway import BODY, Gateway, StartGateway, events_of
from fixtures.peer import ANSWER, STREAM_HEAD, peer
from fixtures.routing_client import MESSAGES, PATIENCE, REGION, World
from isochrone_wire.routes import Hedge
from testdata import sdks
from testdata.ports import dead_url
from testdata.waiting import BUSY, eventually

STREAM = BODY | {"stream": True}


def openai_of(gateway: Gateway, key: str = "none") -> Any:
    return sdks.openai.OpenAI(base_url=gateway.url, api_key=key, max_retries=0)


def anthropic_of(gateway: Gateway, key: str = "none") -> Any:
    return sdks.anthropic.Anthropic(base_url=gateway.url.removesuffix("/v1"), api_key=key, max_retries=0)


def streamed(client: Any) -> str:
    with client.chat.completions.create(model="chat", messages=MESSAGES, max_tokens=3, stream=True) as events:
        chunks = list(events)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    return str(chunks[0].model)


def test_the_sdk_of_openai(world: World, gateway: StartGateway) -> None:
    """With only another base URL it gets answers, streams, responses and the routes as models."""
    world.first_then("none", "crlf")
    client = openai_of(gateway())
    answer = client.chat.completions.with_raw_response.create(model="chat", messages=MESSAGES, max_tokens=3)
    assert answer.parse().model == "fault-none"
    assert answer.headers["x-isochrone-target"] == "sim/none"
    assert streamed(client) == "fault-none"
    assert [model.id for model in client.models.list()] == ["chat"]
    world.publish(world.entry("none", weight=1.0, dialect="openai-responses"))
    eventually(PATIENCE, lambda: responds(client), "the table with a member for responses")


@asynccontextmanager
async def reading(gateway: Gateway) -> AsyncIterator[httpx.Response]:
    """A stream whose head has arrived."""
    async with (
        httpx.AsyncClient(trust_env=False, timeout=PATIENCE * BUSY) as client,
        client.stream("POST", f"{gateway.url}/chat/completions", json=STREAM) as answer,
    ):
        yield answer


def responds(client: Any) -> bool:
    with suppress(sdks.openai.APIStatusError):
        return bool(client.responses.create(model="chat", input="[0123456789ab] Hi").output_text)
    return False


def test_the_sdk_of_anthropic(world: World, gateway: StartGateway) -> None:
    """It gets answers, streams, the routes as models, and errors with their message."""
    world.publish(world.entry("none", weight=1.0, dialect="anthropic"))
    client = anthropic_of(gateway())
    assert client.messages.create(model="chat", messages=MESSAGES, max_tokens=3).model == "fault-none"
    with client.messages.stream(model="chat", messages=MESSAGES, max_tokens=3) as stream:
        assert "".join(stream.text_stream)
    assert [model.id for model in client.models.list()] == ["chat"]
    with pytest.raises(sdks.anthropic.NotFoundError, match="not a route of this gateway: use 'chat'"):
        client.messages.create(model="claude", messages=MESSAGES, max_tokens=3)


@pytest.mark.parametrize("fault", ["dead", "429", "500", "in-band-error-first"])
def test_a_failing_first_choice_costs_no_request(world: World, gateway: StartGateway, fault: str) -> None:
    """Before the first content, the second member answers."""
    world.publish(world.entry(fault, weight=1.0, url=dead_url() if fault == "dead" else ""), world.entry("none"))
    client = openai_of(gateway())
    assert [streamed(client) for _ in range(5)] == ["fault-none"] * 5


def test_status_and_errors_of_members(world: World, gateway: StartGateway) -> None:
    """The caller gets the last failure as it is; without any response it is a 502."""
    world.first_then("500", "503")
    running = gateway()
    answer = running.post()
    assert answer.status_code == 503
    assert "error" in answer.json()
    world.publish(world.entry("none", weight=1.0, url=dead_url()))
    eventually(PATIENCE, lambda: running.post().status_code == 502, "the table with a dead member")
    assert "ConnectError" in running.post().json()["error"]["message"]


def test_a_stalled_stream_is_hedged(world: World, gateway: StartGateway) -> None:
    """The second member answers, and the request to the first one is ended."""
    before = len(world.simulator.truth())
    world.first_then("silence", "none", hedge=Hedge(target="sim/none", delay_us=100_000))
    assert streamed(openai_of(gateway())) == "fault-none"
    eventually(PATIENCE, lambda: world.simulator.endings(before) == ["client_left", "complete"], "both exchanges ended")


async def test_bytes_arrive_unchanged_and_at_once(world: World, gateway: StartGateway) -> None:
    """The body is the member's, also what is no event; a piece does not wait for the next one."""
    first, rest = (
        b'\xef\xbb\xbf: hello\r\ndata: {"choices":[{"delta":{"content":"a"}}]}\r\n\r\n',
        b": \xff\n\n" + ANSWER,
    )
    may_go_on = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + first)
        await may_go_on.wait()
        writer.write(rest)
        await writer.drain()

    async with peer(serve) as port:
        world.publish(world.entry("none", weight=1.0, url=f"http://127.0.0.1:{port}/v1"))
        running = await asyncio.to_thread(gateway)
        async with reading(running) as answer:
            received = answer.aiter_raw()
            got = b""
            while len(got) < len(first):
                got += await anext(received)
            assert got == first
            may_go_on.set()
            assert got + b"".join([part async for part in received]) == first + rest


async def test_a_slow_reader_slows_the_member_down(world: World, gateway: StartGateway) -> None:
    """What the caller does not read is not read from the member: the gateway holds a bounded part."""
    piece, sent = b": " + b"x" * 65_533 + b"\n", Counter[str]()

    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + ANSWER.split(b"\n\n")[0] + b"\n\n")
        while True:
            writer.write(piece)
            await writer.drain()
            sent["pieces"] += 1

    async with peer(flood) as port:
        world.publish(world.entry("none", weight=1.0, url=f"http://127.0.0.1:{port}/v1"))
        running = await asyncio.to_thread(gateway)
        async with reading(running) as answer:
            await stopped(sent)
            before = sent["pieces"]
            assert before * len(piece) < 64 << 20
            taken = 0
            async for data in answer.aiter_raw():
                taken += len(data)
                if taken > 64 << 20:
                    break
            assert sent["pieces"] > before


async def stopped(sent: Counter[str]) -> None:
    """Wait until nothing more is sent."""
    last = -1
    while last != sent["pieces"] or not last:
        last = sent["pieces"]
        await asyncio.sleep(0.5)


@pytest.mark.parametrize("fault", ["silence", "stall"])
def test_a_caller_that_leaves_ends_the_request(world: World, gateway: StartGateway, fault: str) -> None:
    """Before and after the first content, the member's connection is closed."""
    before = len(world.simulator.truth())
    world.publish(world.entry(fault, weight=1.0))
    running = gateway()
    host, port = running.url.removeprefix("http://").removesuffix("/v1").split(":")
    body = json.dumps(STREAM).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection((host, int(port))) as caller:
        caller.sendall(head + body)
        if fault == "silence":
            eventually(PATIENCE, lambda: len(world.simulator.truth()) > before, "the request arrives")
        else:
            assert caller.recv(1000).startswith(b"HTTP/1.1 200")
    eventually(PATIENCE, lambda: world.simulator.endings(before) == ["client_left"], "the exchange ended")
    eventually(PATIENCE, lambda: bool(running.logged("gateway.request")), "the line")
    assert running.logged("gateway.request")[0]["ending"] == "the caller left"


def test_a_stream_that_breaks_off_breaks_off(world: World, gateway: StartGateway) -> None:
    """After content, a caller sees that the answer is incomplete, and the log has the reason."""
    world.first_then("reset", "none")
    running = gateway()
    with pytest.raises(httpx.RemoteProtocolError):
        running.post(json=STREAM)
    eventually(PATIENCE, lambda: bool(running.logged("gateway.request")), "the line")
    (line,) = running.logged("gateway.request")
    assert line["ending"].startswith("broken off: ReadError")
    assert (line["route"], line["target"], line["status"]) == ("chat", "sim/reset", 200)


async def test_the_key_is_the_members(world: World, gateway: StartGateway) -> None:
    """A member gets its own key, or none: never the caller's, and nothing that describes the caller."""
    heads: list[bytes] = []

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(STREAM_HEAD + ANSWER)
        await writer.drain()

    async with peer(record, reads_head=False) as port:
        url = f"http://127.0.0.1:{port}/v1"
        world.publish(world.entry("none", weight=1.0, url=url, credential_ref="my-sim"))
        running = await asyncio.to_thread(gateway, MY_SIM_API_KEY="sk-member")
        headers = {"authorization": "Bearer caller", "x-api-key": "caller", "cookie": "a=caller"}
        headers |= {"x-forwarded-for": "caller", "x-real-ip": "caller", "referer": "http://caller"}
        path = "/chat/completions?key=caller&beta=1"
        await asyncio.to_thread(running.post, path, json=STREAM, headers=headers)
        world.publish(world.entry("none", weight=1.0, url=url))
        for _ in range(400):
            if b"sk-member" not in heads[-1]:
                break
            await asyncio.to_thread(running.post, path, json=STREAM, headers=headers)
    assert b"sk-member" not in heads[-1]
    assert b"Bearer sk-member" in heads[0]
    assert not any(b"caller" in head for head in heads)
    assert all(head.startswith(b"POST /v1/chat/completions?beta=1 ") for head in heads)


def test_requests_that_no_member_can_take(world: World, gateway: StartGateway) -> None:
    """Each has an error that names the way out."""
    running = gateway("--route", "chat")
    assert running.get("/readyz").status_code == 503
    assert error_of(running.post()) == (503, "no route table has arrived from the collector yet")
    world.publish(world.entry("none", weight=1.0, credential_ref="my-sim"))
    eventually(PATIENCE, lambda: running.get("/readyz").is_success, "the table")
    status, message = error_of(running.post())
    assert "sim/none" in message
    assert "MY_SIM_API_KEY" in message
    assert status >= 400
    assert error_of(running.post(json=BODY | {"model": "x"})) == (
        404,
        "the model 'x' is not a route of this gateway: use 'chat'",
    )
    for answer in (running.post("/embeddings"), running.post(json=[])):
        assert "POST /v1/chat/completions, /v1/responses and /v1/messages" in error_of(answer)[1]


def test_only_the_routes_named_are_served(world: World, gateway: StartGateway) -> None:
    """Other routes of the plan are unknown here."""
    world.first_then("none", "crlf")
    world.publish(world.entry("none", weight=1.0), route="voice")
    running = gateway("--route", "voice")
    assert running.post(json=BODY | {"model": "voice"}).is_success
    assert error_of(running.post())[0] == 404
    assert [one["id"] for one in running.get("/v1/models").json()["data"]] == ["voice"]


def error_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["message"]


def test_pages_of_a_browser_are_refused(world: World, gateway: StartGateway) -> None:
    """On loopback without a token, a request of a page is refused by `Host` (DNS rebinding) and by `Origin`."""
    world.first_then("none", "crlf")
    running = gateway()
    assert error_of(running.post(headers={"host": "evil.example:4000"}))[0] == 403
    assert error_of(running.post(headers={"origin": "https://evil.example"}))[0] == 403
    assert running.get("/v1/models", headers={"host": "evil.example"}).status_code == 403
    assert running.post(headers={"host": "localhost:4000"}).is_success
    assert running.get("/healthz", headers={"host": "10.0.0.7"}).is_success


def test_other_machines_need_the_token(world: World, gateway: StartGateway) -> None:
    """Off loopback it does not start without a token; with one, callers send it as their API key, under any host."""
    refused = gateway.start("--listen", "0.0.0.0:0")
    assert refused.process.wait(PATIENCE * BUSY) == 2
    assert "ISOCHRONE_GATEWAY_TOKEN" in refused.log.read_text()
    world.first_then("none", "crlf")
    running = gateway(listen="0.0.0.0:0", ISOCHRONE_GATEWAY_TOKEN="secret")
    assert error_of(running.post()) == (401, "the API key is not the token of this gateway")
    with pytest.raises(sdks.openai.AuthenticationError):
        streamed(openai_of(running, "wrong"))
    assert streamed(openai_of(running, "secret")) == "fault-none"
    for headers in ({"x-api-key": "secret"}, {"authorization": "Bearer secret", "host": "gateway.internal"}):
        assert running.post(headers=headers).is_success
    assert running.get("/metrics").status_code == 401
    assert running.get("/healthz").is_success
    assert "secret" not in running.log.read_text()


def test_bodies_are_bounded(world: World, gateway: StartGateway) -> None:
    """A larger body is refused before it is read, with its length or without."""
    world.first_then("none", "crlf")
    running = gateway()
    large = b"x" * (33 << 20)
    for content in (large, iter([large])):
        answer = httpx.post(f"{running.url}/chat/completions", content=content, trust_env=False)
        assert error_of(answer) == (413, "the body of the request is larger than 32 MiB")


def connected(gateway: Gateway, data: bytes = b"") -> socket.socket:
    """A connection that has sent this."""
    host, port = gateway.url.removeprefix("http://").removesuffix("/v1").split(":")
    caller = socket.create_connection((host, int(port)), timeout=PATIENCE * BUSY)
    caller.sendall(data)
    return caller


HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n"


@pytest.mark.parametrize("sent", [b"", HEAD[:20]])
@pytest.mark.parametrize("before", [b"", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"])
def test_callers_that_send_no_request_are_cut_off(gateway: StartGateway, before: bytes, sent: bytes) -> None:
    """A connection without a whole head is closed after its time, the first one and later ones."""
    with connected(gateway("--request-timeout", "0.3"), before) as caller:
        if before:
            assert caller.recv(1000).startswith(b"HTTP/1.1 200 ")
        caller.sendall(sent)
        while caller.recv(1000):
            pass


def test_a_body_that_does_not_arrive_is_refused(gateway: StartGateway) -> None:
    """It is a 408 after its time, and the connection is closed."""
    with connected(gateway("--request-timeout", "0.3"), HEAD + b"{") as caller:
        received = b""
        while data := caller.recv(1000):
            received += data
    assert received.startswith(b"HTTP/1.1 408 ")
    assert b"the body of the request is not complete after 0.3 s" in received


def test_connections_are_limited(world: World, gateway: StartGateway) -> None:
    """One beyond the limit is closed at once, and the log has the option; when another one ends, there is room."""
    world.first_then("none", "crlf")
    running = gateway("--max-connections", "1")
    with connected(running, HEAD), connected(running) as second:
        assert second.recv(1) == b""
    assert "raise --max-connections" in running.log.read_text()

    def is_served() -> bool:
        with suppress(httpx.TransportError):
            return running.post().is_success
        return False

    eventually(PATIENCE, is_served, "an answer")


def test_limits_of_members(world: World, gateway: StartGateway) -> None:
    """A member that is silent is given up in time, and a refusal may be the caller's."""
    world.first_then("silence", "none")
    assert streamed(openai_of(gateway("--first-token", "0.2"))) == "fault-none"
    world.publish(world.entry("silence", weight=1.0))
    assert gateway("--deadline", "0.2").post(json=STREAM).status_code == 504
    world.first_then("403", "none")
    assert gateway().post().is_success
    assert gateway("--no-failover-on-refusals").post().status_code == 403


def test_metrics_and_log(world: World, gateway: StartGateway) -> None:
    """A request is counted by route, member and status, and has a line; the start names the members. Twenty requests
    show whether they follow the weights.
    """
    world.publish(world.entry("none", weight=1.0), world.entry("crlf", credential_ref="my-sim"))
    running = gateway()
    assert running.post(json=STREAM).is_success
    text = running.get("/metrics").text
    assert 'isochrone_gateway_requests_total{route="chat",status="200",target="sim/none"} 1.0' in text
    assert 'isochrone_gateway_events_total{event="requests"} 1.0' in text
    assert 'isochrone_gateway_first_content_seconds_count{route="chat",target="sim/none"} 1.0' in text
    assert 'isochrone_gateway_table_stale_timestamp_seconds{route="chat"}' in text
    (line,) = running.logged("gateway.request")
    for _ in range(19):
        assert running.post(json=STREAM).is_success
    assert f'isochrone_routing_effective{{client_region="{REGION}",route="chat"}} 1.0' in running.get("/metrics").text
    assert (line["route"], line["target"], line["status"], line["ending"]) == ("chat", "sim/none", 200, "complete")
    assert line["bytes"] > 0
    assert 0 < line["first_ms"] <= line["ms"]
    eventually(PATIENCE, lambda: bool(running.logged("gateway.route")), "the members")
    (members,) = running.logged("gateway.route")
    assert members["members"] == ["sim/none"]
    assert "MY_SIM_API_KEY" in members["left_out"]["sim/crlf"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_ends_after_the_open_streams(world: World, gateway: StartGateway, number: signal.Signals) -> None:
    """After a signal, connections are refused, streams go on to their end, and the exit code is 0."""
    may_end = asyncio.Event()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + ANSWER)
        await may_end.wait()

    async with peer(serve) as port:
        world.publish(world.entry("none", weight=1.0, url=f"http://127.0.0.1:{port}/v1"))
        running = await asyncio.to_thread(gateway)
        async with reading(running) as answer:
            running.process.send_signal(number)
            await asyncio.to_thread(eventually, PATIENCE, lambda: not accepts(running), "it refuses connections")
            assert running.process.poll() is None
            may_end.set()
            assert len(events_of((await answer.aread()).decode())) == 1
    assert await asyncio.to_thread(running.process.wait, PATIENCE * BUSY) == 0


def accepts(gateway: Gateway) -> bool:
    host, port = gateway.url.removeprefix("http://").removesuffix("/v1").split(":")
    with suppress(ConnectionError), socket.create_connection((host, int(port))):
        return True
    return False


def test_a_second_signal_ends_it_at_once(world: World, gateway: StartGateway) -> None:
    """A stream that never ends does not keep it alive."""
    world.publish(world.entry("silence", weight=1.0))
    running = gateway()
    with socket.create_connection(("127.0.0.1", int(running.url.split(":")[2].split("/")[0]))) as caller:
        body = json.dumps(STREAM).encode()
        caller.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
        )
        caller.sendall(body)
        eventually(PATIENCE, lambda: bool(world.simulator.truth()), "the request arrives")
        running.process.terminate()
        eventually(PATIENCE, lambda: bool(running.logged("gateway.stopping")), "the first signal")
        running.process.terminate()
        assert running.process.wait(PATIENCE * BUSY) == 0


def test_a_port_in_use_is_an_error(gateway: StartGateway) -> None:
    """The command ends with the address and a hint."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = gateway.start("--listen", f"127.0.0.1:{taken.getsockname()[1]}")
        assert refused.process.wait(PATIENCE * BUSY) == 2
    assert "cannot listen on 127.0.0.1:" in refused.log.read_text()
    assert "--listen" in refused.log.read_text()
