"""Timed sockets: the time of the request, timestamps of reads, batching and bounded memory."""

import asyncio
import gzip
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from fixtures.peer import ANSWER, STREAM_HEAD, peer, saying
from fixtures.simulator import MakeBadCertificate, Simulator, StartSimulator
from isochrone_agent.clock import now_at
from isochrone_agent.errors import SettingsError
from isochrone_agent.probe import transport
from isochrone_agent.probe.destinations import SPEAKS_HTTP, SPEAKS_TLS
from isochrone_agent.probe.prober import Prober
from isochrone_agent.probe.transport import ProbeConnection, StampingBackend, StampingStream, tls_context
from isochrone_agent.settings import DialOptions
from isochrone_common.receive_stamps import Stamp
from isochrone_wire.model import Outcome, Quality, Sample, Target, Timeouts, TlsFiles, Workload
from testdata.trust import system_trust


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[ProbeConnection, StampingStream, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = ProbeConnection(system_trust(), DialOptions())
        stream = await StampingBackend(connection, DialOptions()).connect_tcp(*listener.getsockname())
        assert isinstance(stream, StampingStream)
        theirs, _ = listener.accept()
        with theirs:
            yield connection, stream, theirs
            await stream.aclose()


async def test_a_request_is_written_at_once() -> None:
    """The empty write at the end of a message sends all of it; another one does not change that time."""
    async with connected() as (connection, stream, theirs):
        await stream.write(b"the ")
        assert connection.observer.sent_ns is None
        await stream.write(b"request")
        await stream.write(b"")
        sent_ns = connection.observer.sent_ns
        await asyncio.sleep(0.01)
        await stream.write(b"")
        assert connection.observer.sent_ns == sent_ns
        assert theirs.recv(100) == b"the request"


async def test_a_read_has_the_stamp_of_its_bytes() -> None:
    """Bytes that waited while the loop was busy have the time of their arrival, and the wait is recorded."""
    async with connected() as (connection, stream, theirs):
        await stream.write(b"x")
        await stream.write(b"")
        theirs.sendall(b"early")
        time.sleep(0.1)  # noqa: ASYNC251  # the point: the loop is blocked
        busy_until_ns = time.monotonic_ns()
        assert await stream.read(100) == b"early"
        if connection.observer.received.kernel:
            assert busy_until_ns - connection.observer.received.at_ns > 50_000_000
            assert connection.observer.max_waited_ns > 50_000_000


async def test_the_loop_is_watched_only_without_kernel_stamps() -> None:
    """Loop lag is monitored only without kernel timestamps, and only until the probe ends."""
    async with connected() as (connection, stream, theirs):
        with connection.use() as observer:
            await stream.write(b"x")
            await stream.write(b"")
            theirs.sendall(b"bytes")
            await stream.read(100)
            assert (observer.lag_monitor is None) is observer.received.kernel
            observer.monitor_loop_lag()
        assert observer.lag_monitor is not None
        assert observer.lag_monitor._timer.cancelled()


async def test_the_handshake_is_timed_by_the_kernel() -> None:
    """A loop that is busy while the connection is established adds nothing to `tcp_us`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = ProbeConnection(system_trust(), DialOptions())
        backend = StampingBackend(connection, DialOptions())
        # A literal address is connected to in the first step of the task.
        connecting = asyncio.create_task(backend.connect_tcp(*listener.getsockname()))
        asyncio.get_running_loop().call_soon(time.sleep, 0.1)
        await (await connecting).aclose()
    assert connection.observer.tcp_us is not None
    assert connection.observer.tcp_us < 50_000


async def test_reads_are_delivered_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads of a stream are delivered in batches, in order, each with its own timestamp."""
    monkeypatch.setattr(transport, "READ_BATCH_SECONDS", 1.0)
    async with connected() as (connection, stream, theirs):
        connection.batch_reads = True
        stamps = []
        waiting = asyncio.create_task(stream.read(100))
        for word in (b"one", b"two", b"three"):
            theirs.sendall(word)
            await asyncio.sleep(0.005)
        assert not waiting.done()
        words = [await waiting]
        stamps.append(connection.observer.received.at_ns)
        for _ in range(2):
            words.append(await stream.read(100))
            stamps.append(connection.observer.received.at_ns)
        assert words == [b"one", b"two", b"three"]
        assert all(later - earlier > 3_000_000 for earlier, later in pairwise(stamps))


async def test_the_end_of_a_stream_is_delivered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the stream is delivered at once, without waiting for the batch."""
    monkeypatch.setattr(transport, "READ_BATCH_SECONDS", 600.0)
    async with connected() as (connection, stream, theirs):
        connection.batch_reads = True
        waiting = asyncio.create_task(stream.read(100))
        await asyncio.sleep(0)
        theirs.shutdown(socket.SHUT_WR)
        assert await asyncio.wait_for(waiting, 60) == b""


async def test_unread_bytes_are_bounded() -> None:
    """A peer that sends without end fills its own buffers, not our memory."""
    async with connected() as (_, stream, theirs):
        theirs.setblocking(False)
        sent = 0
        for _ in range(400):
            try:
                sent += theirs.send(b"x" * 65_536)
            except BlockingIOError:
                await asyncio.sleep(0.002)
        assert stream._waiting_bytes <= (1 << 20) + 65_536
        assert sent < 16 << 20


# A busy machine may take long; a test that waits for a limit states it.
PATIENT = Timeouts(connect_us=30_000_000, first_token_us=30_000_000, gap_us=30_000_000, total_us=90_000_000)


async def probe(base_url: str, model: str, ca: str | Path | None, *, timeouts: Timeouts = PATIENT) -> Sample:
    workload = Workload(max_output_tokens=40, timeouts=timeouts)
    target = Target(id=7, name=model, provider="sim", model=model, base_url=base_url, workload=workload)
    prober = Prober(vantage="here", tls=tls_context(Path(ca)) if ca else system_trust())
    return await prober.probe(target, round_at=now_at())


async def test_all_phases_of_a_tls_connection(tls_simulator: Simulator) -> None:
    """DNS, TCP and TLS are timed separately, and are not in the time to first token."""
    base_url = tls_simulator.base_url.replace("127.0.0.1", "localhost")
    samples = [await probe(base_url, "fault-none", tls_simulator.ca) for _ in range(7)]
    assert [(sample.outcome, sample.error) for sample in samples] == [(Outcome.OK, None)] * 7
    assert None not in [sample.dns_us for sample in samples]
    # A busy machine delays some of them; what is measured wrong is wrong in each.
    assert min(sample.tls_us or 0 for sample in samples) > min(sample.tcp_us or 0 for sample in samples)
    errors_us = [abs((sample.ttft_us or 0) - true_ttft_us(tls_simulator, sample)) for sample in samples]
    assert sorted(errors_us)[1] < 2_000


async def test_a_busy_loop_is_not_in_the_handshake(tls_simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that is busy when the server's records arrive adds nothing to `tls_us`."""
    take, is_stamped = StampingStream.take, list[bool]()

    async def busy_take(stream: StampingStream) -> tuple[bytes, Stamp]:
        if not is_stamped:
            asyncio.get_running_loop().call_soon(time.sleep, 0.5)
        data, stamp = await take(stream)
        is_stamped.append(stamp.kernel)
        return data, stamp

    monkeypatch.setattr(StampingStream, "take", busy_take)
    sample = await probe(tls_simulator.base_url, "fault-none", tls_simulator.ca)
    if not is_stamped[0]:
        pytest.skip("this kernel gives no receive timestamps")
    assert 0 < (sample.tls_us or 0) < 450_000


def true_ttft_us(simulator: Simulator, sample: Sample) -> float:
    """The time to first token of a sample as its simulator recorded it."""
    [record] = simulator.truth(sample.request_id)
    return float(record["first_token_at_ns"] - record["request_at_ns"]) / 1000


async def test_stamps_are_the_kernels_under_tls(tls_simulator: Simulator, fault_simulator: Simulator) -> None:
    """Decrypted reads have kernel timestamps if plain reads have them."""
    plain = await probe(fault_simulator.base_url, "fault-none", None)
    if Quality.USER_STAMPS in plain.quality:
        pytest.skip("this kernel gives no receive timestamps")
    ciphered = await probe(tls_simulator.base_url, "fault-none", tls_simulator.ca)
    assert Quality.USER_STAMPS not in ciphered.quality


@pytest.mark.parametrize("fault", ["stall", "cut", "reset", "byte-by-byte", "split-code-points", "huge-line"])
async def test_faults_are_the_same_under_tls(tls_simulator: Simulator, fault_simulator: Simulator, fault: str) -> None:
    """A stream that breaks or is cut into bytes comes to the same outcome and chunks with and without TLS."""
    timeouts = replace(PATIENT, gap_us=1_000_000) if fault == "stall" else PATIENT
    plain = await probe(fault_simulator.base_url, f"fault-{fault}", None, timeouts=timeouts)
    ciphered = await probe(tls_simulator.base_url, f"fault-{fault}", tls_simulator.ca, timeouts=timeouts)
    assert (ciphered.outcome, ciphered.chunks) == (plain.outcome, plain.chunks)


@pytest.mark.parametrize(
    ("flaw", "words"),
    [("expired", "certificate has expired"), ("wrong-host", "not valid for"), ("untrusted", "self-signed certificate")],
)
async def test_bad_certificates_are_refused(
    simulator: StartSimulator, bad_certificate: MakeBadCertificate, flaw: str, words: str
) -> None:
    """An expired, a mismatched and an untrusted certificate each end the probe with the reason."""
    bad = bad_certificate(flaw)
    running = simulator("us-east-2", more=bad.options)
    sample = await probe(running.base_url, "fault-none", bad.trusted)
    assert sample.outcome is Outcome.CONNECT_FAILED
    assert words in (sample.error or "").replace("self signed", "self-signed")
    assert sample.tcp_us is not None


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", f"TLS: {SPEAKS_HTTP}"),
        (b"<!DOCTYPE HTML>", f"TLS: {SPEAKS_HTTP}"),
        (b"220 mail.example ready\r\n", "TLS: this port does not speak TLS; if it speaks plain HTTP, try http://"),
        (
            b"",
            "TLS: the server closed the connection during the handshake; if it speaks plain HTTP, try http://",
        ),
    ],
    ids=["http", "page", "another-protocol", "closed"],
)
async def test_a_port_without_tls_is_named(answer: bytes, error: str) -> None:
    """A handshake with a port that does not speak TLS fails with what the port speaks, not with OpenSSL's constant."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        await saying(answer)(reader, writer)

    async with peer(handle, reads_head=False) as port:
        sample = await probe(f"https://127.0.0.1:{port}/v1", "m", None)
    assert (sample.outcome, sample.error) == (Outcome.CONNECT_FAILED, error)


@pytest.mark.parametrize(
    "answer",
    [
        b"\x15\x03\x03\x00\x02\x02\x46",
        b"HTTP/1.1 400 No\r\nconnection: close\r\n\r\n<h1>400</h1>The plain HTTP request was sent to HTTPS port",
        b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
    ],
    ids=["alert", "nginx", "go"],
)
async def test_a_port_with_tls_is_named(answer: bytes) -> None:
    """A plain request to a port that speaks TLS fails with that reason, whether TLS or HTTP answers it."""
    async with peer(saying(answer)) as port:
        sample = await probe(f"http://127.0.0.1:{port}/v1", "m", None)
    assert sample.outcome in (Outcome.GARBLED, Outcome.HTTP_ERROR)
    assert (sample.error or "").endswith(SPEAKS_TLS)


async def test_real_servers_name_the_scheme(tls_simulator: Simulator, fault_simulator: Simulator) -> None:
    """With the wrong scheme, a real server with TLS and one without end in an error that leads to the right one."""
    plain = await probe(fault_simulator.base_url.replace("http://", "https://"), "m", None)
    assert (plain.outcome, "try http://" in (plain.error or "")) == (Outcome.CONNECT_FAILED, True), plain.error
    ciphered = await probe(tls_simulator.base_url.replace("https://", "http://"), "m", None)
    assert ciphered.outcome in (Outcome.GARBLED, Outcome.TRUNCATED), ciphered.error


async def test_an_alert_after_the_handshake_is_named(bad_certificate: MakeBadCertificate) -> None:
    """A server that demands a client certificate fails the connection: under TLS 1.3 its alert comes this late."""
    served = bad_certificate("none")
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_tls.load_cert_chain(served.chain, served.key)
    server_tls.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:  # asyncio's server would close without the alert
            theirs, _ = listener.accept()
            with theirs, suppress(ssl.SSLError):
                server_tls.wrap_socket(theirs, server_side=True)

        refusing = asyncio.create_task(asyncio.to_thread(refuse))
        sample = await probe(f"https://127.0.0.1:{listener.getsockname()[1]}/v1", "m", served.trusted)
        await refusing
    assert (sample.outcome, sample.error) == (
        Outcome.CONNECT_FAILED,
        "TLS: certificate required; present a certificate by --client-certificate, or tls: {certificate} in the plan",
    )


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "ZSTD", "gzip, br"])
async def test_a_compressed_stream_is_named(coding: str) -> None:
    """A stream that is compressed, although that was not asked for, is not one that was cut."""
    head = STREAM_HEAD.replace(b"\r\n\r\n", f"\r\ncontent-encoding: {coding}\r\n\r\n".encode())
    async with peer(saying(head + b"\x1f\x8b\x08\x00")) as port:
        sample = await probe(f"http://127.0.0.1:{port}/v1", "m", None)
    assert sample.outcome is Outcome.GARBLED
    assert f"the response is compressed ({coding.lower()})" in (sample.error or "")


@pytest.mark.parametrize(
    ("coding", "body", "message"),
    [
        ("gzip", gzip.compress(b'{"error": {"message": "no such model"}}', mtime=0), ": no such model"),
        ("br", b"\x8b\x12\x80", ""),
    ],
)
@pytest.mark.parametrize("status", ["400", "429", "500"])
async def test_a_compressed_refusal_is_named(status: str, coding: str, body: bytes, message: str) -> None:
    """A compressed refusal states its encoding, and its message if that can be read."""
    head = STREAM_HEAD.replace(b"200", status.encode())
    head = head.replace(b"\r\n\r\n", f"\r\ncontent-encoding: {coding}\r\n\r\n".encode())
    async with peer(saying(head + body)) as port:
        sample = await probe(f"http://127.0.0.1:{port}/v1", "m", None)
    assert sample.error == f"HTTP {status}, its body is compressed ({coding}){message}"


@pytest.mark.parametrize("coding", ["identity", "none", "utf-8"])
async def test_a_coding_without_compression_is_harmless(coding: str) -> None:
    """Servers that disable compression by a value of their own still send a plain stream."""
    head = STREAM_HEAD.replace(b"\r\n\r\n", f"\r\ncontent-encoding: {coding}\r\n\r\n".encode())
    async with peer(saying(head + ANSWER)) as port:
        sample = await probe(f"http://127.0.0.1:{port}/v1", "m", None)
    assert (sample.outcome, sample.error) == (Outcome.OK, None)


@pytest.mark.parametrize(
    ("families", "error"),
    [
        ((6, 4), "Connection refused (::1); many.example also has IPv4 addresses, try --family 4"),
        ((4, 6), "Connection refused (127.0.0.1); many.example also has IPv6 addresses, try --family 6"),
        ((4,), "Connection refused (127.0.0.1)"),
    ],
)
async def test_a_refused_address_shows(families: tuple[int, ...], error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first address of a name is tried; the error names it, and the option that leads to the others."""
    known = {4: (socket.AF_INET, ("127.0.0.1", 1)), 6: (socket.AF_INET6, ("::1", 1, 0, 0))}
    found = transport.Resolved(addresses=tuple(known[family] for family in families), dns_us=1)
    monkeypatch.setattr(transport, "_look_up", lambda *_: found)
    sample = await probe("http://many.example/v1", "m", None)
    assert (sample.outcome, sample.error) == (Outcome.CONNECT_FAILED, error)


