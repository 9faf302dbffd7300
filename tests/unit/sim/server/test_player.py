"""The player: absolute instants, so that a late write makes no later one later; and what it notes while playing."""

import asyncio
import time

import pytest

from isochrone_sim.exchange.script import Channel
from isochrone_sim.response.frames import Flood, Frame
from isochrone_sim.response.timeline import Timeline
from isochrone_sim.server import player as player_module
from isochrone_sim.server.ground_truth import Record, new_record
from isochrone_sim.server.player import Player
from isochrone_sim.server.service import Arrival, Reply

GAP_NS = 5_000_000
WRITE_SECONDS = 0.003


class _SlowTransport(asyncio.Transport):
    """Takes three milliseconds to write, as a socket under load may."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[int, bytes]] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append((time.monotonic_ns(), bytes(data)))
        time.sleep(WRITE_SECONDS)


def frames(count: int) -> tuple[Frame, ...]:
    said = ((Channel.ANSWER, 1),)
    tokens = (Frame(number * GAP_NS, b"%d" % number, said) for number in range(1, count + 1))
    return (Frame(0, b"head"), *tokens, Frame(count * GAP_NS, b"end"))


async def play(count: int, *, stop_after: int | None = None) -> tuple[list[tuple[int, bytes]], Record, int]:
    played, transport, ended = Timeline(status=200, frames=frames(count)), _SlowTransport(), asyncio.Event()
    start_ns = time.monotonic_ns()
    arrival = Arrival(region="r", at_ns=start_ns, at=0, request_id="req_1")
    record = new_record(Reply(timeline=played, dialect="openai-chat"), arrival)
    assert record is not None
    player = Player(transport, played, start_ns=start_ns, record=record, on_end=ended.set)
    player.start()
    if stop_after is None:
        await asyncio.wait_for(ended.wait(), 10)
    else:
        while len(transport.written) < stop_after:
            await asyncio.sleep(0.001)
        player.stop()
        await asyncio.sleep(0.02)
    return transport.written, record, start_ns


async def test_a_late_write_delays_no_other() -> None:
    """Writes that cost more than half a gap add up to nothing: the last token is as late as the first, not later."""
    written, record, start_ns = await play(30)
    assert [data for _, data in written] == [frame.data for frame in frames(30)]
    late_ns = [at_ns - start_ns - frame.offset_ns for (at_ns, _), frame in zip(written, frames(30), strict=True)]
    assert min(late_ns) > -100_000
    # Counted from write to write, thirty writes of three milliseconds would end 90 ms late.
    assert min(late_ns[-10:]) < 30_000_000
    assert abs(record.worst_late_us - max(late_ns) / 1000) < 1000


async def test_the_record_has_the_instants_of_the_writes() -> None:
    """First and last token are stamped right before their writes, which the record says the duration of."""
    written, record, _ = await play(3)
    assert record.first_token_at_ns is not None
    assert record.last_token_at_ns is not None
    assert record.done_at_ns is not None
    assert 0 <= written[1][0] - record.first_token_at_ns < 1_000_000
    assert 0 <= written[3][0] - record.last_token_at_ns < 1_000_000
    assert record.first_token_write_ns is not None
    assert record.first_token_write_ns >= WRITE_SECONDS * 1e9
    assert record.done_at_ns > written[-1][0]
    assert record.tokens[Channel.ANSWER] == 3


async def test_a_stopped_player_writes_nothing_more() -> None:
    """Who leaves is sent nothing, and the record keeps what was sent."""
    written, record, _ = await play(30, stop_after=4)
    assert len(written) in {4, 5}
    assert record.tokens[Channel.ANSWER] == len(written) - 1
    assert record.done_at_ns is None


class _NarrowTransport(asyncio.Transport):
    """Takes three writes, then says that it is full."""

    def __init__(self) -> None:
        super().__init__()
        self.player: Player | None = None
        self.size = 0
        self.writes = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.size += len(data)
        self.writes += 1
        if self.player is not None and self.writes % 3 == 0:
            self.player.pause()


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
    pauses = []
    while not ended.is_set():
        await asyncio.sleep(0.02)
        pauses.append(transport.writes)
        player.resume()
    # Head and token, then the flood; each pause finds three more writes or none.
    assert pauses[:3] == [3, 6, 9]
    assert (transport.writes, record.tokens[Channel.ANSWER]) == (9, 1 + 6 * 10)
