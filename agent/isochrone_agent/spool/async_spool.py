"""The spool for asyncio: its blocking calls run in one thread, in order, so that no fsync delays a probe."""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ParamSpec, Self, TypeVar

from isochrone_agent.clock import OffsetEstimator, read_clocks
from isochrone_agent.errors import SpoolError
from isochrone_agent.settings import REPLAY_BYTES, SPOOL_BYTES, Drain
from isochrone_agent.spool.database import SealedBatch, SpoolStats
from isochrone_agent.spool.spool import Spool
from isochrone_wire.model import BatchRange, Plan, Quality, Sample, Spend

Params = ParamSpec("Params")
Result = TypeVar("Result")


class AsyncSpool:
    """An opened spool; use `async with`. Every recorded sample gets the clock offset that `offset_estimator` estimates.
    Raises as `Spool`.
    """

    def __init__(
        self,
        path: Path,
        *,
        limit_bytes: int = SPOOL_BYTES,
        keep_bytes: int = REPLAY_BYTES,
        drain: Drain = Drain.NEWEST,
    ) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spool")
        try:
            opening = partial(Spool, path, limit_bytes=limit_bytes, keep_bytes=keep_bytes, drain=drain)
            self._spool = self._thread.submit(opening).result()
        except BaseException:
            self._thread.shutdown()
            raise
        self._more = asyncio.Event()
        self.offset_estimator = OffsetEstimator()

    @property
    def epoch(self) -> int:
        """The epoch under which samples are sealed now; every opening and every salvage begins a new one."""
        return self._spool.epoch

    @property
    def lineage(self) -> tuple[int, ...]:
        """The newest epochs of the spool, newest first."""
        return self._spool.lineage

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_failure: object) -> None:
        await self._call(self._spool.close)
        self._thread.shutdown()

    async def record(self, sample: Sample, spends: Sequence[Spend] = ()) -> None:
        """As `Spool.record`, with the clock offset added to the sample; ends `wait_for_more`."""
        await self._call(self._spool.record, self._with_clock_offset(sample), spends)
        self.wake()

    async def reserve(self, spends: Sequence[Spend]) -> None:
        """As `Spool.reserve`."""
        await self._call(self._spool.reserve, spends)

    async def spend(self, day_at: int) -> tuple[Spend, ...]:
        """As `Spool.spend`."""
        return await self._call(self._spool.spend, day_at)

    async def wait_for_more(self, seconds: float) -> bool:
        """Wait until there may be more to deliver than at the last call; `False` if `seconds` pass before that."""
        try:
            async with asyncio.timeout(seconds):
                await self._more.wait()
        except TimeoutError:
            return False
        self._more.clear()
        return True

    def wake(self) -> None:
        """End `wait_for_more`."""
        self._more.set()

    async def lease(self, *, seal: bool = True) -> SealedBatch | None:
        """As `Spool.lease`."""
        return await self._call(self._spool.lease, seal=seal)

    def release(self, batch: SealedBatch | None) -> None:
        """As `Spool.release`, without waiting for it; ends `wait_for_more`."""
        if batch is not None:
            self._thread.submit(self._spool.release, batch)
        self.wake()

    async def acknowledge(self, batch: SealedBatch, *, rejected: Mapping[str, int] | None = None) -> None:
        """As `Spool.acknowledge`."""
        await self._call(self._spool.acknowledge, batch, rejected=rejected)

    async def split(self, batch: SealedBatch, reason: str) -> None:
        """As `Spool.split`; ends `wait_for_more`."""
        await self._call(self._spool.split, batch, reason)
        self.wake()

    async def hold(self, batch: SealedBatch, targets: AbstractSet[int]) -> bool:
        """As `Spool.hold`; ends `wait_for_more`."""
        has_others = await self._call(self._spool.hold, batch, targets)
        self.wake()
        return has_others

    async def release_held(self) -> None:
        """As `Spool.release_held`; ends `wait_for_more`."""
        await self._call(self._spool.release_held)
        self.wake()

    async def kept_ranges(self) -> tuple[BatchRange, ...]:
        """As `Spool.kept_ranges`."""
        return await self._call(self._spool.kept_ranges)

    async def redeliver(self, ranges: Sequence[BatchRange]) -> int:
        """As `Spool.redeliver`; ends `wait_for_more`."""
        batches = await self._call(self._spool.redeliver, ranges)
        self.wake()
        return batches

    async def renumber(self, batch: SealedBatch) -> None:
        """As `Spool.renumber`; ends `wait_for_more`."""
        await self._call(self._spool.renumber, batch)
        self.wake()

    async def stats(self) -> SpoolStats:
        """As `Spool.stats`."""
        return await self._call(self._spool.stats)

    async def save_plan(self, plan: Plan) -> None:
        """As `Spool.save_plan`."""
        await self._call(self._spool.save_plan, plan)

    async def last_plan(self) -> Plan | None:
        """As `Spool.last_plan`."""
        return await self._call(self._spool.last_plan)

    def _with_clock_offset(self, sample: Sample) -> Sample:
        offset = self.offset_estimator.estimate(lead_us=read_clocks().lead_us)
        if offset is None:
            return replace(sample, quality=sample.quality | Quality.CLOCK_UNSYNCED)
        return replace(sample, clock_offset_us=offset.offset_us, clock_uncertainty_us=offset.uncertainty_us)

    async def _call(
        self, function: Callable[Params, Result], *arguments: Params.args, **named: Params.kwargs
    ) -> Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._thread, partial(function, *arguments, **named)
            )
        except (sqlite3.Error, OSError) as error:
            hint = "check the disk: it may be full, read-only or unmounted"
            raise SpoolError(f"the spool failed: {error}", hint=hint) from error
