"""Reads the truth out to whoever asks, a few records per turn of the loop: streams in flight do not wait for it."""

import asyncio
from collections.abc import Callable, Sequence
from time import time_ns

from isochrone_sim.response.http_heads import LAST_CHUNK, chunk, head
from isochrone_sim.server.backlog import Backlog
from isochrone_sim.server.truth import Record, as_lines

_RECORDS_A_TURN = 20
_HEADERS = {"content-type": "application/x-ndjson", "transfer-encoding": "chunked"}


def tell(
    records: Sequence[Record], transport: asyncio.Transport, backlog: Backlog, *, on_end: Callable[[], None]
) -> None:
    """Write the records as JSON lines, one slice after the other, then call `on_end`."""

    def tell_from(start: int) -> None:
        if transport.is_closing():
            return
        if start >= len(records):
            transport.write(LAST_CHUNK)
            on_end()
            return
        transport.write(chunk(as_lines(records[start : start + _RECORDS_A_TURN])))
        backlog.add(lambda: tell_from(start + _RECORDS_A_TURN))

    transport.write(head(200, _HEADERS, at=time_ns() // 1000))
    tell_from(0)
