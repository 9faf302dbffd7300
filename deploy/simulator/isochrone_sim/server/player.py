"""Playback of a timeline on a connection.

Each frame is written at its own absolute instant, so delays do not add up; a flood follows, if there is one, as fast as
the client reads. One timer per stream instead of one per frame keeps a thousand pending frames cheap, and a client that
disconnects leaves one timer to cancel. The code is written to keep the cost of writing a token low.
"""

import asyncio
from collections.abc import Callable
from time import monotonic_ns

from isochrone_sim.response.frames import TokenCounts
from isochrone_sim.response.timeline import Timeline
from isochrone_sim.server.ground_truth import Record

# Total size of a flood, in bytes.
FLOOD_BYTES = 1 << 30


class Player:
    """One response in flight. `on_end` is called after the last frame is written; `record`, if any, is updated
    meanwhile.
    """

    __slots__ = (
        "_flood",
        "_flooded_bytes",
        "_flooding",
        "_frames",
        "_loop",
        "_next",
        "_on_end",
        "_paused",
        "_record",
        "_start_ns",
        "_timer",
        "_transport",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        timeline: Timeline,
        *,
        start_ns: int,
        record: Record | None,
        on_end: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._frames = timeline.frames
        self._flood = timeline.flood
        self._flooded_bytes = 0
        self._paused = False
        self._flooding = False
        self._start_ns = start_ns
        self._record = record
        self._on_end = on_end
        self._next = 0
        self._timer: asyncio.Handle | None = None

    def start(self) -> None:
        """Start playback. `start_ns` is the monotonic instant at which the request had arrived."""
        if self._frames:
            self._wait()

    def stop(self) -> None:
        """Stop playback."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def pause(self) -> None:
        """The client reads too slowly: pause the flood. Frames with an instant are still written."""
        self._paused = True

    def resume(self) -> None:
        """The client has caught up: continue the flood."""
        self._paused = False
        self._continue_flood()

    def _wait(self) -> None:
        at_ns = self._start_ns + self._frames[self._next].offset_ns
        # asyncio's clock is time.monotonic(), whose floats resolve less than a nanosecond for months of uptime.
        self._timer = self._loop.call_at(at_ns / 1e9, self._play)

    def _play(self) -> None:
        offset_ns, data, token_counts = self._frames[self._next]
        now_ns = monotonic_ns()
        self._transport.write(data)
        record = self._record
        if record is not None:
            if token_counts:
                self._record_tokens(record, token_counts, now_ns)
            record.worst_late_us = max(record.worst_late_us, (now_ns - self._start_ns - offset_ns) // 1000)
        self._next += 1
        if self._next < len(self._frames):
            self._wait()
        elif self._flood is not None:
            self._flooding = True
            self._continue_flood()
        else:
            self._finish()

    def _write_flood(self) -> None:
        """Write the flood once per turn of the loop while the kernel accepts it."""
        flood = self._flood
        assert flood is not None
        now_ns = monotonic_ns()
        self._flooded_bytes += len(flood.data)
        self._transport.write(flood.data)
        if self._record is not None and flood.token_counts:
            self._record_tokens(self._record, flood.token_counts, now_ns)
        if self._flooded_bytes >= FLOOD_BYTES:
            self._finish()
        else:
            self._continue_flood()

    def _continue_flood(self) -> None:
        if self._flooding and not self._paused:
            self._timer = self._loop.call_soon(self._write_flood)

    @staticmethod
    def _record_tokens(record: Record, token_counts: TokenCounts, at_ns: int) -> None:
        if record.first_token_at_ns is None:
            record.first_token_at_ns = at_ns
            record.first_token_write_ns = monotonic_ns() - at_ns
        record.last_token_at_ns = at_ns
        for channel, tokens in token_counts:
            record.tokens[channel] += tokens

    def _finish(self) -> None:
        self._timer = None
        if self._record is not None:
            self._record.done_at_ns = monotonic_ns()
        self._on_end()
