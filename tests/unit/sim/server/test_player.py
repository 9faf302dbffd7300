"""Playback at absolute instants, the instants of arrival, and the records of both."""

import asyncio
import json
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from isochrone_sim.errors import SettingsError
from isochrone_sim.response import Frame, Timeline
from isochrone_sim.script import Channel
from isochrone_sim.server import connection as player_module
from isochrone_sim.server import ground_truth
from isochrone_sim.server.connection import Player, StampingListener
from isochrone_sim.server.ground_truth import GroundTruth, Record, new_record
from isochrone_sim.server.service import Arrival, Reply

GAP_NS = 5_000_000
WRITE_SECONDS = 0.003


class _SlowTransport(asyncio.Transport):
    """Takes three milliseconds to write, as a socket under load may."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[int, bytes]] = []
        self.returned_ns: list[int] = []
        self.when_stopped = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append((time.monotonic_ns(), bytes(data)))
        time.sleep(WRITE_SECONDS)
        self.returned_ns.append(time.monotonic_ns())


def frames(count: int) -> tuple[Frame, ...]:
    said = ((Channel.ANSWER, 1),)
    tokens = (Frame(number * GAP_NS, b"%d" % number, said) for number in range(1, count + 1))
    return (Frame(0, b"head"), *tokens, Frame(count * GAP_NS, b"end"))


async def play(count: int, *, stop_after: int | None = None) -> tuple[_SlowTransport, Record, int]:
    played, transport, ended = Timeline(status=200, frames=frames(count)), _SlowTransport(), asyncio.Event()
    start_ns = time.monotonic_ns()
    arrival = Arrival(region="r", at_ns=start_ns, at=0, request_id="req_1")
    record = new_record(Reply(timeline=played, dialect="openai-chat"), arrival)
    assert record is not None
    player = Player(transport, played, start_ns=start_ns, record=record, on_end=ended.set)
    player.start()
    if stop_after is None:
        await asyncio.wait_for(ended.wait(), 60)
    else:
        while len(transport.written) < stop_after:
            await asyncio.sleep(0.001)
        player.stop()
        transport.when_stopped = len(transport.written)
        await asyncio.sleep(0.02)
    return transport, record, start_ns


async def test_a_late_write_delays_no_other() -> None:
    """A write that took long is followed by the next at its own instant, or at once: no delay adds up."""
    transport, record, start_ns = await play(30)
    assert [data for _, data in transport.written] == [frame.data for frame in frames(30)]
    planned_ns = [start_ns + frame.offset_ns for frame in frames(30)]
    late_ns = [at_ns - planned for (at_ns, _), planned in zip(transport.written, planned_ns, strict=True)]
    assert min(late_ns) > -100_000
    # By how much the previous write had made each one late when it returned. Counted from write to write, each would be
    # another gap later.
    kept_ns = [at_ns - planned for at_ns, planned in zip(transport.returned_ns, planned_ns[1:], strict=False)]
    assert min(late - max(kept, 0) for late, kept in zip(late_ns[-10:], kept_ns[-10:], strict=True)) < GAP_NS / 2
    # A write is stamped after the one before it.
    assert max(kept_ns) / 1000 - 1 <= record.worst_late_us <= max(late_ns) / 1000


async def test_the_record_has_the_instants_of_the_writes() -> None:
    """First and last token are stamped right before their writes, which the record says the duration of."""
    transport, record, start_ns = await play(3)
    (_, first, _, last, _), written = frames(3), [at_ns for at_ns, _ in transport.written]
    assert record.first_token_at_ns is not None
    assert record.last_token_at_ns is not None
    assert record.done_at_ns is not None
    # Not before they are due, nor before the previous write has returned.
    assert max(start_ns + first.offset_ns - 100_000, transport.returned_ns[0]) <= record.first_token_at_ns <= written[1]
    assert max(start_ns + last.offset_ns - 100_000, transport.returned_ns[2]) <= record.last_token_at_ns <= written[3]
    assert record.first_token_write_ns is not None
    assert record.first_token_write_ns >= transport.returned_ns[1] - written[1] >= WRITE_SECONDS * 1e9
    assert record.done_at_ns >= transport.returned_ns[-1]
    assert record.tokens[Channel.ANSWER] == 3


async def test_a_stopped_player_writes_nothing_more() -> None:
    """Who leaves is sent nothing, and the record keeps what was sent."""
    transport, record, _ = await play(30, stop_after=4)
    assert 4 <= transport.when_stopped == len(transport.written) < 30
    assert record.tokens[Channel.ANSWER] == len(transport.written) - 1
    assert record.done_at_ns is None


class _NarrowTransport(asyncio.Transport):
    """Takes three writes, then says that it is full."""

    def __init__(self) -> None:
        super().__init__()
        self.player: Player | None = None
        self.size = 0
        self.writes = 0
        self.full = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.size += len(data)
        self.writes += 1
        if self.player is not None and self.writes % 3 == 0:
            self.player.pause()
            self.full.set()


async def test_a_flood_waits_for_its_reader_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written while the client does not read; it goes on when it does, and ends at the limit."""
    monkeypatch.setattr(player_module, "FLOOD_BYTES", 6000)
    played = Timeline(status=200, frames=frames(1), flood=Frame(0, b"x" * 1000, ((Channel.ANSWER, 10),)))
    transport, ended, start_ns = _NarrowTransport(), asyncio.Event(), time.monotonic_ns()
    record = new_record(
        Reply(timeline=played, dialect="openai-chat"), Arrival(region="r", at_ns=start_ns, at=0, request_id="req_1")
    )
    assert record is not None
    player = Player(transport, played, start_ns=start_ns, record=record, on_end=ended.set)
    transport.player = player
    player.start()
    # Head and token, then the flood, in three times three writes.
    for writes in (3, 6, 9):
        await asyncio.wait_for(transport.full.wait(), 60)
        await asyncio.sleep(0.02)
        assert (transport.writes, ended.is_set()) == (writes, writes == 9)
        transport.full.clear()
        if not ended.is_set():
            player.resume()
    assert (transport.writes, record.tokens[Channel.ANSWER]) == (9, 1 + 6 * 10)