async def test_a_client_certificate_is_presented(bad_certificate: MakeBadCertificate) -> None:
    """A target with a certificate of its own connects to a server that demands it, and trusts its own authorities."""
    pair = bad_certificate("none")
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_tls.load_cert_chain(pair.chain, pair.key)
    server_tls.load_verify_locations(pair.chain)
    server_tls.verify_mode = ssl.CERT_REQUIRED
    prober = Prober(vantage="here", tls=tls_context(), tls_folder=pair.chain.parent)

    async with await asyncio.start_server(_answer, "127.0.0.1", 0, ssl=server_tls) as server:
        target = Target(
            id=7,
            name="m",
            provider="p",
            model="m",
            base_url=f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1",
            workload=Workload(timeouts=PATIENT),
            tls=TlsFiles(certificate=pair.chain.name, key=pair.key.name, ca=pair.chain.name),
        )
        sample = await prober.probe(target, round_at=now_at())
        assert (sample.outcome, sample.error) == (Outcome.OK, None)
        pair.key.write_text("broken")
        with pytest.raises(SettingsError, match=r"cannot load .*: incomplete, damaged or encrypted$"):
            await prober.probe(target, round_at=now_at())
        pair.key.unlink()
        with pytest.raises(SettingsError, match=r"cannot load .*key.pem: No such file or directory"):
            await prober.probe(target, round_at=now_at())


