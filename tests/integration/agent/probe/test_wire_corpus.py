"""The corpus of streams from end to end: served from loopback, and probed by the real prober, all at once."""

import asyncio
import http
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.peer import peer
from isochrone_agent.clock import now_at
from isochrone_agent.probe.prober import Prober
from isochrone_agent.probe.recording import Recorder
from isochrone_wire.model import Outcome, Sample, Target, Workload
from testdata.transcripts import replay
from testdata.trust import system_trust
from testdata.wire_corpus import CORPUS, Stream, facts, load

# On a busy machine frames are sent and read late, by how much is not the point of this test.
LATE_MS = 10_000
EARLY_MS = 5
AT_ONCE = 32


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
    async with turns, served(stream) as base_url:
        prober = Prober(vantage="here", tls=system_trust())
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


SECRET = "key-7Zq9Wm4Tn2Lx8Vb6"
PROMPT = "Describe the harbour of Valparaiso"


async def recorded(stream: Stream) -> tuple[Sample, str]:
    recorder = Recorder()
    async with served(stream) as base_url:
        prober = Prober(vantage="here", tls=system_trust(), recorder=recorder)
        how = Workload(prompt=PROMPT)
        target = Target(
            id=1, name="m", provider="p", model="m", base_url=base_url, dialect=stream.dialect, workload=how
        )
        sample = await prober.probe(target, round_at=now_at(), key=SECRET)
    return sample, json.dumps(recorder.document(target, sample, key=SECRET), ensure_ascii=False)


@pytest.mark.parametrize(
    "stream", [stream for stream in CORPUS if stream.in_docs and stream.is_stream], ids=lambda stream: stream.name
)
async def test_a_recording_replays_to_the_same_sample(stream: Stream, tmp_path: Path) -> None:
    """The file of a recorded stream states its sample, which follows from its frames too."""
    sample, text = await recorded(stream)
    (tmp_path / "one.json").write_text(text)
    again = load(tmp_path / "one.json")
    assert facts(replay(again.dialect, again.frames)) == facts(sample)
    assert facts(sample) == {name: getattr(again.expected, name) for name in facts(sample)}
    assert (again.expected.first_content is None) == (stream.expected.first_content is None)
    assert not [word for word in ("Recursion", "function", "itself", "Let me", "sorry") if word in text]


async def test_a_recording_has_neither_key_nor_prompt_nor_text() -> None:
    """Keys and prompts that a provider quotes are masked in errors and elsewhere, whatever the reads."""
    answer = json.dumps({"choices": [{"delta": {"content": "the harbour is old", "novel_field": PROMPT}}]})
    error = json.dumps({"error": {"message": f"bad key {SECRET} for {PROMPT}", "code": 500}})
    whole = f": {SECRET}\n\ndata: {answer}\n\nid: {SECRET}\ndata: {{oops {PROMPT}\n\ndata: {error}\n\n".encode()
    pieces = [(20 + at, whole[at : at + 7]) for at in range(0, len(whole), 7)]
    base = next(stream for stream in CORPUS if stream.is_stream and stream.dialect == "openai-chat")
    sample, text = await recorded(replace(base, frames=pieces))
    assert sample.outcome is Outcome.STREAM_ERROR
    assert "bad key" in text
    assert not [word for word in (SECRET, SECRET[:10], PROMPT, "Valparaiso", "harbour", "oops") if word in text]
