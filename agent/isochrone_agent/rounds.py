"""Carrying out rounds: each that is due becomes a task, and each task ends in recorded samples: one, or a burst's."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import structlog

from isochrone_agent.clock import now_at
from isochrone_agent.credentials import Keyring
from isochrone_agent.errors import CredentialError, SpoolError
from isochrone_agent.keeper import Keeper
from isochrone_agent.prober import Prober
from isochrone_agent.schedule import Due, Schedule
from isochrone_wire.model import SECOND_US, Outcome, Overlap, Plan, Sample, Target

# Short naps, so that a wall clock that jumps is noticed.
MAX_NAP_US = SECOND_US // 2

log = structlog.get_logger()


class Slots:
    """Room for `size` single probes at once. A burst takes all of it, so that neither disturbs the other."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._free = asyncio.Semaphore(size)
        self._one_burst = asyncio.Lock()

    @asynccontextmanager
    async def of(self, streams: int) -> AsyncIterator[None]:
        """Room for so many streams, for the length of the block."""
        if streams == 1:
            async with self._free:
                yield
            return
        async with self._one_burst, AsyncExitStack() as everything:
            for _ in range(self._size):
                await everything.enter_async_context(self._free)
            yield


class Rounds:
    """Probes the rounds of the plan: at most `concurrency` at once, each ending in a sample in the spool, or for a
    burst in one per stream.

    `lost` counts the samples that the spool could not take; measuring goes on.
    """

    def __init__(self, prober: Prober, keeper: Keeper, keyring: Keyring, *, concurrency: int) -> None:
        self._prober = prober
        self._keeper = keeper
        self._keyring = keyring
        self._slots = Slots(concurrency)
        self._schedule = Schedule((), now_at=0)
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: Counter[int] = Counter()
        self._throttled_until: dict[int, int] = {}
        self.plan_version = 0
        self.lost = 0

    @property
    def in_flight(self) -> int:
        """How many rounds have begun and not yet ended."""
        return len(self._tasks)

    def take_up(self, plan: Plan) -> None:
        """Probe the rounds of `plan` from now on."""
        self._schedule = Schedule(plan.targets, now_at=now_at())
        self.plan_version = plan.version
        self._changed.set()
        log.info("plan.running", version=plan.version, targets=len(plan.targets))

    async def run(self) -> None:
        """Begin every round when it is due."""
        while True:
            for due in self._schedule.due(now_at()):
                task = asyncio.create_task(self._round(due))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            await self._nap()

    async def finish(self, seconds: float) -> None:
        """Wait for the rounds that have begun; what takes longer is cut off and leaves no sample."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _nap(self) -> None:
        next_at = self._schedule.next_at()
        nap_us = MAX_NAP_US if next_at is None else min(max(next_at - now_at(), 0), MAX_NAP_US)
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), nap_us / SECOND_US)

    async def _round(self, due: Due) -> None:
        skipped = self._skipped(due)
        for sample in [skipped] if skipped else await self._probe(due):
            _log_sample(due.target, sample)
            await self._record(sample)

    async def _record(self, sample: Sample) -> None:
        try:
            await self._keeper.record(sample)
        except SpoolError as error:
            self.lost += 1
            log.error("sample.lost", reason=str(error), hint=error.hint, lost=self.lost)  # noqa: TRY400  # no traceback

    def _skipped(self, due: Due) -> Sample | None:
        """The sample of a round in which nothing is sent, if this is one."""
        target = due.target
        if self._busy[target.id] and target.overlap is Overlap.SKIP:
            return _nothing_sent(due, Outcome.SKIPPED_OVERLAP, "the previous probe is still in flight")
        if self._throttled_until.get(target.id, 0) > now_at():
            return _nothing_sent(due, Outcome.SKIPPED_THROTTLED, "the provider asked to wait")
        return None

    async def _probe(self, due: Due) -> list[Sample]:
        target = due.target
        try:
            key = self._keyring.key_for(target)
        except CredentialError as error:
            return [_nothing_sent(due, Outcome.SKIPPED_NOT_READY, str(error))]
        self._busy[target.id] += 1
        try:
            async with self._slots.of(target.workload.concurrency):
                samples = await self._prober.burst(target, round_at=due.round_at, key=key)
        finally:
            self._busy[target.id] -= 1
        waits_us = [s.ratelimit.retry_after_us for s in samples if s.ratelimit and s.ratelimit.retry_after_us]
        if waits_us:
            self._throttled_until[target.id] = now_at() + max(waits_us)
        return samples


def _nothing_sent(due: Due, outcome: Outcome, reason: str) -> Sample:
    at = now_at()
    return Sample(
        target_id=due.target.id,
        round_at=due.round_at,
        outcome=outcome,
        dispatched_at=at,
        late_us=at - due.round_at,
        error=reason,
    )


def _log_sample(target: Target, sample: Sample) -> None:
    log.info(
        "probe.done",
        target=target.name,
        outcome=sample.outcome.value,
        ttft_ms=None if sample.ttft_us is None else sample.ttft_us / 1000,
        tokens_per_second=sample.tokens_per_second and round(sample.tokens_per_second, 1),
        late_ms=sample.late_us // 1000,
        quality=",".join(sample.quality.labels) or None,
        error=sample.error,
    )
