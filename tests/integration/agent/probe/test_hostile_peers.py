"""Peers that violate the protocol: the probe always ends in a sample, with its outcome and without secrets."""

import asyncio
import gzip
import json
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.peer import ANSWER, STREAM_HEAD, Handler, peer, reset, saying, stream_of
from isochrone_agent.clock import now_at
from isochrone_agent.probe import transport
from isochrone_agent.probe.prober import Prober
from isochrone_agent.probe.socket_observer import TcpInfo
from isochrone_agent.probe.transport import StampingStream
from isochrone_agent.settings import DialOptions
from isochrone_agent.spool.spool import AsyncSpool
from isochrone_wire.model import ConnectionUse, Outcome, Quality, Sample, Target, Timeouts, Workload
from testdata.trust import system_trust

# A busy machine may take long; a test that waits for a limit states it.
PATIENT = Timeouts(connect_us=30_000_000, first_token_us=30_000_000, gap_us=30_000_000, total_us=90_000_000)
REFUSAL = b"HTTP/1.1 429 No\r\nretry-after: 7\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n"
KEY = "eyJhbGciOiJSUzI1NiJ9." + "A1b2C3d4" * 60


def target(port: int, *, base_url: str | None = None, dialect: str = "openai-chat", **workload: Any) -> Target:
    fields: dict[str, Any] = {"prompt": "hi", "timeouts": PATIENT} | workload
    how = Workload(**fields)
    at = base_url or f"http://127.0.0.1:{port}/v1"
    return Target(id=1, name="m", provider="", model="m", base_url=at, dialect=dialect, workload=how)


def new_prober() -> Prober:
    return Prober(vantage="v", tls=system_trust())


async def probe(handler: Handler, *, key: str | None = None, **how: Any) -> Sample:
    async with peer(handler) as port:
        return await new_prober().probe(target(port, **how), round_at=now_at(), key=key)


@pytest.mark.parametrize(
    ("dialect", "event"),
    [
        ("openai-chat", {"choices": [{"delta": "hi"}]}),
        ("openai-chat", {"choices": [None]}),
        ("openai-chat", {"choices": [{"delta": {"content": 5}}]}),
        ("openai-chat", {"choices": 7}),
        ("anthropic", {"type": "content_block_delta", "delta": "x"}),
        ("anthropic", {"type": "message_start", "message": "x"}),
        ("gemini", {"candidates": {"x": 1}}),
        ("gemini", {"candidates": [{"content": {"parts": ["x"]}}]}),
        ("openai-responses", {"type": "response.completed", "response": "x"}),
        ("cohere", {"type": "content-delta", "delta": "x"}),
    ],
)
async def test_json_of_another_shape_is_no_success(dialect: str, event: object) -> None:
    """A string, a number or nothing where an object belongs fails the stream, not the agent."""
    sample = await probe(saying(stream_of(event)), dialect=dialect)
    assert sample.outcome in (Outcome.GARBLED, Outcome.TRUNCATED)


def in_parts(*parts: bytes | float) -> Handler:
    """Return a handler that sends bytes, waits for seconds between them, and leaves the connection open at the end."""

    async def handle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in (STREAM_HEAD, *parts):
            if isinstance(part, float):
                await asyncio.sleep(part)
            else:
                writer.write(part)
                await writer.drain()
        await asyncio.sleep(60)

    return handle


