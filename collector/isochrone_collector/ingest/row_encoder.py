"""Encoding beside the event loop: in the encoder process, or in a thread.

The first large push starts the process. A thread encodes until the process is ready, and whenever it is lost. In a
process, Python's global lock does not delay answers.

The child is started with one end of a pipe. It ends when the pipe does, and so with the collector, however that ends.
Its first message is its version; then it answers every request, in order, with an encoded batch or `NotEncoded`.

`run` is executed in the child; `EncoderProcess` is the collector's handle of it. The event loop reads and writes the
pipe, because threads that do would wait for Python's lock several times per batch; the child blocks. Every message is
its length in four bytes and a pickle. The child is a program of its own rather than a `multiprocessing.Process`, which
would import the collector's `__main__` again and inherit its standard output.
"""

import asyncio
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Self

import structlog

from isochrone_collector import process_tuning
from isochrone_collector.ingest.raw_push import decode_push
from isochrone_collector.ingest.row_encoding import ValidationContext, encode
from isochrone_collector.ingest.validation import PushBatch
from isochrone_collector.store.batches import EncodedBatch
from isochrone_wire import __version__

MAX_IN_FLIGHT = 2
"""Number of batches that the process should have at once: the one it encodes, and the next."""


# Packed rows of a thousand samples; the kernel's limit may be lower.
_PIPE_BYTES = 1 << 20
_STARTED_WITHIN_S = 30.0
_ANSWERED_WITHIN_S = 10.0
_length = struct.Struct("!I")


class NotEncoded(Exception):  # noqa: N818  # names the state
    """The process could not encode a batch. Act: the encoder, by encoding it in a thread."""


class ProcessLost(NotEncoded):
    """The process has ended or does not answer."""


