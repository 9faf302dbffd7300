"""Who seals large parcels: a process of its own, so that Python's lock does not keep answers waiting.

The process is started by the first large parcel and seals from then on. Until it is up, and whenever it was lost, a
thread does its work. It ends with its socket, and so with the collector, however that ends.

A parcel travels to the process as (content, received_at, criteria) and comes back as a sealed batch, both pickled, each
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

from isochrone_collector.ingest.packing import Criteria, seal
from isochrone_collector.ingest.validation import PushBatch
from isochrone_collector.store.batches import PackedBatch
from isochrone_wire import __version__

_log = structlog.get_logger()

LENGTH_BYTES = 4
AT_ONCE = 2
"""So many parcels should be with the sealer: one under way, and the next."""

_MODULE = "isochrone_collector.ingest.packer_process"
# Several sealed batches fit, so that neither side waits for the other's reading.
_SOCKET_BYTES = 4 << 20
_STARTED_WITHIN_S = 30.0
_ANSWERED_WITHIN_S = 10.0
_AGAIN_AFTER_S = 10.0
_ENDED_WITHIN_S = 5.0


class NotPacked(Exception):  # noqa: N818  # named for the state, and caught where the thread takes over
    """The process could not seal a parcel. Act: nobody; a thread does it."""


class WorkerLost(NotPacked):
    """It could not because it is gone."""


class Worker:
    """The process, and what it was asked and has not answered yet, in that order."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._asked: deque[asyncio.Future[PackedBatch | None]] = deque()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls) -> Self:
        """A process that is ready. Raises `WorkerLost`."""
        process, ours = await asyncio.to_thread(_spawned)
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_SOCKET_BYTES)
        try:
            async with asyncio.timeout(_STARTED_WITHIN_S):
                version = (await _frame(reader)).decode()
        except (TimeoutError, EOFError, OSError):
            version = ""
        if version != __version__:
            # Perhaps another one was installed while this collector ran.
            writer.close()
            process.kill()
            await asyncio.to_thread(process.wait)
            raise WorkerLost(f"the process that seals is of version {version or 'unknown'}, not {__version__}")
        return cls(process, reader, writer)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_full(self) -> bool:
        """Whether it has enough to do: parcels whose askers went away are sealed all the same."""
        return len(self._asked) >= AT_ONCE

    async def seal(self, parcel: PushBatch, criteria: Criteria) -> PackedBatch | None:
        """`sealing.seal`, elsewhere. Raises `NotPacked`, and `WorkerLost` for good."""
        if self._reading.done():
            raise WorkerLost("the process that seals is gone")
        asked = pickle.dumps((parcel.content, parcel.received_at, criteria))
        answer: asyncio.Future[PackedBatch | None] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        self._writer.write(len(asked).to_bytes(LENGTH_BYTES, "big") + asked)
        try:
            async with asyncio.timeout(_ANSWERED_WITHIN_S):
                return await answer
        except TimeoutError:
            # Stopped, or so slow that it keeps parcels from whoever could seal them.
            self._process.kill()
            raise WorkerLost("the process that seals does not answer") from None

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
                self._answered(await _frame(self._reader))
        except (EOFError, OSError) as error:
            _log.debug("sealer.ended", pid=self.pid, reason=str(error))
        finally:
            while self._asked:
                answer = self._asked.popleft()
                if not answer.done():
                    answer.set_exception(WorkerLost("the process that seals is gone"))

    def _answered(self, content: bytes) -> None:
        answer = self._asked.popleft()
        # Whoever asked may have gone meanwhile.
        if answer.done():
            return
        try:
            answer.set_result(pickle.loads(content))  # noqa: S301  # from our own child, of our own version
        except Exception as error:  # noqa: BLE001  # an empty answer among them: whoever asked has to know
            answer.set_exception(NotPacked(f"the process that seals did not: {error}"))


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """What one side said. Raises `EOFError` and `OSError`."""
    length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
    return await reader.readexactly(length)


def _spawned() -> "tuple[subprocess.Popen[bytes], socket.socket]":
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
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sealing")
        self._worker: Worker | None = None
        self._starting: asyncio.Task[None] | None = None
        self._start_at = 0.0

    @property
    def pid(self) -> int | None:
        """The process id of the process, while there is one."""
        return self._worker.pid if self._worker else None

    async def seal(self, parcel: PushBatch, criteria: Criteria) -> PackedBatch | None:
        """`sealing.seal`, without keeping the event loop."""
        if self._worker is None:
            self._start()
        elif not self._worker.is_full:
            try:
                return await self._worker.seal(parcel, criteria)
            except WorkerLost as error:
                await self._lost(str(error))
            except NotPacked as error:
                _log.warning("sealer.failed", vantage=parcel.vantage.name, seq=parcel.seq, reason=str(error))
        return await asyncio.get_running_loop().run_in_executor(self._thread, seal, parcel, criteria)

    async def close(self) -> None:
        """End the process, if there is one."""
        if self._starting is not None:
            await self._starting
        worker, self._worker, self._processes = self._worker, None, False
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
            self._worker = await Worker.start()
            _log.info("sealer.started", pid=self._worker.pid)
        except (WorkerLost, OSError) as error:
            _log.warning("sealer.unavailable", reason=str(error))
        finally:
            self._starting = None

    async def _lost(self, reason: str) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            _log.warning("sealer.lost", pid=worker.pid, reason=reason)
            await worker.close()
