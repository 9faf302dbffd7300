"""The spool for a running event loop: its blocking calls in one thread, in order, so that no fsync delays a probe."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ParamSpec, Self, TypeVar

from isochrone_agent.errors import SpoolError
from isochrone_agent.spool import Depth, SealedBatch, Spool
from isochrone_wire.model import Plan, Sample

Params = ParamSpec("Params")
Result = TypeVar("Result")


class Keeper:
    """An opened spool; use `async with`."""

    def __init__(self, path: Path) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spool")
        self._spool = self._thread.submit(Spool, path).result()
        self._more = asyncio.Event()
        self.epoch = self._spool.epoch

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_failure: object) -> None:
        await self._call(self._spool.close)
        self._thread.shutdown()

    async def record(self, sample: Sample) -> None:
        """As `Spool.record`; wakes whoever waits for more."""
        await self._call(self._spool.record, sample)
        self._more.set()

    async def wait_for_more(self, seconds: float) -> None:
        """Return when something was recorded since the last call, or when `seconds` have passed."""
        try:
            async with asyncio.timeout(seconds):
                await self._more.wait()
        except TimeoutError:
            return
        self._more.clear()

    async def next_batch(self) -> SealedBatch | None:
        """As `Spool.next_batch`."""
        return await self._call(self._spool.next_batch)

    async def acknowledge(self, seq: int) -> None:
        """As `Spool.acknowledge`."""
        await self._call(self._spool.acknowledge, seq)

    async def set_aside(self, seq: int, reason: str) -> None:
        """As `Spool.set_aside`."""
        await self._call(self._spool.set_aside, seq, reason)

    async def depth(self) -> Depth:
        """As `Spool.depth`."""
        return await self._call(self._spool.depth)

    async def keep_plan(self, plan: Plan) -> None:
        """As `Spool.keep_plan`."""
        await self._call(self._spool.keep_plan, plan)

    async def last_plan(self) -> Plan | None:
        """As `Spool.last_plan`."""
        return await self._call(self._spool.last_plan)

    async def _call(
        self, function: Callable[Params, Result], *arguments: Params.args, **named: Params.kwargs
    ) -> Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._thread, partial(function, *arguments, **named)
            )
        except sqlite3.Error as error:
            hint = "look at the disk: is it full, read-only, or gone?"
            raise SpoolError(f"the spool failed: {error}", hint=hint) from error
