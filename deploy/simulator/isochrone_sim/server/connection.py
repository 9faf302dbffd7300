"""A client connection: requests are timestamped on arrival, answered in order, and recorded.

An event loop that is busy writing tokens reads a request late; the kernel's timestamp is still exact. asyncio reads
from the socket that it is given, so a listening socket creates connections that store the timestamp of each read; this
works under TLS too. If the kernel provides no timestamps, `arrived_ns` is `None`, and the own clock is used.

Planning a response takes a fraction of a millisecond. When many requests arrive at once, they are all timestamped first
and then planned one by one, so that due tokens of other streams are sent in between. Each frame is written at its own
absolute instant, so delays do not add up; a flood follows, if there is one, as fast as the client reads. One timer per
stream instead of one per frame keeps a thousand pending frames cheap, and a client that disconnects leaves one timer to
cancel. The code is written to keep the cost of writing a token low.
"""

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
from typing import TYPE_CHECKING, Any

import structlog

from isochrone_common.receive_stamps import ANCILLARY_BYTES, enable_receive_stamps, read_stamp
from isochrone_sim.requests import Malformed, Request, RequestReader
from isochrone_sim.response import LAST_CHUNK, Timeline, TokenCounts, chunk, complete_response, head
from isochrone_sim.script import Ending
from isochrone_sim.server.ground_truth import GroundTruth, Record, json_lines, new_record
from isochrone_sim.server.service import Arrival, Reply, Service

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

# Total size of a flood, in bytes.
FLOOD_BYTES = 1 << 30
_RECORDS_PER_TURN = 20
_RECORD_HEADERS = {"content-type": "application/x-ndjson", "transfer-encoding": "chunked"}
_LINGER_ZERO = struct.pack("ii", 1, 0)
_MALFORMED = b'{"error":{"message":"This is not a valid HTTP/1.1 request.","type":"invalid_request_error"}}'
_log = structlog.get_logger()


class JobQueue:
    """Runs jobs in order, one per turn of the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: deque[Callable[[], None]] = deque()

    def add(self, job: Callable[[], None]) -> None:
        """Run `job` in a later turn of the loop. Its errors go to the loop's exception handler."""
        self._jobs.append(job)
        if len(self._jobs) == 1:
            self._loop.call_soon(self._work)

    def _work(self) -> None:
        try:
            self._jobs[0]()
        finally:
            self._jobs.popleft()
            if self._jobs:
                self._loop.call_soon(self._work)


class StampingSocket(socket.socket):
    """A connection that stores the arrival time of the last received bytes."""

    arrived_ns = 0

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """See `socket.recv`. Sets `arrived_ns` to the arrival of the last byte, on the monotonic clock."""
        data, ancillary, _, _ = self.recvmsg(bufsize, ANCILLARY_BYTES, flags)
        self.arrived_ns = read_stamp(ancillary).at_ns
        return data

    def recv_into(self, buffer: "Buffer", nbytes: int = 0, flags: int = 0) -> int:
        """See `socket.recv_into`, which asyncio uses under TLS; otherwise as `recv`."""
        room = memoryview(buffer)[: nbytes or None]
        count, ancillary, _, _ = self.recvmsg_into([room], ANCILLARY_BYTES, flags)
        self.arrived_ns = read_stamp(ancillary).at_ns
        return count


class StampingListener(socket.socket):
    """A listening socket that accepts `StampingSocket`s; `connections` are those not claimed yet."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401  # the signature of socket.socket
        super().__init__(*args, **options)
        self.connections: dict[int, StampingSocket] = {}
        enable_receive_stamps(self)

    def accept(self) -> tuple[StampingSocket, Any]:
        """See `socket.accept`."""
        accepted, address = super().accept()
        connection = StampingSocket(fileno=accepted.detach())
        enable_receive_stamps(connection)
        self.connections[connection.fileno()] = connection
        return connection, address

    def claim(self, fileno: int) -> StampingSocket | None:
        """Return the connection with this file descriptor, once."""
        return self.connections.pop(fileno, None)


@dataclass(slots=True, eq=False)
class Player:
    """One response in flight, to a request that arrived at the monotonic instant `start_ns`. `on_end` is called after
    the last frame is written; `record`, if any, is updated meanwhile.
    """

    transport: asyncio.Transport
    timeline: Timeline
    start_ns: int
    record: Record | None
    on_end: Callable[[], None]
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _next: int = 0
    _flooded_bytes: int = 0
    _is_flooding: bool = False
    _is_paused: bool = False
    _timer: asyncio.Handle | None = None

    def start(self) -> None:
        """Start playback."""
        if self.timeline.frames:
            self._wait()

    def stop(self) -> None:
        """Stop playback."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def pause(self) -> None:
        """The client reads too slowly: pause the flood. Frames with an instant are still written."""
        self._is_paused = True

    def resume(self) -> None:
        """The client has caught up: continue the flood."""
        self._is_paused = False
        self._continue_flood()

    def _wait(self) -> None:
        at_ns = self.start_ns + self.timeline.frames[self._next].offset_ns
        # asyncio's clock is time.monotonic(), whose floats resolve less than a nanosecond for months of uptime.
        self._timer = self._loop.call_at(at_ns / 1e9, self._play)

    def _play(self) -> None:
        offset_ns, data, token_counts = self.timeline.frames[self._next]
        now_ns = monotonic_ns()
        self.transport.write(data)
        record = self.record
        if record is not None:
            if token_counts:
                self._record_tokens(record, token_counts, now_ns)
            record.worst_late_us = max(record.worst_late_us, (now_ns - self.start_ns - offset_ns) // 1000)
        self._next += 1
        if self._next < len(self.timeline.frames):
            self._wait()
        elif self.timeline.flood is not None:
            self._is_flooding = True
            self._continue_flood()
        else:
            self._finish()

    def _write_flood(self) -> None:
        """Write the flood once per turn of the loop while the kernel accepts it."""
        flood = self.timeline.flood
        assert flood is not None
        now_ns = monotonic_ns()
        self._flooded_bytes += len(flood.data)
        self.transport.write(flood.data)
        if self.record is not None and flood.token_counts:
            self._record_tokens(self.record, flood.token_counts, now_ns)
        if self._flooded_bytes >= FLOOD_BYTES:
            self._finish()
        else:
            self._continue_flood()

    def _continue_flood(self) -> None:
        if self._is_flooding and not self._is_paused:
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
        if self.record is not None:
            self.record.done_at_ns = monotonic_ns()
        self.on_end()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """State shared by all connections of a process."""

    service: Service
    ground_truth: GroundTruth
    job_queue: JobQueue
    log_requests: bool = False
    connections: set["Connection"] = field(default_factory=set)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    # Makes the ids of requests unique across processes.
    prefix: str = field(default_factory=lambda: os.urandom(6).hex())


class Connection(asyncio.Protocol):
    """A connection from `region`. The next request waits until the response is complete."""

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
        self._inbox.append((self._socket.arrived_ns if self._socket else monotonic_ns(), data))
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
        since_ns = monotonic_ns() - self._arrived_ns
        arrival = Arrival(
            region=self._region,
            at_ns=self._arrived_ns,
            at=(time_ns() - since_ns) // 1000,
            request_id=f"req_{self._state.prefix}{next(self._state.numbers):08x}",
        )
        reply = self._state.service.answer(request, arrival)
        self._play(reply, arrival, keep_alive=request.keeps_alive)

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
    """Write the records as JSON lines, a few per turn of the loop to delay no stream; then call `on_end`."""

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