@pytest.mark.parametrize(
    ("hosts", "winner"),
    [
        (["::1", "127.0.0.2"], "127.0.0.2"),
        (["192.0.2.1", "127.0.0.2"], "127.0.0.2"),
        (["127.0.0.2", "::1"], "127.0.0.2"),
    ],
    ids=["refused", "silent", "first"],
)
async def test_the_first_of_happy_eyeballs_wins(hosts: list[str], winner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses compete by RFC 8305: the sample has the winner's address and the duration of its own handshake."""
    opened, real = [], transport._open

    async def open_one(family: int, address: tuple[str, int]) -> transport._Opened:
        opened.append(address[0])
        if address[0] == "192.0.2.1":
            await asyncio.sleep(60)
        return await real(family, address)

    monkeypatch.setattr(transport, "_open", open_one)
    if "192.0.2.1" not in hosts:  # nothing else waits: the probe would fail
        monkeypatch.setattr(transport, "ATTEMPT_DELAY_SECONDS", 60)
    server = await asyncio.start_server(_answer, "127.0.0.2", 0)
    port = server.sockets[0].getsockname()[1]
    found = [(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, port)) for host in hosts]
    monkeypatch.setattr(transport, "_look_up", lambda *_: transport.Resolved(addresses=tuple(found), dns_us=1))
    target = Target(
        id=7,
        name="m",
        provider="p",
        model="m",
        base_url=f"http://many.example:{port}/v1",
        workload=Workload(timeouts=PATIENT),
        happy_eyeballs=True,
    )
    async with server:
        started_at = time.monotonic()
        sample = await Prober(vantage="here", tls=system_trust()).probe(target, round_at=now_at())
        took = time.monotonic() - started_at
    assert (sample.outcome, sample.error, sample.remote_address) == (Outcome.OK, None, winner)
    assert opened == hosts[: hosts.index(winner) + 1]
    assert (sample.tcp_us or 0) < 200_000
    assert took >= transport.ATTEMPT_DELAY_SECONDS or "192.0.2.1" not in hosts


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    await saying(STREAM_HEAD + ANSWER)(reader, writer)
    writer.close()


