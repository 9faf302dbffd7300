"""The transport passes the cases of `clients/cases.json` in which members answer requests."""

import asyncio
import logging
import math
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from fixtures.peer import peer
from fixtures.routing_client import MESSAGES, World
from fixtures.scripted_member import member
from isochrone.routing import Routes
from isochrone.routing.httpx2 import AsyncTransport, Transport
from testdata.client_cases import cases

Case = dict[str, Any]
NAMES = ("first", "second")
TOOLS = [{"type": "function", "function": {"name": "pay", "parameters": {"type": "object", "properties": {}}}}]
BOTH_TRANSPORTS = pytest.mark.parametrize("is_blocking", [False, True], ids=["async", "blocking"])
URL = "http://127.0.0.1:9/v1/chat/completions"


async def answer_of(client: httpx2.AsyncClient | httpx2.Client, **more: Any) -> str | int:
    """The member that answered, the status of a refusal, `broken` for an answer that fails later, or `timeout`."""
    document = {"model": "chat", "messages": MESSAGES, **more}
    try:
        if isinstance(client, httpx2.Client):
            answer = await asyncio.to_thread(client.post, URL, json=document)
        else:
            answer = await client.post(URL, json=document)
    except httpx2.RemoteProtocolError:
        return "broken"
    except httpx2.ReadTimeout:
        return "timeout"
    if answer.status_code != 200:
        return answer.status_code
    return next((name for name in NAMES if f'"{name}"' in answer.text), "broken")


def rest_of(routes: Routes) -> str | None:
    """How the first member rests, by a route that it shares with a member that no request is sent to."""
    drawn, alone = routes.pick("witness"), routes.pick("witness", without=["sim/witness"])
    if alone is None:
        return "throttled"
    return None if drawn and drawn.target == "sim/first" else "failing"


async def check(
    world: World, case: Case, caplog: pytest.LogCaptureFixture, *, is_streamed: bool, is_blocking: bool
) -> None:
    async with AsyncExitStack() as stack:
        entries = []
        for name in NAMES:
            port = await stack.enter_async_context(peer(member(name, case.get(name, {}), is_streamed=is_streamed)))
            entries.append(world.entry(name, weight=float(name == "first"), url=f"http://127.0.0.1:{port}/v1"))
        world.publish(entries[0], world.entry("witness"), route="witness")
        world.publish(*entries)
        options = {"failover_on_refusals": case.get("refusals", True), "first_token_s": case.get("first_token")}
        routes = await asyncio.to_thread(world.routes, deadline_s=case.get("deadline", math.inf), **options)
        client: httpx2.AsyncClient | httpx2.Client
        if is_blocking:
            client = stack.enter_context(httpx2.Client(transport=Transport(routes), timeout=None))
        else:
            transport = AsyncTransport(routes)
            client = await stack.enter_async_context(httpx2.AsyncClient(transport=transport, timeout=None))
        if case.get("failed_before"):
            routes.failed("sim/first")
        with caplog.at_level(logging.WARNING, "isochrone.routing"):
            tools = {"tools": TOOLS} if case.get("tools") else {}
            assert await answer_of(client, stream=is_streamed, **tools) == case["answer"]
        assert rest_of(routes) == case["rest"]
        assert [record.message for record in caplog.records][:1] == [*filter(None, [case.get("logged")])]


@BOTH_TRANSPORTS
@pytest.mark.parametrize("is_streamed", [False, True])
@cases("failover")
async def test_failover(
    world: World, case: Case, caplog: pytest.LogCaptureFixture, *, is_streamed: bool, is_blocking: bool
) -> None:
    """Which member answers, what rests, and what the log states; see the law of each case."""
    if is_streamed in case.get("stream", [False, True]):
        await check(world, case, caplog, is_streamed=is_streamed, is_blocking=is_blocking)


@BOTH_TRANSPORTS
@pytest.mark.parametrize("is_streamed", [False, True])
@cases("deadlines")
async def test_deadlines(
    world: World, case: Case, caplog: pytest.LogCaptureFixture, *, is_streamed: bool, is_blocking: bool
) -> None:
    """How long a member may be silent; see the law of each case."""
    if is_streamed in case.get("stream", [False, True]):
        await check(world, case, caplog, is_streamed=is_streamed, is_blocking=is_blocking)


@cases("members")
async def test_members(world: World, case: Case) -> None:
    """Which members may take a request, and why others may not; see the law of each case."""
    heads, answering = list[bytes](), member("first", {}, is_streamed=False)

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        await answering(reader, writer)

    async with peer(record, reads_head=False) as port:
        entry = replace(world.entry("first", weight=1.0, url=f"http://127.0.0.1:{port}/v1"), **case.get("entry", {}))
        world.publish(entry)
        options = {"hosts": case.get("hosts"), "send_callers_key": case.get("send_callers_key", False)}
        routes = await asyncio.to_thread(world.routes, keys={"mine": "sk-1"}, **options)
        url = (URL.replace(":9/", f":{port}/") if case.get("is_own") else URL) + f"?{case.get('query', '')}".rstrip("?")
        key = case.get("callers_key", "caller")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        async with httpx2.AsyncClient(transport=AsyncTransport(routes)) as client:
            answer = await client.post(url, json={"model": "chat", "messages": MESSAGES}, headers=headers)
    if case["why"]:
        assert answer.status_code == 400
        assert f"the route chat can take this request: sim/first {case['why']}" in answer.text
        assert not heads
    else:
        assert answer.is_success
        target = heads[0].split()[1].decode()
        assert target == "/v1/chat/completions" + f"?{case.get('member_query', '')}".rstrip("?")
        assert not case.get("entry") or b"caller" not in heads[0]


@BOTH_TRANSPORTS
async def test_the_callers_timeout_is_that_of_all_members(world: World, *, is_blocking: bool) -> None:
    """The read timeout of a client ends a request whose members are silent; each one has no time of its own."""
    async with peer(member("first", {"silent": True}, is_streamed=False)) as port:
        silent = [world.entry(name, url=f"http://127.0.0.1:{port}/v1") for name in ("first", "second", "third")]
        world.publish(replace(silent[0], weight=1.0), *silent[1:])
        routes = await asyncio.to_thread(world.routes)
        if is_blocking:
            with httpx2.Client(transport=Transport(routes), timeout=0.4) as client:
                assert await answer_of(client) == "timeout"
        else:
            async with httpx2.AsyncClient(transport=AsyncTransport(routes), timeout=0.4) as async_client:
                assert await answer_of(async_client) == "timeout"
    assert routes.counters["failovers"] <= 2
