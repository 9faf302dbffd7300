"""A client connection: requests are timestamped on arrival, answered in order, and recorded."""

import asyncio
import itertools
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic_ns, time_ns

import structlog

from isochrone_sim.exchange.requests import Malformed, Request, RequestReader
from isochrone_sim.exchange.script import Ending
from isochrone_sim.response.http_heads import LAST_CHUNK, chunk, complete_response, head
from isochrone_sim.server.ground_truth import GroundTruth, Record, json_lines, new_record
from isochrone_sim.server.job_queue import JobQueue
from isochrone_sim.server.player import Player
from isochrone_sim.server.receive_timestamps import StampingListener, StampingSocket
from isochrone_sim.server.service import Arrival, Reply, Service

_RECORDS_PER_TURN = 20
_RECORD_HEADERS = {"content-type": "application/x-ndjson", "transfer-encoding": "chunked"}
_LINGER_ZERO = struct.pack("ii", 1, 0)
_MALFORMED = b'{"error":{"message":"This is not a valid HTTP/1.1 request.","type":"invalid_request_error"}}'
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """State shared by all connections of a process."""

    service: Service
    ground_truth: GroundTruth
    job_queue: JobQueue
    log_requests: bool = False
    connections: set["Connection"] = field(default_factory=set)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    prefix: str = field(default_factory=lambda: os.urandom(6).hex())

    def new_request_id(self) -> str:
        """Return an id that is unique across processes."""
        return f"req_{self.prefix}{next(self.numbers):08x}"


class Connection(asyncio.Protocol):
    """A connection from `region`. It handles one exchange at a time: the next request waits until the response is
    complete.
    """

    def __init__(self, region: str, state: ServerState, listener: StampingListener) -> None:
        self._region = region
        self._state = state
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
        """See `asyncio.Protocol`. asyncio has already set TCP_NODELAY."""
        assert isinstance(transport, asyncio.Transport)
        # With a limit of 0, `pause_writing` is called when the kernel does not accept all bytes of a write. With TLS,
        # it is called when asyncio's 64 KiB below are full; there a limit of 0 would never be reached.
        transport.set_write_buffer_limits(high=1 if transport.get_extra_info("ssl_object") else 0)
        self._transport = transport
        self._socket = self._listener.claim(transport.get_extra_info("socket").fileno())
        self._state.connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Timestamp the bytes now and parse them later."""
        stamped_ns = self._socket.arrived_ns if self._socket else None
        self._inbox.append((stamped_ns or monotonic_ns(), data))
        self._state.job_queue.add(self._read)

    def pause_writing(self) -> None:
        """The kernel has not accepted all bytes of a write: mark the record as buffered."""
        if self._record is not None:
            self._record.buffered = True
        if self._player is not None:
            self._player.pause()

    def resume_writing(self) -> None:
        """The kernel has accepted all bytes."""
        if self._player is not None:
            self._player.resume()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the reason does not matter
        """Stop the response in flight."""
        self._busy = True
        self._state.connections.discard(self)
        if self._player is not None:
            self._player.stop()
        self._close_record("client_left")

    def abort(self) -> None:
        """Close the connection because the simulator stops."""
        self._close_record("stopped")
        self._transport.abort()

    def _read(self) -> None:
        try:
            self._read_requests()
        except Malformed as error:
            response = complete_response(error.status, _MALFORMED, {"connection": "close"}, at=time_ns() // 1000)
            self._transport.write(response)
            self._transport.close()
        except Exception:
            # A bug: the loop's exception handler logs it, and the client must not wait.
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
            records = self._state.ground_truth.find(request.query.get("request_id"))
            ended = partial(self._ended, Ending.KEEP_ALIVE, keep_alive=request.keeps_alive)
            _send_records(records, self._transport, self._state.job_queue, on_end=ended)
            return
        arrival = self._arrival()
        reply = self._state.service.answer(request, arrival)
        self._play(reply, arrival, keep_alive=request.keeps_alive)

    def _arrival(self) -> Arrival:
        since_ns = monotonic_ns() - self._arrived_ns
        return Arrival(
            region=self._region,
            at_ns=self._arrived_ns,
            at=(time_ns() - since_ns) // 1000,
            request_id=self._state.new_request_id(),
        )

    def _play(self, reply: Reply, arrival: Arrival, *, keep_alive: bool) -> None:
        self._record = new_record(reply, arrival)
        if self._record is not None:
            self._state.ground_truth.begin(self._record)
        self._player = Player(
            self._transport,
            reply.timeline,
            start_ns=arrival.at_ns,
            record=self._record,
            on_end=partial(self._ended, reply.timeline.ending, keep_alive=keep_alive),
        )
        self._player.start()

    def _ended(self, ending: Ending, *, keep_alive: bool) -> None:
        self._player = None
        if ending is Ending.HANG:
            return
        self._close_record("complete")
        if ending is Ending.RESET:
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
            self._transport.abort()
        elif ending is Ending.CLOSE or not keep_alive:
            self._transport.close()
        elif ending is Ending.KEEP_ALIVE:
            self._busy = False
            self._state.job_queue.add(self._read)

    def _close_record(self, ending: str) -> None:
        record, self._record = self._record, None
        if record is None:
            return
        self._state.ground_truth.end(record, ending)
        if self._state.log_requests:
            _log.info("request.answered", **record.to_json())


def _send_records(
    records: Sequence[Record], transport: asyncio.Transport, job_queue: JobQueue, *, on_end: Callable[[], None]
) -> None:
    """Write the records as JSON lines, a few per turn of the loop so that other streams are not delayed; then call
    `on_end`.
    """

    def send_from(start: int) -> None:
        if transport.is_closing():
            return
        if start >= len(records):
            transport.write(LAST_CHUNK)
            on_end()
            return
        transport.write(chunk(json_lines(records[start : start + _RECORDS_PER_TURN])))
        job_queue.add(lambda: send_from(start + _RECORDS_PER_TURN))

    transport.write(head(200, _RECORD_HEADERS, at=time_ns() // 1000))
    send_from(0)
