"""The player: absolute instants, so that a late write makes no later one later; and what it notes while playing."""

import asyncio
import time

import pytest

from isochrone_sim.response import Flood, Frame, Timeline
from isochrone_sim.script import Channel
from isochrone_sim.server import connection as player_module
from isochrone_sim.server.connection import Player
from isochrone_sim.server.ground_truth import Record, new_record
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
    """A write that took long is followed by the next one at its own instant, or at once if that is over: no delay adds
    up.
    """
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
    played = Timeline(status=200, frames=frames(1), flood=Flood(b"x" * 1000, ((Channel.ANSWER, 10),)))
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
