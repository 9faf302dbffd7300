"""The corpus of streams from end to end: served from loopback, and probed by the real prober, all at once."""

import asyncio
import http
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fixtures.peer import peer
from isochrone_agent.clock import now_at
from isochrone_agent.probe.prober import Prober
from isochrone_wire.model import Sample, Target, Workload
from testdata.wire_corpus import CORPUS, Stream, facts

# On a busy machine frames are sent and read late, by how much is not the point of this test.
LATE_MS = 2_000
EARLY_MS = 5
AT_ONCE = 32
TLS = ssl.create_default_context()


@asynccontextmanager
async def served(stream: Stream) -> AsyncIterator[str]:
    """Yield the base URL of a server that sends the frames of a stream at their offsets after the request."""

    async def handle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun = asyncio.get_running_loop().time()
        lines = [f"HTTP/1.1 {stream.status} {http.HTTPStatus(stream.status).phrase}", "connection: close"]
        lines += [f"{name}: {value}" for name, value in stream.headers.items()]
        writer.write("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
        for at_ms, data in stream.frames:
            await asyncio.sleep(begun + at_ms / 1000 - asyncio.get_running_loop().time())
            writer.write(data)
            await writer.drain()

    async with peer(handle) as port:
        yield f"http://127.0.0.1:{port}/v1"


async def probed(stream: Stream, turns: asyncio.Semaphore) -> Sample:
    """Return the sample of a probe of the served stream."""
    async with turns, served(stream) as base_url:
        prober = Prober(vantage="here", tls=TLS)
        workload, dialect = Workload(prompt="hi"), stream.dialect
        target = Target(id=1, name="m", provider="p", model="m", base_url=base_url, dialect=dialect, workload=workload)
        return await prober.probe(target, round_at=now_at())


def problems(stream: Stream, sample: Sample) -> list[str]:
    """Return what differs from the expectation of the file."""
    expected = stream.expected
    stated = {name: getattr(expected, name) for name in facts(sample)}
    found = [f"{name} {value}, not {stated[name]}" for name, value in facts(sample).items() if value != stated[name]]
    if (expected.error or "") not in (sample.error or "") or (sample.error is None) != (expected.error is None):
        found.append(f"error {sample.error!r}")
    for name in ("ttft", "ttfat", "e2e"):
        ms, us = getattr(expected, f"{name}_ms"), getattr(sample, f"{name}_us")
        if (ms is None) != (us is None) or (us and not ms - EARLY_MS <= us / 1000 <= ms + LATE_MS):
            found.append(f"{name} {us} us, not {ms} ms")
    if sample.error and sample.tokens_per_second is not None:
        found.append("a failed sample has a speed")
    return [f"{stream.name}: {problem}" for problem in found]


async def test_every_stream_of_the_corpus_becomes_its_sample_over_a_socket() -> None:
    """Outcome, message, chunks, tokens and instants are those that each file states."""
    turns = asyncio.Semaphore(AT_ONCE)
    samples = await asyncio.gather(*(probed(stream, turns) for stream in CORPUS))
    found = [line for stream, sample in zip(CORPUS, samples, strict=True) for line in problems(stream, sample)]
    assert not found, "\n".join(found)
