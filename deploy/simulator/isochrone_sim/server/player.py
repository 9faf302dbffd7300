"""Plays a timeline on a connection: each frame is written at its own absolute instant, so nothing drifts; then comes
the flood, if there is one, as fast as the client reads.

One timer per stream, not one per frame: a thousand pending frames cost nothing, and a client that leaves takes one
timer with it. What the write of a token costs is everything this module is about.
"""

import asyncio
from collections.abc import Callable
from time import monotonic_ns

from isochrone_sim.response.frames import Said
from isochrone_sim.response.timeline import Timeline
from isochrone_sim.server.truth import Record

# How much a flood is, in bytes.
FLOOD_BYTES = 1 << 30


class Player:
    """One response in flight. `on_end` is called when its last frame is written; `record`, if any, grows meanwhile."""

    __slots__ = (
        "_flood",
        "_flooded",
        "_frames",
        "_loop",
        "_next",
        "_on_end",
        "_paused",
        "_pouring",
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
        self._flooded = 0
        self._paused = False
        self._pouring = False
        self._start_ns = start_ns
        self._record = record
        self._on_end = on_end
        self._next = 0
        self._timer: asyncio.Handle | None = None

    def start(self) -> None:
        """Begin; `start_ns` is when the request had arrived, on the monotonic clock."""
        if self._frames:
            self._wait()

    def stop(self) -> None:
        """Write nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def pause(self) -> None:
        """The client does not read as fast; a flood waits, what has its instant does not."""
        self._paused = True

    def resume(self) -> None:
        """The client has read what there was."""
        self._paused = False
        self._go_on()

    def _wait(self) -> None:
        at_ns = self._start_ns + self._frames[self._next].offset_ns
        # asyncio's clock is time.monotonic(), whose floats resolve less than a nanosecond for months of uptime.
        self._timer = self._loop.call_at(at_ns / 1e9, self._play)

    def _play(self) -> None:
        offset_ns, data, said = self._frames[self._next]
        now_ns = monotonic_ns()
        self._transport.write(data)
        record = self._record
        if record is not None:
            if said:
                self._note(record, said, now_ns)
            record.worst_late_us = max(record.worst_late_us, (now_ns - self._start_ns - offset_ns) // 1000)
        self._next += 1
        if self._next < len(self._frames):
            self._wait()
        elif self._flood is not None:
            self._pouring = True
            self._go_on()
        else:
            self._finish()

    def _pour(self) -> None:
        """One write of the flood per turn of the loop, as long as the kernel takes it at once."""
        flood = self._flood
        assert flood is not None
        now_ns = monotonic_ns()
        self._flooded += len(flood.data)
        self._transport.write(flood.data)
        if self._record is not None and flood.said:
            self._note(self._record, flood.said, now_ns)
        if self._flooded >= FLOOD_BYTES:
            self._finish()
        else:
            self._go_on()

    def _go_on(self) -> None:
        if self._pouring and not self._paused:
            self._timer = self._loop.call_soon(self._pour)

    @staticmethod
    def _note(record: Record, said: Said, at_ns: int) -> None:
        if record.first_token_at_ns is None:
            record.first_token_at_ns = at_ns
            record.first_token_write_ns = monotonic_ns() - at_ns
        record.last_token_at_ns = at_ns
        for channel, tokens in said:
            record.tokens[channel] += tokens

    def _finish(self) -> None:
        self._timer = None
        if self._record is not None:
            self._record.done_at_ns = monotonic_ns()
        self._on_end()
