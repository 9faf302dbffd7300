"""One client's connection: requests are stamped as they arrive, answered one after the other, and remembered."""

import asyncio
import itertools
import os
import socket
import struct
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from time import monotonic_ns, time_ns

import structlog

from isochrone_sim.exchange.requests import Malformed, Request, RequestReader
from isochrone_sim.exchange.script import Ending
from isochrone_sim.response.http_heads import document
from isochrone_sim.server.backlog import Backlog
from isochrone_sim.server.player import Player
from isochrone_sim.server.receive_timestamps import StampingListener, StampingSocket
from isochrone_sim.server.service import Arrival, Reply, Service
from isochrone_sim.server.truth import Record, Truth, record_of
from isochrone_sim.server.truth_endpoint import tell

_LINGER_ZERO = struct.pack("ii", 1, 0)
_MALFORMED = b'{"error":{"message":"This is no HTTP/1.1 request.","type":"invalid_request_error"}}'
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Premises:
    """What all connections of a process share."""

    service: Service
    truth: Truth
    backlog: Backlog
    log_requests: bool = False
    connections: set["Connection"] = field(default_factory=set)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    prefix: str = field(default_factory=lambda: os.urandom(6).hex())

    def new_request_id(self) -> str:
        """An id that no other request has, in this process or another."""
        return f"req_{self.prefix}{next(self.numbers):08x}"


class Connection(asyncio.Protocol):
    """A connection from `region`. One exchange at a time: a next request waits until the response is complete."""

    def __init__(self, region: str, premises: Premises, listener: StampingListener) -> None:
        self._region = region
        self._premises = premises
        self._listener = listener
        self._socket: StampingSocket | None = None
        self._reader = RequestReader()
        self._inbox: deque[tuple[int, bytes]] = deque()
        self._arrived_ns = 0
        self._busy = False
        self._player: Player | None = None
        self._record: Record | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`. asyncio has set TCP_NODELAY already."""
        assert isinstance(transport, asyncio.Transport)
        # From the first byte that the kernel does not take at once, `pause_writing` tells. Under TLS it tells when
        # asyncio's own 64 KiB below are full, and there a limit of 0 would be reached by nothing.
        transport.set_write_buffer_limits(high=1 if transport.get_extra_info("ssl_object") else 0)
        self._transport = transport
        self._socket = self._listener.claim(transport.get_extra_info("socket").fileno())
        self._premises.connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Stamp first, think later."""
        stamped_ns = self._socket.arrived_ns if self._socket else None
        self._inbox.append((stamped_ns or monotonic_ns(), data))
        self._premises.backlog.add(self._read)

    def pause_writing(self) -> None:
        """The kernel did not take all of a write, so its instant is not the whole truth."""
        if self._record is not None:
            self._record.buffered = True
        if self._player is not None:
            self._player.pause()

    def resume_writing(self) -> None:
        """The kernel has taken everything."""
        if self._player is not None:
            self._player.resume()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # why is the client's affair
        """Whatever was in flight is over."""
        self._busy = True
        self._premises.connections.discard(self)
        if self._player is not None:
            self._player.stop()
        self._close_record("client_left")

    def abort(self) -> None:
        """End at once, because the simulator does."""
        self._close_record("stopped")
        self._transport.abort()

    def _read(self) -> None:
        try:
            self._read_requests()
        except Malformed as error:
            response = document(error.status, _MALFORMED, {"connection": "close"}, at=time_ns() // 1000)
            self._transport.write(response)
            self._transport.close()
        except Exception:
            # A flaw of ours; the loop's exception handler tells, and the client is not left waiting.
            self._transport.abort()
            raise

    def _read_requests(self) -> None:
        while not self._busy:
            request = self._reader.next_request()
            if request is not None:
                self._busy = True
                self._answer(request)
            elif self._inbox:
                self._arrived_ns, data = self._inbox.popleft()
                self._reader.receive(data)
            else:
                break
        if self._reader.wants_continue:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _answer(self, request: Request) -> None:
        if (request.method, request.path) == ("GET", "/truth"):
            records = self._premises.truth.find(request.query.get("request_id"))
            ended = partial(self._ended, Ending.KEEP_ALIVE, keep=request.keeps_alive)
            tell(records, self._transport, self._premises.backlog, on_end=ended)
            return
        arrival = self._arrival()
        reply = self._premises.service.answer(request, arrival)
        self._play(reply, arrival, keep=request.keeps_alive)

    def _arrival(self) -> Arrival:
        since_ns = monotonic_ns() - self._arrived_ns
        return Arrival(
            region=self._region,
            at_ns=self._arrived_ns,
            at=(time_ns() - since_ns) // 1000,
            request_id=self._premises.new_request_id(),
        )

    def _play(self, reply: Reply, arrival: Arrival, *, keep: bool) -> None:
        self._record = record_of(reply, arrival)
        if self._record is not None:
            self._premises.truth.begin(self._record)
        self._player = Player(
            self._transport,
            reply.timeline,
            start_ns=arrival.at_ns,
            record=self._record,
            on_end=partial(self._ended, reply.timeline.ending, keep=keep),
        )
        self._player.start()

    def _ended(self, ending: Ending, *, keep: bool) -> None:
        self._player = None
        self._close_record("complete")
        if ending is Ending.RESET:
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
            self._transport.abort()
        elif ending is Ending.CLOSE or not keep:
            self._transport.close()
        elif ending is Ending.KEEP_ALIVE:
            self._busy = False
            self._premises.backlog.add(self._read)

    def _close_record(self, ending: str) -> None:
        record, self._record = self._record, None
        if record is None:
            return
        self._premises.truth.end(record, ending)
        if self._premises.log_requests:
            _log.info("request.answered", **record.as_plain())
