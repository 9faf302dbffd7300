"""The usual script: an httpx client that starts its clock before the request and counts lines, as harnesses do.

It is here to be compared with, in the same run against the same server.
"""

import asyncio
import json
import time

import httpx

from bench.claims import Claim

# A server that compresses holds tokens back, which would be charged to the script. What is compared here is clocks.
HEADERS = {"accept-encoding": "identity"}


async def probe_many(base_url: str, model: str, *, streams: int, max_tokens: int) -> list[Claim]:
    """So many requests at once through one shared client."""
    limits = httpx.Limits(max_connections=streams)
    async with httpx.AsyncClient(timeout=60, limits=limits, trust_env=False, headers=HEADERS) as client:
        url = f"{base_url}/chat/completions"
        return list(await asyncio.gather(*(_probe(client, url, model, n, max_tokens) for n in range(streams))))


async def _probe(client: httpx.AsyncClient, url: str, model: str, number: int, max_tokens: int) -> Claim:
    message = {"role": "user", "content": f"[{number:06}] Explain recursion in 200 words"}
    body = {"model": model, "messages": [message], "stream": True, "max_tokens": max_tokens}
    started, first, last, lines = time.perf_counter(), 0.0, 0.0, 0
    async with client.stream("POST", url, json=body) as response:
        request_id = response.headers["x-request-id"]
        async for line in response.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            json.loads(line[6:])
            last = time.perf_counter()
            first = first or last
            lines += 1
    return Claim(request_id=request_id, ttft_us=(first - started) * 1e6, tokens_per_second=lines / (last - first))