def a_chunk(text: str, finish: str | None) -> bytes:
    choice = {"delta": {"content": text}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


async def test_an_early_finish_reason_does_not_end_the_wait_for_the_first_token() -> None:
    """An early finish reason does not end the wait for the first token; silence after one in each chunk is a stall."""
    timeouts = Timeouts(first_token_us=5_000_000, gap_us=300_000, total_us=10_000_000)
    handler = in_parts(a_chunk("", "stop"), 0.6, a_chunk("hi", "stop"), b"data: [DONE]\n\n")
    sample = await probe(handler, timeouts=timeouts)
    assert (sample.outcome, sample.chunks) == (Outcome.OK, 1)
    assert (sample.ttft_us or 0) > 500_000
    timeouts = replace(PATIENT, gap_us=800_000)
    sample = await probe(in_parts(a_chunk("a", "stop"), 0.05, a_chunk("b", "stop")), timeouts=timeouts)
    assert (sample.outcome, sample.chunks) == (Outcome.STALLED, 2)


async def test_an_error_without_framing_or_end_is_read_at_once() -> None:
    """An error without an end is read at once, one nested too deep is garbled, and a status 500 stays one."""
    patient = Timeouts(first_token_us=60_000_000, gap_us=300_000, total_us=60_000_000)
    async with asyncio.timeout(20):
        handler = in_parts(b'{"error":{"message":"slow ', 0.05, b'down","code":429}}')
        sample = await probe(handler, timeouts=patient)
    assert (sample.outcome, sample.timeout_us) == (Outcome.THROTTLED, None)
    assert "slow down" in (sample.error or "")
    sample = await probe(saying(STREAM_HEAD + b"data: " + b"[" * 200_000 + b"\n\n"))
    assert sample.outcome is Outcome.GARBLED
    head = b"HTTP/1.1 500 No\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
    sample = await probe(saying(head + b"[" * 8_000))
    assert (sample.outcome, sample.error) == (Outcome.HTTP_ERROR, "HTTP 500")


@pytest.mark.parametrize("name", ["retry-after", "x-ratelimit-reset", "openai-processing-ms", "retry-after-ms"])
@pytest.mark.parametrize("value", ["9" * 400, "1761000000000000000", "Wed, 21 Oct 99999999999999999999 07:28:00 GMT"])
async def test_headers_beyond_measure_do_no_harm(tmp_path: Path, name: str, value: str) -> None:
    """Numbers and dates out of range are unknown, and the sample can be recorded."""
    head = STREAM_HEAD.replace(b"connection", f"{name}: {value}\r\nconnection".encode())
    sample = await probe(saying(head + ANSWER))
    assert sample.outcome is Outcome.OK
    async with AsyncSpool(tmp_path / "spool.sqlite3") as spool:
        await spool.record(sample)
        assert (await spool.stats()).waiting == 1


async def test_what_cannot_be_stored_is_not_kept(tmp_path: Path) -> None:
    """A lone surrogate and a NUL in the provider's message become question marks, and the sample can be recorded."""
    sample = await probe(saying(stream_of({"error": {"message": "half \ud800 and nul \x00"}})))
    assert sample.error == "error inside the stream: half ? and nul ?"
    async with AsyncSpool(tmp_path / "spool.sqlite3") as spool:
        await spool.record(sample)


@pytest.mark.parametrize("fate", ["hangs", "cut", "reset"])
async def test_a_refusal_is_one_whatever_becomes_of_its_body(fate: str) -> None:
    """A 429 whose body hangs, ends early or breaks is throttled, with its wait, without delay."""

    async def handle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(REFUSAL + b'{"error":')
        await writer.drain()
        if fate == "hangs":
            await asyncio.sleep(600)
        if fate == "reset":
            await asyncio.sleep(0.05)
            reset(writer)

    # The limits would end it after ten minutes.
    patient = Timeouts(first_token_us=600_000_000, total_us=600_000_000)
    async with asyncio.timeout(60):
        sample = await probe(handle, timeouts=patient)
    assert (sample.outcome, sample.http_status, sample.timeout_us) == (Outcome.THROTTLED, 429, None)
    assert sample.ratelimit is not None
    assert sample.ratelimit.retry_after_us == 7_000_000


async def test_a_hanging_refusal_outlives_no_limit() -> None:
    """A refusal is recorded even if the total limit ends the reading of its body."""

    async def handle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(REFUSAL)
        await asyncio.sleep(30)

    sample = await probe(handle, timeouts=replace(PATIENT, total_us=1_000_000))
    assert (sample.outcome, sample.error) == (Outcome.THROTTLED, "HTTP 429")


@pytest.mark.parametrize("words", [KEY, KEY[:250], f"…{KEY[-60:]}", f"{KEY[40:90]} and {KEY}"])
@pytest.mark.parametrize("where", ["refusal", "stream", "headers"])
async def test_no_piece_of_a_quoted_key_is_kept(words: str, where: str) -> None:
    """If a provider quotes the key, or a part of it, no run of it is in the sample."""
    error = {"error": {"message": f"invalid api key: {words}"}}
    said = {
        "refusal": b"HTTP/1.1 401 No\r\nconnection: close\r\n\r\n" + json.dumps(error).encode(),
        "stream": stream_of(error),
        "headers": STREAM_HEAD.replace(
            b"connection", f"server: {words}\r\nx-request-id: {words}\r\nconnection".encode()
        ),
    }[where]
    sample = await probe(saying(said), key=KEY)
    kept = repr(sample)
    assert "***" in kept
    assert not any(KEY[at : at + 8] in kept for at in range(len(KEY) - 7))


@pytest.mark.parametrize("key", ["sk-SECRETSECRET\nsecond", "sk-SECRETSECRET\r\nx: y", "sk-SECRETSECRET\0"])
async def test_a_key_that_no_header_carries_is_in_no_error(key: str) -> None:
    """Httpcore's error quotes the invalid header; the sample states the fault without the quotation."""
    sample = await probe(saying(STREAM_HEAD + ANSWER), key=key)
    assert sample.outcome is Outcome.CONNECT_FAILED
    assert "SECRET" not in repr(sample)


async def test_a_warm_connection_that_broke_is_not_used_again() -> None:
    """A provider that resets idle connections costs a new connection, not a sample."""

    async def handle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = STREAM_HEAD.replace(b"connection: close", f"content-length: {len(ANSWER)}".encode())
        writer.write(head + ANSWER)
        await writer.drain()
        await asyncio.sleep(0.05)
        reset(writer)
        await asyncio.sleep(1)

    async with peer(handle) as port:
        prober = new_prober()
        for _ in range(3):
            sample = await prober.probe(target(port, connection=ConnectionUse.WARM), round_at=now_at())
            assert (sample.outcome, sample.error, Quality.REUSED in sample.quality) == (Outcome.OK, None, False)
            await asyncio.sleep(0.15)
        await prober.aclose()


@pytest.mark.parametrize("by_reset", [True, False], ids=["reset", "end"])
@pytest.mark.parametrize(("answers", "outcome"), [(1, Outcome.OK), (0, Outcome.TRUNCATED)], ids=["fresh", "never"])
async def test_a_warm_connection_closed_idle_is_renewed_once(answers: int, outcome: Outcome, *, by_reset: bool) -> None:
    """A request that meets a connection being closed is sent again, once, on a fresh one, whose times count."""
    connections: list[int] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(len(connections))
        if len(connections) == 1 or answers:
            writer.write(STREAM_HEAD.replace(b"connection: close", f"content-length: {len(ANSWER)}".encode()) + ANSWER)
            await reader.readuntil(b"POST ")  # the second request is read, as its end was in flight
        if by_reset:
            reset(writer)

    async with peer(handle) as port:
        prober, at = new_prober(), target(port, connection=ConnectionUse.WARM)
        await prober.probe(at, round_at=now_at())
        sample = await prober.probe(at, round_at=now_at())
        await prober.aclose()
    assert (sample.outcome, len(connections)) == (outcome, 2), sample.error
    assert (Quality.RECONNECTED in sample.quality, Quality.REUSED in sample.quality) == (True, False)
    assert sample.tcp_us is not None


async def test_a_cold_connection_that_is_closed_is_not_replaced() -> None:
    """A provider that closes a connection of the probe's own before it answers has failed."""
    connections: list[int] = []

    async def handle(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        connections.append(1)

    async with peer(handle) as port:
        sample = await new_prober().probe(target(port), round_at=now_at())
    assert (sample.outcome, sample.quality, len(connections)) == (Outcome.TRUNCATED, Quality.CLEAN, 1)


async def test_retransmits_are_those_of_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts over a connection's life; a probe on a warm one reports what was added during it."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = STREAM_HEAD.replace(b"connection: close", f"content-length: {len(ANSWER)}".encode())
        while True:
            writer.write(head + ANSWER)
            await writer.drain()
            await reader.readuntil(b"POST ")
            await reader.readuntil(b"\r\n\r\n")

    # By reading: connection and end of the first probe, then beginning and end of the second and of the third.
    counts = iter([3, 3, 3, 3, 4, 9])
    monkeypatch.setattr(transport, "read_tcp_info", lambda _sock: TcpInfo(retransmits=next(counts, 9)))
    async with peer(handle) as port:
        prober = new_prober()
        at = target(port, connection=ConnectionUse.WARM)
        samples = [await prober.probe(at, round_at=now_at()) for _ in range(3)]
        await prober.aclose()
    assert [sample.retransmits for sample in samples] == [3, 0, 5]


async def test_a_reset_in_the_handshake_is_a_failed_connection() -> None:
    """A connection reset during the TLS handshake counts as not connected."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        reset(writer)

    async with peer(handle, reads_head=False) as port:
        at = target(port, base_url=f"https://127.0.0.1:{port}/v1")
        sample = await new_prober().probe(at, round_at=now_at())
    assert sample.outcome is Outcome.CONNECT_FAILED
    assert "TLS" in (sample.error or "")
    assert sample.tcp_us is not None


async def test_one_limit_for_the_whole_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS, TCP and TLS share one limit: time spent in a slow lookup is not available to TLS."""
    honest, start_tls = socket.getaddrinfo, StampingStream.start_tls
    looked_up, connect_by = list[float](), list[float | None]()

    def slow(_host: str, *more: Any, **named: Any) -> Any:
        looked_up.append(time.monotonic())
        time.sleep(0.2)
        return honest("127.0.0.1", *more, **named)

    async def spied(self: StampingStream, *more: Any, **named: Any) -> Any:
        connect_by.append(self._connect_by)
        return await start_tls(self, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    monkeypatch.setattr(StampingStream, "start_tls", spied)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        at = target(
            0,
            base_url=f"https://slow.example:{listener.getsockname()[1]}/v1",
            timeouts=Timeouts(connect_us=1_000_000),
        )
        sample = await new_prober().probe(at, round_at=now_at())
    # The handshake has to end before a second after the lookup began, not after it ended.
    assert connect_by[0] is not None
    assert connect_by[0] <= looked_up[0] + 1.0
    assert (sample.outcome, sample.timeout_us) == (Outcome.CONNECT_FAILED, 1_000_000)
    assert "TLS" in (sample.error or "")


async def test_lookups_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of forty probes at once, no lookup waits for another, and the time of each is in its own sample."""
    honest, lookups, requests = socket.getaddrinfo, threading.Barrier(40), asyncio.Barrier(40)

    def slow(_host: str, *more: Any, **named: Any) -> Any:
        lookups.wait(60)
        time.sleep(0.1)
        return honest("127.0.0.1", *more, **named)

    async def handle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await requests.wait()
        writer.write(STREAM_HEAD + ANSWER)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    async with peer(handle) as port:
        patient = Timeouts(connect_us=90_000_000, first_token_us=30_000_000, total_us=120_000_000)
        at = target(port, base_url=f"http://api.example:{port}/v1", concurrency=40, timeouts=patient)
        samples = await new_prober().burst(at, round_at=now_at())
    assert {sample.outcome for sample in samples} == {Outcome.OK}
    assert min(sample.dns_us or 0 for sample in samples) >= 100_000


@pytest.mark.parametrize(
    "base_url",
    [
        "http://foo..bar/v1",
        "http://127.0.0.1:99999/v1",
        "http:///v1",
        "http://a b/v1",
        "http://m\u00fcnchen.invalid/v1",
    ],
)
async def test_an_address_that_is_none_is_a_failed_connection(base_url: str) -> None:
    """An invalid base URL is a failed connection, not a garbled stream and not a crash."""
    sample = await new_prober().probe(target(0, base_url=base_url), round_at=now_at())
    assert sample.outcome is Outcome.CONNECT_FAILED
    assert sample.error


async def test_an_ipv6_address_stands_in_brackets_in_the_host_header() -> None:
    """Servers refuse a Host header in which an IPv6 address and its port run into each other."""
    heads = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(STREAM_HEAD + ANSWER)

    async with peer(handle, reads_head=False) as port:
        dial_options = DialOptions(connect_to={("::1", 8080): ("127.0.0.1", port)})
        prober = Prober(vantage="v", tls=system_trust(), dial_options=dial_options)
        sample = await prober.probe(target(0, base_url="http://[::1]:8080/v1"), round_at=now_at())
    assert sample.outcome is Outcome.OK
    assert b"host: [::1]:8080\r\n" in heads[0].lower()


REFUSED = b"HTTP/1.1 403 No\r\nconnection: close\r\n"


@pytest.mark.parametrize(
    ("answer", "outcome", "error"),
    [
        (
            b"SSH-2.0-OpenSSH_9.6\r\n",
            Outcome.GARBLED,
            "not a valid HTTP response: it begins with 'SSH-2.0-OpenSSH_9.6'",
        ),
        (
            b"\0\0\x12\x04\0\0\0\0\0" + bytes(18),
            Outcome.GARBLED,
            "this port speaks HTTP/2 only; the agent speaks HTTP/1.1",
        ),
        (b"HTTP/1.1 200 OK\r\nbad line\r\n\r\n", Outcome.GARBLED, "not a valid HTTP response: illegal header line"),
        (
            b"HTTP/1.1 101 Upgrade\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
            Outcome.GARBLED,
            "not a valid HTTP response: it begins with 'HTTP/1.1 101 Upgrade'",
        ),
        (b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n", Outcome.HTTP_ERROR, "HTTP 204"),
        (REFUSED + b"\r\n" + gzip.compress(b'{"error":"boom"}', mtime=0), Outcome.HTTP_ERROR, "HTTP 403: boom"),
        (REFUSED + b"location: https://u:p@h/x\r\n\r\n", Outcome.HTTP_ERROR, "HTTP 403, moved to https://h/x"),
        (REFUSED + b"location: https://h/x?Key=s\r\n\r\n", Outcome.HTTP_ERROR, "HTTP 403, moved to https://h/x"),
        (
            STREAM_HEAD + gzip.compress(b"data: {}", mtime=0),
            Outcome.GARBLED,
            "the response contains no event of a stream: it is compressed (gzip)",
        ),
    ],
    ids=[
        "ssh",
        "http2",
        "bad-header",
        "upgrade",
        "no-content",
        "compressed-refusal",
        "password",
        "key",
        "compressed-stream",
    ],
)
async def test_an_answer_of_another_kind_is_named(answer: bytes, outcome: Outcome, error: str) -> None:
    """No bytes, states or passwords are shown, and each reason is one that a user can act on."""
    sample = await probe(saying(answer))
    assert (sample.outcome, sample.error) == (outcome, error)


async def test_an_error_in_a_field_of_its_own_is_read_under_any_media_type() -> None:
    """The line `error: {…}` of llama.cpp is an event, so its code is understood, and its notation is not shown."""
    head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n\r\n"
    sample = await probe(saying(head + b'error: {"code":429,"message":"slow down"}\n\n'))
    assert (sample.outcome, sample.error) == (Outcome.THROTTLED, "error inside the stream: slow down")


@pytest.mark.parametrize("media_type", [b"application/json", b"text/html; charset=utf-8"])
async def test_events_under_another_media_type_are_a_stream(media_type: bytes) -> None:
    """What begins as events is read as events."""
    head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: " + media_type + b"\r\n\r\n"
    sample = await probe(saying(head + a_chunk("hi", None) + a_chunk("", "stop") + b"data: [DONE]\n\n"))
    assert (sample.outcome, sample.chunks) == (Outcome.OK, 1)
