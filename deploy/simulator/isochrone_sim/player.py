"""Plays a timeline on a connection: each frame is written at its own absolute instant, so nothing drifts.

One timer per stream, not one per frame: a thousand pending frames cost nothing, and a client that leaves takes one
timer with it. What the write of a token costs is everything this module is about.
"""

import asyncio
from collections.abc import Callable
from time import monotonic_ns

from isochrone_sim.frames import Said
from isochrone_sim.timeline import Timeline
from isochrone_sim.truth import Record


class Player:
    """One response in flight. `on_end` is called when its last frame is written; `record`, if any, grows meanwhile."""

    __slots__ = ("_frames", "_loop", "_next", "_on_end", "_record", "_start_ns", "_timer", "_transport")

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
        self._start_ns = start_ns
        self._record = record
        self._on_end = on_end
        self._next = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin; `start_ns` is when the request had arrived, on the monotonic clock."""
        if self._frames:
            self._wait()

    def stop(self) -> None:
        """Write nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

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
        else:
            self._finish()

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