class EncoderProcess(asyncio.BufferedProtocol):
    """Handle of the process, with its unanswered requests in order. Use it in the event loop that creates it."""

    _pipe: asyncio.WriteTransport
    _content: bytearray
    _room: memoryview
    _complete: Callable[[bytearray], None]

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._is_lost = False
        self._pending: deque[asyncio.Future[Any]] = deque()
        self._receive(_length.size, self._handle_length)

    @classmethod
    async def start(cls) -> Self:
        """Start the process, and wait until it is ready. Raises `ProcessLost` and `OSError`."""
        process, pipe = await asyncio.to_thread(_spawn)
        handle = cls(process)
        ready = handle._expect()
        await asyncio.get_running_loop().create_unix_connection(lambda: handle, sock=pipe)
        try:
            async with asyncio.timeout(_STARTED_WITHIN_S):
                version = await ready
        except (TimeoutError, ProcessLost):
            version = "unknown"
        except BaseException:
            handle._process.kill()
            raise
        if version != __version__:
            # Perhaps another version was installed while this collector ran.
            await handle.close()
            raise ProcessLost(f"the encoder process has version {version}, not {__version__}")
        return handle

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def is_full(self) -> bool:
        """True when the process has enough to do; the batches of cancelled callers count too."""
        return len(self._pending) >= MAX_IN_FLIGHT

    async def encode(self, batch: PushBatch, context: ValidationContext) -> EncodedBatch | None:
        """Call `row_encoding.encode` in the process. Raises `NotEncoded`; after `ProcessLost` every call fails."""
        if self._is_lost:
            raise ProcessLost("the encoder process has ended")
        # Before it is expected: an answer that never comes would be taken for the one to a later request.
        request = _message((batch.content, batch.received_at, context))
        answer: asyncio.Future[EncodedBatch | None] = self._expect()
        # Never waits, because the process has few batches at once.
        self._pipe.write(request)
        try:
            async with asyncio.timeout(_ANSWERED_WITHIN_S):
                return await answer
        except TimeoutError:
            # Stopped, or so slow that it delays batches that a thread could encode.
            self._process.kill()
            raise ProcessLost("the encoder process does not answer") from None

    async def close(self) -> None:
        """End the process, and wait until it has ended."""
        # SIGKILL, because it has no state to lose and must end even while it is stopped.
        self._process.kill()
        await asyncio.to_thread(self._process.wait)
        self._pipe.close()

    def _expect(self) -> "asyncio.Future[Any]":
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending.append(answer)
        return answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the collector's end of the pipe."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._pipe = transport

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the room for what has not arrived yet."""
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Handle what is complete. An error closes the pipe."""
        self._room = self._room[nbytes:]
        if not self._room:
            self._complete(self._content)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all that wait for an answer."""
        self._is_lost = True
        _log.debug("row_encoder.ended", pid=self.pid, reason=str(exc))
        while self._pending:
            waiting = self._pending.popleft()
            if not waiting.done():
                waiting.set_exception(ProcessLost("the encoder process has ended"))

    def _receive(self, size: int, complete: Callable[[bytearray], None]) -> None:
        self._content = bytearray(size)
        self._room, self._complete = memoryview(self._content), complete

    def _handle_length(self, content: bytearray) -> None:
        (length,) = _length.unpack(content)
        self._receive(length, self._handle_answer)

    def _handle_answer(self, content: bytearray) -> None:
        self._receive(_length.size, self._handle_length)
        # The caller stays in the queue until its answer is read: if it cannot be, the closed pipe fails the caller.
        answer = pickle.loads(content)  # noqa: S301  # of our own child
        waiting = self._pending.popleft()
        # The caller may have been cancelled.
        if waiting.done():
            return
        if isinstance(answer, NotEncoded):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)


def run(file_descriptor: int) -> None:
    """Encode batches for the collector at the other end of the pipe with this file descriptor, until the pipe ends."""
    # Ctrl-C is for the collector, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process_tuning.tune_process()
    with (
        suppress(OSError, EOFError, pickle.UnpicklingError),
        socket.socket(fileno=file_descriptor) as pipe,
        pipe.makefile("rb") as requests,
    ):
        pipe.sendall(_message(__version__))
        while length := requests.read(_length.size):
            content = requests.read(*_length.unpack(length))
            pipe.sendall(_message(_answer(*pickle.loads(content))))  # noqa: S301  # of the collector that started it


def _message(content: object) -> bytes:
    pickled = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    return _length.pack(len(pickled)) + pickled


def _answer(content: bytes, received_at: int, context: ValidationContext) -> EncodedBatch | NotEncoded | None:
    try:
        return encode(decode_push(content, received_at), context)
    except Exception as error:  # noqa: BLE001  # the collector encodes the batch again, and meets the error itself
        return NotEncoded(str(error))


def _spawn() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a child, and return it with the collector's end of its pipe."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        # An end sends a message at once, without waiting until the other process reads.
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _PIPE_BYTES)
    with theirs:
        # Imported by name, because answers are pickled with the name of their module.
        program = f"from {__name__} import run; run({theirs.fileno()})"
        process = subprocess.Popen(  # noqa: S603  # this module, by this interpreter
            [sys.executable, "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    return process, ours


_log = structlog.get_logger()

_AGAIN_AFTER_S = 10.0


class RowEncoder:
    """Encodes batches outside the event loop: in a thread, and with `processes` in a process once it is ready."""

    def __init__(self, *, processes: bool = False) -> None:
        self._processes = processes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="encoding")
        self._process: EncoderProcess | None = None
        self._starting: asyncio.Task[None] | None = None
        self._start_at = 0.0

    @property
    def pid(self) -> int | None:
        """Process id of the encoder process, while there is one."""
        return self._process.pid if self._process else None

    async def encode(self, batch: PushBatch, context: ValidationContext) -> EncodedBatch | None:
        """Call `row_encoding.encode` outside the event loop."""
        if self._process is None:
            now = asyncio.get_running_loop().time()
            if self._processes and self._starting is None and now >= self._start_at:
                self._start_at = now + _AGAIN_AFTER_S
                self._starting = asyncio.create_task(self._start_process())
        elif not self._process.is_full:
            try:
                return await self._process.encode(batch, context)
            except ProcessLost as error:
                # The next large batch starts another one.
                process, self._process = self._process, None
                if process is not None:
                    _log.warning("row_encoder.lost", pid=process.pid, reason=str(error))
                    await process.close()
            except NotEncoded as error:
                _log.warning("row_encoder.failed", vantage=batch.vantage.name, seq=batch.seq, reason=str(error))
        return await asyncio.get_running_loop().run_in_executor(self._thread, encode, batch, context)

    async def close(self) -> None:
        """End the process, if there is one."""
        if self._starting is not None:
            await self._starting
        process, self._process, self._processes = self._process, None, False
        if process is not None:
            await process.close()
        self._thread.shutdown(wait=False)

    async def _start_process(self) -> None:
        try:
            self._process = await EncoderProcess.start()
            _log.info("row_encoder.started", pid=self._process.pid)
        except (ProcessLost, OSError) as error:
            _log.warning("row_encoder.unavailable", reason=str(error))
        finally:
            self._starting = None