def test_addresses_of_both_families_alternate() -> None:
    """RFC 8305, section 4: the family of the first address first, then the other, in turn."""
    found = transport.Resolved(addresses=((6, "a"), (6, "b"), (6, "c"), (4, "d")), dns_us=None)
    assert [address for _, address in found.interleaved()] == ["a", "d", "b", "c"]


@pytest.mark.parametrize("failing", [0, 1, 5])
async def test_a_burst_starts_at_one_instant(failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams connect before the burst's instant, and then write in a row; one that fails is not waited for."""
    events: list[str] = []
    real = transport._open

    async def open_slowly(family: int, address: tuple[str, int]) -> transport._Opened:
        number = len(events)
        events.append("begun")
        await asyncio.sleep(0.01 * number)
        if number < failing:
            raise ConnectionRefusedError(111, "refused")
        opened = await real(family, address)
        events.append("connected")
        return opened

    def write(stream: StampingStream, piece: memoryview) -> tuple[int, int]:
        events.append("written")
        return time.monotonic_ns(), stream._sock.send(piece)

    monkeypatch.setattr(transport, "_open", open_slowly)
    monkeypatch.setattr(StampingStream, "_write_now", write)
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    async with server:
        base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        workload = Workload(timeouts=PATIENT, concurrency=5)
        target = Target(id=7, name="m", provider="p", model="m", base_url=base_url, workload=workload)
        samples = await Prober(vantage="here", tls=system_trust()).burst(target, round_at=now_at())
    failed = [sample for sample in samples if sample.outcome is Outcome.CONNECT_FAILED]
    assert (len(failed), len(samples)) == (failing, 5)
    assert events == ["begun"] * 5 + ["connected"] * (5 - failing) + ["written"] * (5 - failing)


async def test_a_burst_starts_without_a_stream_that_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that cannot connect holds up the others for a limited time."""
    monkeypatch.setattr(transport, "MAX_START_SECONDS", 0.05)
    start = transport.Start(3)
    first, second = await asyncio.gather(start.together(lambda: (1, 0)), start.together(lambda: (2, 0)))
    assert (first, second) == ((1, 0), (2, 0))
    assert await start.together(lambda: (3, 0)) == (3, 0)


async def test_an_answer_before_the_request_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers before the request gives no kernel timestamp of an answer, as its time would be zero."""
    real = transport._open

    async def open_late(family: int, address: tuple[str, int]) -> transport._Opened:
        opened = await real(family, address)
        await asyncio.sleep(0.05)
        return opened

    monkeypatch.setattr(transport, "_open", open_late)
    async with peer(saying(STREAM_HEAD + ANSWER), reads_head=False) as port:
        sample = await probe(f"http://127.0.0.1:{port}/v1", "m", None)
    assert (sample.outcome, sample.error) == (Outcome.OK, None)
    assert Quality.USER_STAMPS in sample.quality


@pytest.mark.parametrize(
    ("alert", "reason"), [(112, "unrecognized name"), (120, "no application protocol"), (70, "protocol version")]
)
async def test_an_alert_in_the_handshake_is_named(alert: int, reason: str) -> None:
    """Alerts that Python has no name of are shown in words, too, and without its source file."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        await saying(b"\x15\x03\x03\x00\x02\x02" + bytes([alert]))(reader, writer)

    async with peer(handle, reads_head=False) as port:
        sample = await probe(f"https://127.0.0.1:{port}/v1", "m", None)
    assert (sample.outcome, sample.error) == (Outcome.CONNECT_FAILED, f"TLS: {reason}")


async def test_a_name_without_address_is_named() -> None:
    """A failed lookup shows the name."""
    sample = await probe("https://no-such-host.invalid/v1", "m", None)
    assert sample.outcome is Outcome.CONNECT_FAILED
    assert (sample.error or "").startswith("no-such-host.invalid: ")
