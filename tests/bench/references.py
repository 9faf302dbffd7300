"""Programs that an agent is compared with in the same run.

`client` is a typical script, an httpx client that starts its clock before the request and counts lines: it sends one
request per second until it is stopped. `timer` is a plain asyncio program that sleeps until each instant of a schedule,
and prints the delay of each in milliseconds, as JSON.

usage: python -m bench.references client BASE_URL MODEL TOKENS | timer SECONDS PER_SECOND
"""

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from itertools import count

import httpx

# Compression delays tokens, which would count as errors of the script; only the clocks are compared.
HEADERS = {"accept-encoding": "identity"}


@dataclass(frozen=True, slots=True)
class Measurement:
    """A client's result for one request, with the request id of the ground truth."""

    request_id: str
    ttft_us: float
    tokens_per_second: float


async def probe_many(base_url: str, model: str, *, streams: int, max_tokens: int) -> list[Measurement]:
    """Send `streams` requests at once through one shared client."""
    limits = httpx.Limits(max_connections=streams)
    async with httpx.AsyncClient(timeout=60, limits=limits, trust_env=False, headers=HEADERS) as client:
        url = f"{base_url}/chat/completions"
        return list(await asyncio.gather(*(_probe(client, url, model, n, max_tokens) for n in range(streams))))


async def _probe(client: httpx.AsyncClient, url: str, model: str, number: int, max_tokens: int) -> Measurement:
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
    return Measurement(request_id=request_id, ttft_us=(first - started) * 1e6, tokens_per_second=lines / (last - first))


async def _every_second(base_url: str, model: str, max_tokens: int) -> None:
    """Send one request per second, whether the previous ones have ended or not."""
    async with asyncio.TaskGroup() as probes:
        begun = time.monotonic()
        for number in count(1):
            probes.create_task(probe_many(base_url, model, streams=1, max_tokens=max_tokens))
            await asyncio.sleep(max(0.0, begun + number - time.monotonic()))


async def _sleep(instant: float) -> float:
    """Sleep until an instant of the system clock; return the delay in milliseconds."""
    await asyncio.sleep(max(0.0, instant - time.time()))
    return 1000 * (time.time() - instant)


async def _delays(seconds: int, per_second: int) -> list[float]:
    """Return the delays of all instants, in order. Processes started in the same second have the same instants."""
    begin = int(time.time()) + 2
    instants = [begin + number / per_second for number in range(seconds * per_second)]
    return list(await asyncio.gather(*map(_sleep, instants)))


if __name__ == "__main__":
    kind, *words = sys.argv[1:]
    if kind == "client":
        asyncio.run(_every_second(words[0], words[1], int(words[2])))
    else:
        print(json.dumps(asyncio.run(_delays(*map(int, words)))))  # noqa: T201  # the result
