"""Packing beside the event loop: in the packer process, or in a thread.

The first large push starts the process. A thread packs until the process is ready, and whenever it is lost.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import structlog

from isochrone_collector.ingest.packer_process import NotPacked, PackerProcess, ProcessLost
from isochrone_collector.ingest.packing import Criteria, pack
from isochrone_collector.ingest.validation import PushBatch
from isochrone_collector.store.batches import PackedBatch

_log = structlog.get_logger()

_AGAIN_AFTER_S = 10.0


class Packer:
    """Packs batches outside the event loop: in a thread, and with `processes` in a process once it is ready."""

    def __init__(self, *, processes: bool = False) -> None:
        self._processes = processes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="packing")
        self._process: PackerProcess | None = None
        self._starting: asyncio.Task[None] | None = None
        self._start_at = 0.0

    @property
    def pid(self) -> int | None:
        """Process id of the packer process, while there is one."""
        return self._process.pid if self._process else None

    async def pack(self, batch: PushBatch, criteria: Criteria) -> PackedBatch | None:
        """Call `packing.pack` outside the event loop."""
        if self._process is None:
            self._start()
        elif not self._process.is_full:
            try:
                return await self._process.pack(batch, criteria)
            except ProcessLost as error:
                await self._replace(str(error))
            except NotPacked as error:
                _log.warning("packer.failed", vantage=batch.vantage.name, seq=batch.seq, reason=str(error))
        return await asyncio.get_running_loop().run_in_executor(self._thread, pack, batch, criteria)

    async def close(self) -> None:
        """End the process, if there is one."""
        if self._starting is not None:
            await self._starting
        process, self._process, self._processes = self._process, None, False
        if process is not None:
            await process.close()
        self._thread.shutdown(wait=False)

    def _start(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._processes and self._starting is None and now >= self._start_at:
            self._start_at = now + _AGAIN_AFTER_S
            self._starting = asyncio.create_task(self._start_process())

    async def _start_process(self) -> None:
        try:
            self._process = await PackerProcess.start()
            _log.info("packer.started", pid=self._process.pid)
        except (ProcessLost, OSError) as error:
            _log.warning("packer.unavailable", reason=str(error))
        finally:
            self._starting = None

    async def _replace(self, reason: str) -> None:
        """Drop the lost process; the next large batch starts another one."""
        process, self._process = self._process, None
        if process is not None:
            _log.warning("packer.lost", pid=process.pid, reason=reason)
            await process.close()
