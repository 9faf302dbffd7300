"""The packer process: large pushes are packed in a child, so that Python's global lock does not delay answers.

The child is started with one end of a pipe. It ends when the pipe does, and so with the collector, however that ends.
Its first message is its version; then it answers every request, in order, with a packed batch or `NotPacked`.

`run` is executed in the child; `PackerProcess` is the collector's handle of it. A stopped child blocks the reading and
the writing of the pipe, so each has its own thread. The child is a program of its own rather than a
`multiprocessing.Process`, which would import the collector's `__main__` again and inherit its standard output.
"""

import asyncio
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, Self

import structlog

from isochrone_collector import process_tuning
from isochrone_collector.ingest.packing import Criteria, pack
from isochrone_collector.ingest.raw_push import decode_push
from isochrone_collector.ingest.validation import PushBatch
from isochrone_collector.store.batches import PackedBatch
from isochrone_wire import __version__

MAX_IN_FLIGHT = 2
"""Number of batches that the process should have at once: the one it packs, and the next."""

_log = structlog.get_logger()

# Packed rows of a thousand samples; the kernel's limit may be lower.
_PIPE_BYTES = 1 << 20
_STARTED_WITHIN_S = 30.0
_ANSWERED_WITHIN_S = 10.0


class NotPacked(Exception):  # noqa: N818  # names the state
    """The process could not pack a batch. Act: the packer, by packing it in a thread."""


class ProcessLost(NotPacked):
    """The process has ended or does not answer."""


class PackerProcess:
    """Handle of the process, with its unanswered requests in order. Use it in the event loop that creates it."""

    def __init__(self, process: subprocess.Popen[bytes], pipe: "Connection[Any, Any]") -> None:
        self._process = process
        self._pipe = pipe
        self._is_lost = False
        self._pending: deque[asyncio.Future[Any]] = deque()
        self._loop = asyncio.get_running_loop()
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="packer-requests")
        self._reader = Thread(target=self._read, name="packer-answers", daemon=True)

    @classmethod
    async def start(cls) -> Self:
        """Start the process, and wait until it is ready. Raises `ProcessLost` and `OSError`."""
        handle = cls(*await asyncio.to_thread(_spawn))
        ready = handle._expect()
        handle._reader.start()
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
            raise ProcessLost(f"the packer process has version {version}, not {__version__}")
        return handle

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def is_full(self) -> bool:
        """True when the process has enough to do; the batches of cancelled callers count too."""
        return len(self._pending) >= MAX_IN_FLIGHT

    async def pack(self, batch: PushBatch, criteria: Criteria) -> PackedBatch | None:
        """Call `packing.pack` in the process. Raises `NotPacked`; after `ProcessLost` every call fails."""
        if self._is_lost:
            raise ProcessLost("the packer process has ended")
        answer: asyncio.Future[PackedBatch | None] = self._expect()
        self._sender.submit(self._send, (batch.content, batch.received_at, criteria))
        try:
            async with asyncio.timeout(_ANSWERED_WITHIN_S):
                return await answer
        except TimeoutError:
            # Stopped, or so slow that it delays batches that a thread could pack.
            self._process.kill()
            raise ProcessLost("the packer process does not answer") from None

    async def close(self) -> None:
        """End the process, and wait until it has ended."""
        await asyncio.to_thread(self._end)

    def _expect(self) -> "asyncio.Future[Any]":
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._pending.append(answer)
        return answer

    def _send(self, request: tuple[bytes, int, Criteria]) -> None:
        # The reader reports a process that has ended.
        with suppress(OSError):
            self._pipe.send(request)

    def _read(self) -> None:
        try:
            while True:
                self._loop.call_soon_threadsafe(self._handle_answer, self._pipe.recv())
        except Exception as error:  # noqa: BLE001  # the end of the pipe, or an answer that cannot be unpickled
            with suppress(RuntimeError):  # the loop may be closed already
                self._loop.call_soon_threadsafe(self._handle_loss, str(error))

    def _handle_answer(self, answer: object) -> None:
        waiting = self._pending.popleft()
        # The caller may have been cancelled.
        if waiting.done():
            return
        if isinstance(answer, NotPacked):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)

    def _handle_loss(self, reason: str) -> None:
        self._is_lost = True
        _log.debug("packer.ended", pid=self.pid, reason=reason)
        while self._pending:
            waiting = self._pending.popleft()
            if not waiting.done():
                waiting.set_exception(ProcessLost("the packer process has ended"))

    def _end(self) -> None:
        # SIGKILL, because it has no state to lose and must end even while it is stopped.
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._sender.shutdown()
        self._pipe.close()


def run(pipe: "Connection[Any, Any]") -> None:
    """Pack batches until the pipe ends."""
    # Ctrl-C is for the collector, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process_tuning.tune_process()
    with suppress(EOFError, OSError):
        pipe.send(__version__)
        while True:
            pipe.send(_answer(*pipe.recv()))


def run_on(file_descriptor: int) -> None:
    """Pack batches for the collector at the other end of the pipe with this inherited file descriptor."""
    run(Connection(file_descriptor))


def _answer(content: bytes, received_at: int, criteria: Criteria) -> PackedBatch | NotPacked | None:
    try:
        return pack(decode_push(content, received_at), criteria)
    except Exception as error:  # noqa: BLE001  # the collector packs the batch again, and meets the error itself
        return NotPacked(str(error))


def _enlarge_buffer(end: "Connection[Any, Any]") -> None:
    """Let one end send a message at once, without waiting until the other process reads."""
    with socket.socket(fileno=os.dup(end.fileno())) as pipe:
        pipe.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _PIPE_BYTES)


def _spawn() -> "tuple[subprocess.Popen[bytes], Connection[Any, Any]]":
    """Start a child, and return it with the collector's end of its pipe."""
    ours, theirs = multiprocessing.Pipe()
    for end in (ours, theirs):
        _enlarge_buffer(end)
    with theirs:
        # Imported by name, because answers are pickled with the name of their module.
        program = f"from {__name__} import run_on; run_on({theirs.fileno()})"
        process = subprocess.Popen(  # noqa: S603  # this module, by this interpreter
            [sys.executable, "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    return process, ours
