"""The transport passes the cases of `clients/cases.json` in which members answer requests."""

import asyncio
import json
import logging
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest

from fixtures.peer import Handler, peer, reset
from fixtures.routing_client import MESSAGES, World
from isochrone.routing import Routes
from isochrone.routing.httpx2 import AsyncTransport
from testdata.client_cases import cases

Case = dict[str, Any]
NAMES = ("first", "second")
URL = "http://127.0.0.1:9/v1/chat/completions"


def member(name: str, script: Case, *, is_streamed: bool) -> Handler:
    """A provider that answers by the script of a case, otherwise with its name as text."""
    status = script.get("status", 200)
    chunks = script.get("data", [{"choices": [{"index": 0, "delta": {"content": name}, "finish_reason": "stop"}]}])
    body = {"error": {"message": "no"}} if status != 200 else {"choices": [{"message": {"content": name}}]}
    text = script.get("body", json.dumps(body))
    kind = script.get("type", "application/json")
    if is_streamed and status == 200 and "body" not in script:
        text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
        kind = "text/event-stream"
    head = f"HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\nconnection: close\r\n"
    if "retry_after" in script:
        head += f"retry-after: {script['retry_after']}\r\n"
    size = len(text) + (script.get("then") == "cut")

    async def handle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if script.get("then") == "reset":
            return reset(writer)
        writer.write(f"{head}content-length: {size}\r\n\r\n{text}".encode())
        await writer.drain()
        return None

    return handle


async def answer_of(client: httpx2.AsyncClient, *, is_streamed: bool) -> str | int:
    """The member that answered, the status of a refusal, or `broken` for an answer that fails later."""
    try:
        answer = await client.post(URL, json={"model": "chat", "messages": MESSAGES, "stream": is_streamed})
    except httpx2.RemoteProtocolError:
        return "broken"
    if answer.status_code != 200:
        return answer.status_code
    return next((name for name in NAMES if f'"{name}"' in answer.text), "broken")


def rest_of(routes: Routes) -> str | None:
    """How the first member rests, by a route that it shares with a member that no request is sent to."""
    drawn, alone = routes.pick("witness"), routes.pick("witness", without=["sim/witness"])
    if alone is None:
        return "throttled"
    return None if drawn and drawn.target == "sim/first" else "failing"


@cases("failover")
async def test_failover(world: World, case: Case, caplog: pytest.LogCaptureFixture) -> None:
    """Which member answers, what rests, and what the log states; see the law of each case."""
    for is_streamed in case.get("stream", [False, True]):
        caplog.clear()
        async with AsyncExitStack() as stack:
            entries = []
            for name in NAMES:
                port = await stack.enter_async_context(peer(member(name, case.get(name, {}), is_streamed=is_streamed)))
                weight = float(name == "first")
                entries.append(world.entry(name, weight=weight, url=f"http://127.0.0.1:{port}/v1"))
            world.publish(entries[0], world.entry("witness"), route="witness")
            world.publish(*entries)
            routes = await asyncio.to_thread(world.routes, failover_on_refusals=case.get("refusals", True))
            client = await stack.enter_async_context(httpx2.AsyncClient(transport=AsyncTransport(routes)))
            if case.get("failed_before"):
                routes.failed("sim/first")
            with caplog.at_level(logging.WARNING, "isochrone.routing"):
                assert await answer_of(client, is_streamed=is_streamed) == case["answer"]
            assert rest_of(routes) == case["rest"]
            assert [record.message for record in caplog.records][:1] == [*filter(None, [case.get("logged")])]
