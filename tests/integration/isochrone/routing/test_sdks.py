"""The transports of `isochrone.routing` with the SDKs of OpenAI and Anthropic, against the simulator's providers."""

import asyncio
import gzip
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from prometheus_client import REGISTRY

import isochrone.routing.httpx
import isochrone.routing.httpx2
from fixtures.peer import ANSWER, STREAM_HEAD, Handler, peer
from fixtures.routing_client import MESSAGES, PATIENCE, REGION, World, ask, client_of, stream
from fixtures.simulator import Simulator
from isochrone.routing import Routes
from isochrone.routing.engine import Attempt, Engine, Incoming, Outgoing, Sending
from isochrone.routing.httpx2 import AsyncTransport, Transport
from isochrone_client.window import now_at
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import Hedge, RouteEntry, RouteState
from testdata import sdks
from testdata.ports import dead_url
from testdata.waiting import eventually

TOOLS: Any = [{"type": "function", "function": {"name": "pay", "parameters": {"type": "object", "properties": {}}}}]


def test_routing_that_is_not_effective_is_logged_and_exported(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Without the key of the member with most of the weight requests are answered, but not by the table: the share that
    follows it is a metric, and an error says so once.
    """
    locked = world.entry("crlf", weight=0.75, credential_ref="nobody")
    world.publish(locked, world.entry("none", weight=0.25))
    routes = world.routes(metrics=True)
    client = client_of(routes)
    assert Counter(ask(client) for _ in range(25)) == {"fault-none": 25}
    assert routes.effective == {"chat": 0.25}
    labels = {"client_region": REGION, "route": "chat"}
    assert REGISTRY.get_sample_value("isochrone_routing_effective", labels) == 0.25
    (error,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert f"routing of chat from {REGION} is not effective: of the latest requests only 25 %" in error.getMessage()


def test_traffic_is_split_by_the_weights(world: World) -> None:
    """Of 60 requests about three in four go to the first member, with its model in place of the route's name."""
    world.publish(world.entry("none", weight=0.75), world.entry("crlf", weight=0.25))
    client = client_of(world.routes())
    served = Counter(ask(client) for _ in range(60))
    assert 32 <= served["fault-none"] <= 57
    assert served.total() == 60


@pytest.mark.parametrize("fault", ["dead", "429", "500", "503"])
@pytest.mark.parametrize("asked", [ask, stream])
def test_a_failing_first_choice_costs_no_request(world: World, asked: Any, fault: str) -> None:
    """A first choice at which nothing listens, a 429 and a 5xx are followed by the second, ten of ten times."""
    world.publish(world.entry(fault, weight=1.0, url=dead_url() if fault == "dead" else ""), world.entry("none"))
    routes = world.routes()
    client = client_of(routes)
    assert [asked(client) for _ in range(10)] == ["fault-none"] * 10
    # After a failure the member rests, so that not every request waits for it.
    assert 1 <= routes.counters["failovers"] <= 9


@pytest.mark.parametrize("fault", ["in-band-error-first", "role-only"])
def test_a_stream_that_fails_before_its_first_content(world: World, fault: str) -> None:
    """An error under status 200 is a failure of the member as long as the caller has no content; a finish is an end."""
    world.first_then(fault, "none")
    client = client_of(world.routes())
    if fault == "role-only":
        chunks = list(client.chat.completions.create(model="chat", messages=MESSAGES, stream=True))
        assert chunks[0].model == "fault-role-only"
    else:
        assert stream(client) == "fault-none"


def test_a_stream_that_fails_later_is_the_callers(world: World) -> None:
    """After content, an error is passed on: another member would answer differently."""
    world.first_then("reset", "none")
    client = client_of(world.routes())
    with pytest.raises(sdks.openai.APIConnectionError):
        list(client.chat.completions.create(model="chat", messages=MESSAGES, stream=True))


def test_the_last_failure_is_returned(world: World) -> None:
    """If every member fails, the caller gets the response of the last one, or its error, also while all rest."""
    world.first_then("500", "503")
    client = client_of(world.routes())
    for _ in range(3):
        with pytest.raises(sdks.openai.InternalServerError) as caught:
            ask(client)
        assert caught.value.status_code == 503
    world.publish(world.entry("none", weight=1.0, url=dead_url()))
    routes = world.routes()
    with pytest.raises(sdks.openai.APIConnectionError):
        ask(client_of(routes))


def test_throttled_members_are_left_alone(world: World) -> None:
    """When every member has answered 429, the next request is refused with the time to wait, without asking them."""
    world.publish(world.entry("429", weight=1.0))
    routes = world.routes()
    client = client_of(routes)
    with pytest.raises(sdks.openai.RateLimitError):
        ask(client)
    with pytest.raises(sdks.openai.RateLimitError, match="no member of the route has capacity") as caught:
        ask(client)
    assert int(caught.value.response.headers["retry-after"]) >= 1
    assert routes.counters["no_capacity"] == 1


def test_a_route_without_a_member_for_the_request(world: World) -> None:
    """The error names the route and why no member can take the request, which is not sent to the SDK's own address."""
    world.publish(world.entry("none", weight=1.0, dialect="gemini"), world.entry("crlf", credential_ref="other"))
    routes = world.routes(keys={})
    with pytest.raises(sdks.openai.BadRequestError) as caught:
        ask(client_of(routes, base_url=world.simulator.base_url))
    assert "no member of the route chat can take this request: " in str(caught.value)
    assert "sim/none speaks gemini, not openai-chat; sim/crlf has no key: set OTHER_API_KEY" in str(caught.value)
    assert routes.counters["no_member"] == 1


def test_the_callers_key_stays_at_its_address(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A member without a credential gets the caller's key at the caller's own address or with leave; the log says so
    once. A caller without a key has none to lose.
    """
    world.publish(world.entry("none", weight=1.0, url=f"{world.simulator.base_url}/"), world.entry("crlf"))
    with caplog.at_level("WARNING", "isochrone.routing"):
        routes = world.routes(send_callers_key=False)
        for _ in range(2):
            with pytest.raises(sdks.openai.BadRequestError, match="sim/none has no credential"):
                ask(client_of(routes))
    line = "sim/none has no credential: name one in the plan, or let it have the caller's key with `send_callers_key`"
    assert [record.message for record in caplog.records] == [line, line.replace("none", "crlf")]
    assert routes.counters["key_withheld"] == 4
    assert ask(client_of(routes, base_url=world.simulator.base_url)) == "fault-none"
    with httpx2.Client(transport=Transport(routes)) as client:
        assert client.post(URL, json={"model": "chat", "messages": MESSAGES}).json()["model"] == "fault-none"


@pytest.mark.parametrize("kind", [b"text/plain", b"text/html"])
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_member_cannot_redirect_the_callers_key(world: World, status: int, kind: bytes) -> None:
    """A client that follows redirections gets the status, and sends its key to no address that a member names."""
    heads: list[bytes] = []

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        location = b"http://127.0.0.1:%d/elsewhere" % writer.get_extra_info("sockname")[1]
        head = b"HTTP/1.1 %d x\r\nLocation: %s\r\ncontent-type: %s\r\ncontent-length: 0\r\n\r\n"
        writer.write(head % (status, location, kind))
        await writer.drain()

    async with peer(record, reads_head=False) as port:
        world.publish(world.entry("none", weight=1.0, url=f"http://127.0.0.1:{port}/v1", credential_ref="mine"))
        routes = await asyncio.to_thread(world.routes, keys={"mine": "sk-1"}, send_callers_key=False)
        options: Any = {"headers": {"x-api-key": "caller"}, "follow_redirects": True}
        async with httpx2.AsyncClient(transport=AsyncTransport(routes), **options) as client:
            answer = await client.post("http://own/v1/chat/completions", json={"model": "chat", "messages": MESSAGES})
    assert answer.status_code == status
    assert len(heads) == 1
    assert b"caller" not in heads[0]


def test_keys_are_those_of_the_members(world: World, simulator_with_key: Simulator) -> None:
    """A member gets its own key and not the caller's; a member whose key is missing is left out."""
    url = simulator_with_key.base_url
    world.publish(
        world.entry("crlf", weight=1.0, url=url, credential_ref="other"),
        world.entry("none", url=url, credential_ref="sim"),
    )
    world.server.lines[-1] = world.server.lines[-1].replace(b"fault-none", b"kimi-k2.5")
    routes = world.routes(keys={"sim": "sk-simulator-right-key"})
    client = client_of(routes)
    assert ask(client, temperature=1) == "kimi-k2.5"
    assert routes.counters["key_missing"] == 1


def test_keys_come_from_the_environment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `keys`, the key of a credential is in the variable that exports name, too, without a line feed."""
    world.publish(world.entry("none", weight=1.0, credential_ref="my-sim"))
    routes = world.routes()
    (entry,) = routes.table("chat").entries  # type: ignore[union-attr]  # published above
    assert routes.key(entry) is None
    monkeypatch.setenv("MY_SIM_API_KEY", "sk-1\n")
    assert routes.key(entry) == "sk-1"


@pytest.mark.parametrize("first", ["silence", "headers-only"])
def test_a_stalled_stream_is_hedged(world: World, first: str) -> None:
    """If the first choice has no content after the delay, the second answers, and the first is cancelled."""
    before = len(world.simulator.truth())
    world.first_then(first, "none", hedge=Hedge(target="sim/none", delay_us=100_000))
    routes = world.routes()
    assert stream(client_of(routes)) == "fault-none"
    assert (routes.counters["hedges"], routes.counters["hedges_won"]) == (1, 1)
    eventually(PATIENCE, lambda: world.simulator.endings(before) == ["client_left", "complete"], "both exchanges ended")


@pytest.mark.parametrize("limit", [{}, {"first_token_s": 0.2, "hedge_ratio": 0}])
async def test_a_stalled_stream_behind_a_proxy(world: World, limit: Any) -> None:
    """A blocking transport hedges and has its time limits, too, if its connections are those of a proxy."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/silent/" in head:
            await asyncio.Event().wait()
        writer.write(STREAM_HEAD + ANSWER)
        await writer.drain()

    silent = world.entry("silence", weight=1.0, url="http://a.example/silent/v1")
    world.publish(
        replace(silent, hedge=Hedge(target="sim/none", delay_us=100_000)),
        world.entry("none", url="http://a.example/v1"),
    )
    async with peer(serve, reads_head=False) as port:
        routes = await asyncio.to_thread(world.routes, **limit)
        routes._proxy = f"http://127.0.0.1:{port}"  # that of the members only
        with httpx2.Client(transport=Transport(routes), timeout=PATIENCE) as client:
            document = {"model": "chat", "messages": MESSAGES, "stream": True}
            answer = await asyncio.to_thread(client.post, "http://own/v1/chat/completions", json=document)
    assert answer.is_success
    assert routes.counters["hedges_won"] == (0 if limit else 1)


def test_a_client_that_is_closed_leaves_nothing(world: World) -> None:
    """A program may have a client for each request: routes forget the connections of a closed one."""
    world.first_then("none", "crlf")
    routes = world.routes()
    for _ in range(3):
        with client_of(routes) as client:
            assert ask(client) == "fault-none"
    assert not routes._blocking_pools


def test_hedges_have_a_budget(world: World) -> None:
    """After the first hedge, one needs twenty requests; a request without one waits for its member."""
    world.first_then("slow-headers", "none", hedge=Hedge(target="sim/none", delay_us=50_000))
    routes = world.routes()
    client = client_of(routes)
    assert [stream(client) for _ in range(3)] == ["fault-none", "fault-slow-headers", "fault-slow-headers"]
    assert routes.counters["hedges"] == 1


@pytest.mark.parametrize(
    ("hedge", "request_options", "table", "reason"),
    [
        (Hedge(target="sim/none", stall_lift=4.0, reason="the two stall together"), {}, {}, "not_published"),
        (Hedge(target="sim/none", delay_us=50_000), {"tools": TOOLS}, {}, "effects"),
        (Hedge(target="sim/none", delay_us=50_000), {}, {"state": RouteState.DEGRADED}, "state"),
    ],
)
def test_what_is_not_hedged(
    world: World, hedge: Hedge, request_options: dict[str, Any], table: dict[str, Any], reason: str
) -> None:
    """Members that stall together, tool calls and degraded routes have no second request."""
    world.first_then("slow-headers", "none", hedge=hedge, **table)
    routes = world.routes()
    assert stream(client_of(routes), **request_options) == "fault-slow-headers"
    assert (routes.counters["hedges"], routes.counters[f"not_hedged_{reason}"]) == (0, 1)


def test_tool_calls_are_hedged_on_request(world: World) -> None:
    """`hedge_effects` is for tools without effects."""
    world.first_then("silence", "none", hedge=Hedge(target="sim/none", delay_us=50_000))
    routes = world.routes(hedge_effects=True)
    assert stream(client_of(routes), tools=TOOLS) == "fault-none"


def test_a_hedged_failure_goes_on_to_the_third(world: World) -> None:
    """If neither of the two answers, the next member is asked."""
    world.publish(
        world.entry("slow-headers", weight=1.0, url=dead_url(), hedge=Hedge(target="sim/500", delay_us=50_000)),
        world.entry("500"),
        world.entry("none"),
    )
    assert stream(client_of(world.routes())) == "fault-none"


def test_a_restarted_service_has_the_last_table(world: World) -> None:
    """Without the collector, a new process uses the tables that the last one kept, with their instants."""
    world.first_then("none", "crlf")
    world.routes()
    eventually(PATIENCE, lambda: any(world.cache.glob("tables-*")), "the file")
    world.server.stop()
    assert ask(client_of(world.routes())) == "fault-none"
    (kept,) = world.cache.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.write_text("garbage")
    with pytest.raises(sdks.openai.APIConnectionError):
        ask(client_of(Routes(world.server.url, REGION, cache_folder=world.cache)))


def test_a_cache_that_cannot_be_written_is_no_failure(world: World, tmp_path: Path) -> None:
    """A read-only container routes, too."""
    (tmp_path / "file").touch()
    world.first_then("none", "crlf")
    routes = world.routes(cache_folder=tmp_path / "file")
    assert ask(client_of(routes)) == "fault-none"
    eventually(PATIENCE, lambda: routes.counters["cache_failed"] == 1, "the failure")


def test_garbage_is_ignored_and_counted(world: World) -> None:
    """What is no table changes nothing, and neither does one of another region."""
    world.first_then("none", "crlf")
    routes = world.routes()
    world.server.publish_line(b"garbage")
    world.server.publish_line(b"[" * 100_000)
    world.first_then("crlf", "none", client_region="eu-central-1")
    eventually(PATIENCE, lambda: routes.counters["tables_ignored"] == 3, "three ignored")
    assert ask(client_of(routes)) == "fault-none"
    world.first_then("crlf", "none")
    eventually(PATIENCE, lambda: ask(client_of(routes)) == "fault-crlf", "the next table")


def test_a_stream_resumes_after_the_last_generation(world: World) -> None:
    """After a restart of the collector, the stream goes on, authenticated."""
    world.first_then("none", "crlf")
    client = client_of(world.routes(token="secret"))
    world.server.stop()
    world.first_then("crlf", "none")
    world.server.start()
    eventually(PATIENCE, lambda: ask(client) == "fault-crlf", "the table of the restarted collector")
    assert [one.get("last-event-id") for one in world.server.requests][:2] == [None, "1"]
    assert {one["authorization"] for one in world.server.requests} == {"Bearer secret"}
    assert world.server.requests[0]["path"] == "/v1/routes/us-east-2/watch"


def test_another_database_replaces_the_tables(world: World) -> None:
    """A lower generation that was built clearly later is of another database; a stale collector's is not."""
    world.generation = 100
    world.first_then("none", "crlf")
    routes = world.routes()
    world.server.stop()
    world.server.lines.clear()
    world.generation = 1
    world.first_then("crlf", "none")
    world.server.start()
    eventually(PATIENCE, lambda: len(world.server.requests) > 1, "the next stream")
    assert ask(client_of(routes)) == "fault-none"
    table = world.first_then("crlf", "none")
    world.server.lines.pop()
    world.server.publish(replace(table, built_at=now_at() + 11 * SECOND_US))
    eventually(PATIENCE, lambda: ask(client_of(routes)) == "fault-crlf", "the table of the other database")


def test_a_wrong_local_clock_expires_nothing(world: World) -> None:
    """The collector's `Date` decides, not the clock of this machine."""
    world.server.date = "Sat, 21 Nov 2026 08:00:00 GMT"
    table = world.first_then("none", "crlf", static_order=("sim/crlf", "sim/none"))
    world.server.lines.pop()
    at = 1_795_248_000 * SECOND_US
    world.server.publish(replace(table, built_at=at, fresh_until_at=at + SECOND_US, stale_until_at=at + 60 * SECOND_US))
    assert ask(client_of(world.routes())) == "fault-none"


def test_watch_yields_each_table(world: World) -> None:
    """First the newest table of each route, then each newer one, and nothing after `close`."""
    world.first_then("none", "crlf")
    routes = world.routes()
    watched = routes.watch()
    assert next(watched).generation == 1
    world.first_then("crlf", "none")
    assert next(watched).generation == 2
    with ThreadPoolExecutor() as threads:
        rest = threads.submit(list, watched)
        routes.close()
        assert rest.result(PATIENCE) == []


async def test_watch_async_yields_each_table(world: World) -> None:
    """As `watch`, on an event loop."""
    world.first_then("none", "crlf")
    routes = await asyncio.to_thread(world.routes)
    watched = routes.watch_async()
    assert (await anext(watched)).generation == 1
    world.first_then("crlf", "none")
    assert (await asyncio.wait_for(anext(watched), PATIENCE)).generation == 2
    routes.close()
    assert [table async for table in watched] == []


def test_pick_is_for_other_programs(world: World) -> None:
    """A choice has all that a request needs; targets that have failed for it are left out."""
    world.first_then("none", "crlf")
    routes = world.routes()
    picked = routes.pick("chat")
    assert picked is not None
    assert (picked.model, picked.base_url, picked.is_static) == ("fault-none", world.simulator.base_url, False)
    second = routes.pick("chat", without=["sim/none"])
    assert second is not None
    assert second.model == "fault-crlf"
    assert routes.pick("chat", without=["sim/none", "sim/crlf"]) is None
    assert routes.pick("unknown") is None


def test_the_sdk_accepts_a_client_of_httpx(world: World) -> None:
    """OpenAI's SDK takes clients of httpx, too, which other programs use."""
    world.publish(world.entry("crlf", weight=1.0, url=dead_url()), world.entry("none"))
    transport = isochrone.routing.httpx.Transport(world.routes())
    http_client: Any = httpx.Client(transport=transport)
    client = sdks.openai.OpenAI(http_client=http_client, base_url=dead_url(), api_key="caller", max_retries=0)
    assert (ask(client), stream(client)) == ("fault-none", "fault-none")


def test_anthropic_messages(world: World) -> None:
    """Anthropic's SDK fails over, streams and is hedged in its own dialect."""
    world.publish(
        world.entry("in-band-error-first", weight=1.0, dialect="anthropic"),
        world.entry("none", dialect="anthropic"),
    )
    http_client = httpx2.Client(transport=isochrone.routing.httpx2.Transport(world.routes()))
    client: Any = sdks.anthropic.Anthropic(http_client=http_client, api_key="caller", max_retries=0)
    with client.messages.stream(model="chat", messages=MESSAGES, max_tokens=3) as events:
        assert "".join(events.text_stream)
        assert events.get_final_message().model == "fault-none"


async def test_async_requests(world: World) -> None:
    """The asynchronous SDK fails over and is hedged on its own event loop."""
    world.first_then("silence", "none", hedge=Hedge(target="sim/none", delay_us=50_000))
    routes = await asyncio.to_thread(world.routes)
    transport = isochrone.routing.httpx2.AsyncTransport(routes)
    async with httpx2.AsyncClient(transport=transport) as http_client:
        client: Any = sdks.openai.AsyncOpenAI(http_client=http_client, base_url=dead_url(), api_key="-", max_retries=0)
        events = await client.chat.completions.create(model="chat", messages=MESSAGES, max_tokens=3, stream=True)
        chunks = [chunk async for chunk in events]
        assert chunks[0].model == "fault-none"
        world.publish(world.entry("crlf", weight=1.0, url=dead_url()), world.entry("none"))
        await asyncio.to_thread(eventually, PATIENCE, lambda: world.newest(routes) == 2, "the next table")
        answers = await asyncio.gather(
            *(client.chat.completions.create(model="chat", messages=MESSAGES, max_tokens=3) for _ in range(10))
        )
        assert {answer.model for answer in answers} == {"fault-none"}


def test_the_first_request_waits_for_the_tables(world: World) -> None:
    """The first request waits for the tables; forty threads share a client, each with its own content."""
    world.first_then("none", "crlf", route="other")
    world.first_then("none", "crlf")
    with Routes(world.server.url, REGION, cache_folder=None, send_callers_key=True) as routes:
        assert ask(client_of(routes)) == "fault-none"
    world.publish(world.entry("crlf", weight=1.0, url=dead_url()), world.entry("none"))
    client = client_of(world.routes())
    with ThreadPoolExecutor(40) as threads:
        assert set(threads.map(lambda _: stream(client), range(80))) == {"fault-none"}


def test_a_closed_stream_frees_its_connection(world: World) -> None:
    """A caller that stops reading ends the provider's answer."""
    world.first_then("none", "crlf")
    client = client_of(world.routes())
    before = len(world.simulator.truth())
    events = client.chat.completions.create(model="chat", messages=MESSAGES, max_tokens=100_000, stream=True)
    next(iter(events))
    events.close()
    eventually(PATIENCE, lambda: world.simulator.endings(before) == ["client_left"], "the end of the exchange")


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


@pytest.mark.parametrize(("fault", "asked"), [("cut", ask), ("reset", ask), ("html", ask), ("html", stream)])
def test_an_answer_that_breaks_off_costs_no_request(world: World, fault: str, asked: Any) -> None:
    """If half of a response is missing, the next member is asked; a web page is no answer, and no stream."""
    world.first_then(fault, "none")
    routes = world.routes()
    assert asked(client_of(routes)) == "fault-none"
    assert routes.counters["failovers"] == 1


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
    client = client_of(world.routes(), timeout=1)
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
async def test_a_response_for_nobody_is_closed(world: World, monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    """However many turns of the event loop lie between a response and the cancellation, no connection stays open."""
    world.first_then("none", "crlf", hedge=Hedge(target="sim/crlf", delay_us=0))
    routes = await asyncio.to_thread(world.routes)
    engine, arrives = Engine(routes, routes.new_pool()), asyncio.Event()
    counts = Counter[str]()

    async def close() -> None:
        counts["closed"] += 1

    async def attempt(_sending: Sending, entry: RouteEntry, *, is_last: bool) -> Attempt:
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
        for _ in range(100):
            await asyncio.sleep(0)
        assert counts["closed"] == counts["opened"]
    await engine.aclose()


async def _nothing() -> AsyncIterator[bytes]:
    yield b""


def test_a_table_whose_only_weight_is_of_another_dialect(world: World) -> None:
    """Members without weight are asked in their order if those with weight cannot take the request."""
    world.publish(world.entry("crlf", weight=1.0, dialect="gemini"), world.entry("none"), world.entry("cr"))
    assert ask(client_of(world.routes())) == "fault-none"