PAUSE_SECONDS = 0.05


def read_into(connection: socket.socket) -> bytes:
    buffer = bytearray(100)
    return bytes(buffer[: connection.recv_into(buffer)])


@pytest.mark.parametrize("read", [lambda connection: connection.recv(100), read_into])
def test_a_late_read_knows_when_the_bytes_came(read: Callable[[socket.socket], bytes]) -> None:
    """Bytes that waited 50 ms for their reader are stamped with their arrival, whichever way they are read."""
    with StampingListener() as listener, socket.socket() as client:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        # The kernel begins to stamp a moment after the first socket on the machine has parameters for it.
        time.sleep(PAUSE_SECONDS)
        client.connect(listener.getsockname())
        before_ns = time.monotonic_ns()
        client.sendall(b"hello")
        sent_ns = time.monotonic_ns()
        time.sleep(PAUSE_SECONDS)
        connection, _ = listener.accept()
        with connection:
            assert read(connection) == b"hello"
            if sys.platform != "linux":
                pytest.skip("this kernel gives no receive timestamps")
            # The clocks are read one after the other, so the conversion may be off by a scheduling of this process.
            assert before_ns - 10_000_000 < connection.arrived_ns < sent_ns + 10_000_000


def test_connections_are_claimed_once() -> None:
    """A listener hands each accepted connection out by its number, one time."""
    with StampingListener() as listener, socket.socket() as client:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client.connect(listener.getsockname())
        connection, _ = listener.accept()
        with connection:
            assert listener.claim(connection.fileno()) is connection
            assert listener.claim(connection.fileno()) is None


def record(number: int = 1) -> Record:
    arrival = Arrival(region="us-east-2", at_ns=1_000_000, at=1_779_235_200_000_000, request_id=f"req_{number}")
    played = Timeline(status=200, frames=(), ttft_us=150, tokens_per_second=50.0, fault="stall")
    reply = Reply(timeline=played, dialect="openai-chat", model="m", provider="p", nonce="abcdef", stream=True)
    made = new_record(reply, arrival)
    assert made is not None
    return made


def test_a_record_begins_with_the_plan() -> None:
    """What is planned is there from the start; the first token is in whole microseconds."""
    told = record().to_json()
    assert (told["planned_ttft_us"], told["fault"], told["nonce"], told["status"]) == (150, "stall", "abcdef", 200)
    assert (told["first_token_at_ns"], told["true_ttft_us"], told["ending"]) == (None, None, None)
    assert told["tokens"] == {"reasoning": 0, "answer": 0, "tool": 0}
    grown = record()
    grown.first_token_at_ns = grown.arrival.at_ns + 151_900
    grown.tokens[Channel.ANSWER] += 3
    assert (grown.to_json()["true_ttft_us"], grown.to_json()["tokens"]["answer"]) == (151, 3)


def test_pages_are_no_exchanges() -> None:
    """A request that asks no model for anything leaves no record."""
    arrival = Arrival(region="r", at_ns=0, at=0, request_id="req_1")
    assert new_record(Reply(timeline=Timeline(status=200, frames=())), arrival) is None


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest records make room; one can be parameters for by its request."""
    monkeypatch.setattr(ground_truth, "KEPT", 3)
    kept = GroundTruth()
    for number in range(5):
        kept.begin(record(number))
    assert [each.arrival.request_id for each in kept.find()] == ["req_2", "req_3", "req_4"]
    assert [each.arrival.request_id for each in kept.find("req_3")] == ["req_3"]
    assert kept.find("req_0") == []


async def test_the_file_gets_every_exchange_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended exchanges are appended while it runs; those in flight when it closes are too, as stopped."""
    monkeypatch.setattr(ground_truth, "FLUSH_SECONDS", 0.01)
    path = tmp_path / "truth.jsonl"
    path.write_text("{}\n")
    kept = GroundTruth(path)
    writing = asyncio.create_task(kept.flush_periodically())
    for number, ending in ((1, "complete"), (2, "client_left"), (3, None)):
        each = record(number)
        kept.begin(each)
        if ending:
            kept.end(each, ending)
            kept.end(each, "too late")
    async with asyncio.timeout(5):
        while path.read_text().count("\n") < 3:
            await asyncio.sleep(0.01)
    writing.cancel()
    kept.close()
    told = [json.loads(line) for line in path.read_text().splitlines()]
    assert told[0] == {}
    assert [(line["request_id"], line["ending"]) for line in told[1:]] == [
        ("req_1", "complete"),
        ("req_2", "client_left"),
        ("req_3", "stopped"),
    ]


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    """Is told before anything is served."""
    with pytest.raises(SettingsError, match="cannot write"):
        GroundTruth(tmp_path / "none" / "truth.jsonl")
