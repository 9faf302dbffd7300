"""Who packs large batches: a process of its own, so that Python's lock does not keep answers waiting.

The process is started by the first large batch and packs from then on. Until it is up, and whenever it was lost, a
thread does its work. It ends with its socket, and so with the collector, however that ends.

A batch travels to the process as (content, received_at, criteria) and comes back as a packed batch, both pickled, each
with its length in four bytes before it. First the process says its version. An empty answer says that it could not.
"""

import asyncio
import pickle
import socket
import subprocess
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Self

import structlog

from isochrone_collector.ingest.packing import Criteria, pack
from isochrone_collector.ingest.validation import PushBatch
from isochrone_collector.store.batches import PackedBatch
from isochrone_wire import __version__

_log = structlog.get_logger()

LENGTH_BYTES = 4
MAX_IN_FLIGHT = 2
"""So many batches should be with the packer: one under way, and the next."""

_MODULE = "isochrone_collector.ingest.packer_process"
# Several packed batches fit, so that neither side waits for the other's reading.
_SOCKET_BYTES = 4 << 20
_STARTED_WITHIN_S = 30.0
_ANSWERED_WITHIN_S = 10.0
_AGAIN_AFTER_S = 10.0
_ENDED_WITHIN_S = 5.0


class NotPacked(Exception):  # noqa: N818  # named for the state, and caught where the thread takes over
    """The process could not pack a batch. Act: nobody; a thread does it."""


class ProcessLost(NotPacked):
    """It could not because it is gone."""


class PackerProcess:
    """The process, and what it was asked and has not answered yet, in that order."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._pending: deque[asyncio.Future[PackedBatch | None]] = deque()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls) -> Self:
        """A process that is ready. Raises `ProcessLost`."""
        process, ours = await asyncio.to_thread(_spawn)
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_SOCKET_BYTES)
        try:
            async with asyncio.timeout(_STARTED_WITHIN_S):
                version = (await _read_frame(reader)).decode()
        except (TimeoutError, EOFError, OSError):
            version = ""
        if version != __version__:
            # Perhaps another one was installed while this collector ran.
            writer.close()
            process.kill()
            await asyncio.to_thread(process.wait)
            raise ProcessLost(f"the process that packs is of version {version or 'unknown'}, not {__version__}")
        return cls(process, reader, writer)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_full(self) -> bool:
        """Whether it has enough to do: batches whose askers went away are packed all the same."""
        return len(self._pending) >= MAX_IN_FLIGHT

    async def pack(self, batch: PushBatch, criteria: Criteria) -> PackedBatch | None:
        """`sealing.pack`, elsewhere. Raises `NotPacked`, and `ProcessLost` for good."""
        if self._reading.done():
            raise ProcessLost("the process that packs is gone")
        asked = pickle.dumps((batch.content, batch.received_at, criteria))
        answer: asyncio.Future[PackedBatch | None] = asyncio.get_running_loop().create_future()
        self._pending.append(answer)
        self._writer.write(len(asked).to_bytes(LENGTH_BYTES, "big") + asked)
        try:
            async with asyncio.timeout(_ANSWERED_WITHIN_S):
                return await answer
        except TimeoutError:
            # Stopped, or so slow that it keeps batches from whoever could pack them.
            self._process.kill()
            raise ProcessLost("the process that packs does not answer") from None

    async def close(self) -> None:
        """Let it end, and wait until it has."""
        self._writer.close()
        self._reading.cancel()
        try:
            with suppress(asyncio.CancelledError):
                await self._reading
        finally:
            await asyncio.to_thread(self._end)

    def _end(self) -> None:
        try:
            self._process.wait(_ENDED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    async def _read(self) -> None:
        try:
            while True:
                self._handle_answer(await _read_frame(self._reader))
        except (EOFError, OSError) as error:
            _log.debug("packer.ended", pid=self.pid, reason=str(error))
        finally:
            while self._pending:
                answer = self._pending.popleft()
                if not answer.done():
                    answer.set_exception(ProcessLost("the process that packs is gone"))

    def _handle_answer(self, content: bytes) -> None:
        answer = self._pending.popleft()
        # Whoever asked may have gone meanwhile.
        if answer.done():
            return
        try:
            answer.set_result(pickle.loads(content))  # noqa: S301  # from our own child, of our own version
        except Exception as error:  # noqa: BLE001  # an empty answer among them: whoever asked has to know
            answer.set_exception(NotPacked(f"the process that packs did not: {error}"))


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    """What one side said. Raises `EOFError` and `OSError`."""
    length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
    return await reader.readexactly(length)


def _spawn() -> "tuple[subprocess.Popen[bytes], socket.socket]":
    """The process, and our end of its socket."""
    ours, theirs = socket.socketpair()
    with ExitStack() as on_error, theirs:
        on_error.enter_context(ours)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
        command = [sys.executable, "-m", _MODULE, str(theirs.fileno())]
        process = subprocess.Popen(  # noqa: S603  # our own module
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
        )
        on_error.pop_all()
    return process, ours


class Packer:
    """Seals beside the event loop: in a thread, and with `processes` in a process as soon as there is one."""

    def __init__(self, *, processes: bool = False) -> None:
        self._processes = processes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="packing")
        self._process_handle: PackerProcess | None = None
        self._starting: asyncio.Task[None] | None = None
        self._start_at = 0.0

    @property
    def pid(self) -> int | None:
        """The process id of the process, while there is one."""
        return self._process_handle.pid if self._process_handle else None

    async def pack(self, batch: PushBatch, criteria: Criteria) -> PackedBatch | None:
        """`sealing.pack`, without keeping the event loop."""
        if self._process_handle is None:
            self._start()
        elif not self._process_handle.is_full:
            try:
                return await self._process_handle.pack(batch, criteria)
            except ProcessLost as error:
                await self._lost(str(error))
            except NotPacked as error:
                _log.warning("packer.failed", vantage=batch.vantage.name, seq=batch.seq, reason=str(error))
        return await asyncio.get_running_loop().run_in_executor(self._thread, pack, batch, criteria)

    async def close(self) -> None:
        """End the process, if there is one."""
        if self._starting is not None:
            await self._starting
        worker, self._process_handle, self._processes = self._process_handle, None, False
        if worker is not None:
            await worker.close()
        self._thread.shutdown(wait=False)

    def _start(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._processes and self._starting is None and now >= self._start_at:
            self._start_at = now + _AGAIN_AFTER_S
            self._starting = asyncio.create_task(self._started())

    async def _started(self) -> None:
        try:
            self._process_handle = await PackerProcess.start()
            _log.info("packer.started", pid=self._process_handle.pid)
        except (ProcessLost, OSError) as error:
            _log.warning("packer.unavailable", reason=str(error))
        finally:
            self._starting = None

    async def _lost(self, reason: str) -> None:
        worker, self._process_handle = self._process_handle, None
        if worker is not None:
            _log.warning("packer.lost", pid=worker.pid, reason=reason)
            await worker.close()
