"""Round runner: starts a task for each due round, and records its sample, or one sample per stream of a burst."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import structlog

from isochrone_agent.clock import now_at
from isochrone_agent.errors import CredentialError, SpoolError
from isochrone_agent.plan.budget import BudgetTracker, no_accounts
from isochrone_agent.plan.credentials import Keyring, describe_missing
from isochrone_agent.plan.in_flight import InFlightProbe
from isochrone_agent.plan.policy import Policy, describe_refused
from isochrone_agent.plan.schedule import Schedule, ScheduledRound
from isochrone_agent.probe.destinations import REFUSED
from isochrone_agent.probe.measurement import ERROR_CHARS
from isochrone_agent.probe.prober import Prober
from isochrone_agent.spool.async_spool import AsyncSpool
from isochrone_common.probe_metrics import ProbeCounts, Series, labels_of
from isochrone_wire.model import SECOND_US, Outcome, Overlap, Plan, Quality, Sample, Spend, Target, day_of

# Short, so that a jump of the wall clock is noticed.
MAX_SLEEP_US = SECOND_US // 2
# The time that an aborted probe has to end.
_ABORT_SECONDS = 2.0

log = structlog.get_logger()


class Slots:
    """A limit of `size` concurrent probes. A burst takes all slots, so that no other probe affects it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = asyncio.Semaphore(size)
        self._one_burst = asyncio.Lock()

    @asynccontextmanager
    async def acquire(self, streams: int) -> AsyncIterator[None]:
        """Hold slots for `streams` concurrent streams for the duration of the block."""
        if streams == 1:
            async with self._free:
                yield
            return
        async with self._one_burst, AsyncExitStack() as everything:
            for _ in range(self.size):
                await everything.enter_async_context(self._free)
            yield


class ProbeScheduler:
    """Probes the rounds of the plan, at most `concurrency` at once. Every round is recorded in the spool as one sample,
    a burst as one sample per stream; if nothing is sent, one sample states why.

    `lost` counts samples that could not be written to the spool; probing continues. `missing_keys` has, by target name,
    why rounds are skipped for want of a key, and `refused_targets` why `policy` refuses them. `clock` returns the wall
    time in microseconds since the epoch.
    """

    def __init__(
        self,
        prober: Prober,
        spool: AsyncSpool,
        keyring: Keyring,
        *,
        concurrency: int,
        policy: Policy | None = None,
        clock: Callable[[], int] = now_at,
    ) -> None:
        self._prober = prober
        self._spool = spool
        self._keyring = keyring
        self._clock = clock
        self._policy = policy
        self._slots = Slots(min(concurrency, policy.max_streams) if policy else concurrency)
        self._schedule = Schedule((), now_at=0)
        self._missed_before = 0
        self._budgets = BudgetTracker(prober.vantage, accounts=policy.accounts_of if policy else no_accounts)
        # The reason why today's spend is unknown; `None` once it has been loaded.
        self._spend_error: str | None = "not yet"
        # By target id and round: the spend reserved in the spool for rounds in flight.
        self._reserved: dict[tuple[int, int], tuple[Spend, ...]] = {}
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: Counter[int] = Counter()
        # By target id: the probe that was started last, and the last round that has begun.
        self._latest: dict[int, InFlightProbe] = {}
        self._begun: dict[int, int] = {}
        # By target id, on the monotonic clock, so that a step of the wall clock does not prolong a wait.
        self._throttled_until_ns: dict[int, int] = {}
        self._stopping = False
        self.plan_version = 0
        self.plan_hash = b""
        self.lost = 0
        self.missing_keys: dict[str, CredentialError] = {}
        self.refused_targets: dict[str, str] = {}
        # Per target of the plan, by id.
        self._targets: dict[int, Target] = {}
        self._counts: dict[int, ProbeCounts] = {}

    @property
    def in_flight(self) -> int:
        """The number of rounds that have started and not ended."""
        return len(self._tasks)

    @property
    def missed(self) -> int:
        """The number of planned rounds missed since the agent started."""
        return self._missed_before + self._schedule.missed

    @property
    def missing_keys_reason(self) -> str | None:
        """The targets whose rounds are skipped for want of a key, with the reasons; `None` if all have theirs."""
        return describe_missing(self.missing_keys) or None

    @property
    def refused_targets_reason(self) -> str | None:
        """The targets that the policy refuses, with the reasons; `None` if there are none."""
        return describe_refused(self.refused_targets) or None

    def series(self, region: str) -> list[Series]:
        """Return the counts of the probes of each target of the plan since the agent started, for metrics."""
        targets = self._targets
        counted = list(self._counts.items())
        return [(labels_of(region, targets[known]), counts) for known, counts in counted if known in targets]

    def apply_plan(self, plan: Plan) -> None:
        """Probe the rounds of `plan` from now on, within its budgets. If it cannot be scheduled, nothing changes."""
        schedule = Schedule(
            plan.targets,
            now_at=self._clock(),
            vantage=self._prober.vantage,
            routes=plan.routes,
            begun=self._schedule.begun,
        )
        self._missed_before, self._schedule = self.missed, schedule
        self._targets = {target.id: target for target in plan.targets}
        self._counts = {known: counts for known, counts in self._counts.items() if known in self._targets}
        self._budgets.budgets = plan.budgets
        self.plan_version, self.plan_hash = plan.version, plan.content_hash
        self._changed.set()
        log.info("plan.running", version=plan.version, targets=len(plan.targets), budgets=len(plan.budgets))
        self.missing_keys = self._keyring.missing(target for target in plan.targets if not target.paused)
        if self.missing_keys:
            hint = next(iter(self.missing_keys.values())).hint
            log.warning("keys.missing", targets=len(self.missing_keys), reason=self.missing_keys_reason, hint=hint)
        self.refused_targets = self._policy.refusals(plan.targets) if self._policy else {}
        if self.refused_targets:
            hint = "see isochrone-agent policy"
            log.warning(
                "targets.refused", targets=len(self.refused_targets), reason=self.refused_targets_reason, hint=hint
            )

    async def run(self) -> None:
        """Start every round when it is due. Spend from before a restart counts towards today's budgets."""
        await self._load_spend()
        while True:
            for due in self._schedule.due(self._clock()):
                task = asyncio.create_task(self._round(due))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            await self._sleep()

    async def finish(self, seconds: float) -> None:
        """Wait for the rounds in flight. After `seconds`, abort those that remain; their samples record that."""
        if not self._tasks:
            return
        self._begun.clear()
        for probing in self._latest.values():
            probing.followed_by(())
        await asyncio.wait(self._tasks, timeout=seconds)
        self._stopping = True
        self._prober.abort()
        if not self._tasks:
            return
        _, stuck = await asyncio.wait(self._tasks, timeout=_ABORT_SECONDS)
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)

    async def _load_spend(self) -> None:
        try:
            self._budgets.restore(await self._spool.spend(day_of(self._clock())))
        except SpoolError as error:
            if self._spend_error != str(error):
                log.error("spend.unreadable", reason=str(error), hint=error.hint)  # noqa: TRY400  # no traceback
            self._spend_error = str(error)
        else:
            self._spend_error = None

    async def _sleep(self) -> None:
        next_at = self._schedule.next_at()
        sleep_us = MAX_SLEEP_US if next_at is None else min(max(next_at - self._clock(), 0), MAX_SLEEP_US)
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), sleep_us / SECOND_US)

    async def _round(self, due: ScheduledRound) -> None:
        samples = await self._samples(due)
        reserved = self._reserved.pop((due.target.id, due.round_at), ())
        entries = self._budgets.settle(samples, target=due.target, reserved=reserved)
        for sample, spends in zip(samples, entries, strict=True):
            _log_sample(due.target, sample)
            if sample.target_id in self._targets:
                self._counts.setdefault(sample.target_id, ProbeCounts()).add(sample)
            await self._record(sample, spends)

    async def _record(self, sample: Sample, spends: Sequence[Spend]) -> None:
        try:
            await self._spool.record(sample, spends)
        except SpoolError as error:
            self.lost += 1
            log.error("sample.lost", reason=str(error), hint=error.hint, lost=self.lost)  # noqa: TRY400  # no traceback
        except Exception:  # a bug in the agent: log it, and still record the other samples of a burst
            self.lost += 1
            log.exception("sample.lost", lost=self.lost)

    async def _samples(self, due: ScheduledRound) -> list[Sample]:
        """Run the round, and return at least one sample whatever happens."""
        outcome, reason = Outcome.SKIPPED_NOT_READY, "the agent stopped"
        try:
            if self._spend_error and self._budgets.has_budget(due.target):
                await self._load_spend()
            self._begun[due.target.id] = due.round_at
            skipped = self._skipped(due)
            if skipped is None:
                return await self._probe(due)
            if skipped[0] is Outcome.SKIPPED_OVERLAP:
                return await self._overlapping(due, self._unsent_sample(due, *skipped))
            outcome, reason = skipped
        except CredentialError as error:
            reason = str(error)
        except asyncio.CancelledError:
            log.warning("probe.cancelled", target=due.target.name)
        except Exception as error:  # a bug in the agent: log it; the round still gets a sample
            reason = f"the agent failed: {type(error).__name__}"
            log.exception("probe.failed", target=due.target.name)
        return [self._unsent_sample(due, outcome, reason)]

    async def _overlapping(self, due: ScheduledRound, sample: Sample) -> list[Sample]:
        """Return the samples of a round behind a probe in flight; `sample` is the one of a skipped round. If the probe
        hung, the last round behind it is probed late, and the others may be blocked.
        """
        previous = self._latest[due.target.id]
        is_last = await previous.hung() and self._begun.get(due.target.id) == due.round_at
        if is_last and self._skipped(due) is None:
            return await self._probe(due)
        waited_us = await previous.waited_us(due)
        if waited_us is None:
            return [sample]
        error = f"not sent: the previous probe had waited {waited_us / SECOND_US:.3g} s, and got no token"
        return [replace(sample, outcome=Outcome.TIMED_OUT, timeout_us=waited_us, quality=Quality.BLOCKED, error=error)]

    def _skipped(self, due: ScheduledRound) -> tuple[Outcome, str] | None:
        """Return the outcome and the reason if the round is skipped, else `None`."""
        target = due.target
        if target.paused:
            return Outcome.SKIPPED_PAUSED, "the plan pauses this target"
        if refusal := self._policy and self._policy.refusal(target):
            return Outcome.SKIPPED_NOT_READY, f"{REFUSED}{refusal}"
        if self._busy[target.id] and target.overlap is Overlap.SKIP:
            return Outcome.SKIPPED_OVERLAP, "the previous probe is still in flight"
        if self._throttled_until_ns.get(target.id, 0) > time.monotonic_ns():
            return Outcome.SKIPPED_THROTTLED, "the provider asked to wait"
        over = self._over_budget(target)
        return (Outcome.SKIPPED_BUDGET, over) if over else None

    def _over_budget(self, target: Target) -> str | None:
        if self._spend_error and self._budgets.has_budget(target):
            return f"today's spend is unknown: {self._spend_error}"
        return self._budgets.refusal(target, self._clock())

    async def _probe(self, due: ScheduledRound) -> list[Sample]:
        target, samples = due.target, list[Sample]()
        key = self._key_for(target)
        previous = self._latest.get(target.id)
        self._latest[target.id] = probing = InFlightProbe(target, previous)
        self._busy[target.id] += 1
        self._budgets.begin(target)
        try:
            samples = await self._send(due, key)
        finally:
            self._busy[target.id] -= 1
            self._budgets.end(target, samples)
            self._end(probing, previous, samples)
            if not samples and (unsettled := self._reserved.pop((target.id, due.round_at), None)):
                # Cancelled or failed, but a request may have been sent.
                self._budgets.record(unsettled)
        self._note_refusal(target, samples)
        waits_us = [s.ratelimit.retry_after_us for s in samples if s.ratelimit and s.ratelimit.retry_after_us]
        if waits_us:
            self._throttled_until_ns[target.id] = time.monotonic_ns() + max(waits_us) * 1000
        return samples

    def _end(self, probing: InFlightProbe, previous: InFlightProbe | None, samples: Sequence[Sample]) -> None:
        """Pass the samples that were sent to the rounds waiting for them; an aborted probe shows nothing."""
        sent = [] if self._stopping else [sample for sample in samples if sample.sent]
        probing.end(sent)
        if previous is not None:
            previous.followed_by(sent)

    def _note_refusal(self, target: Target, samples: Sequence[Sample]) -> None:
        """Keep `refused_targets` current: only a probe shows the address that a name resolves to."""
        refusals = [s.error for s in samples if not s.sent and s.error and s.error.startswith(REFUSED)]
        if refusals:
            self.refused_targets[target.name] = refusals[0].removeprefix(REFUSED)
        elif any(sample.sent for sample in samples):
            self.refused_targets.pop(target.name, None)

    def _key_for(self, target: Target) -> str | None:
        """Return the key, and keep `missing_keys` current: files with keys may appear and disappear."""
        try:
            key = self._keyring.key_for(target)
        except CredentialError as error:
            self.missing_keys[target.name] = error
            raise
        self.missing_keys.pop(target.name, None)
        return key

    async def _send(self, due: ScheduledRound, key: str | None) -> list[Sample]:
        """Probe once slots are free. After half the interval skip the round: it could not be paired."""
        target = due.target
        async with AsyncExitStack() as room:
            try:
                async with asyncio.timeout(target.every_us / 2 / SECOND_US):
                    await room.enter_async_context(self._slots.acquire(target.workload.concurrency))
            except TimeoutError:
                reason = f"no free slot among {self._slots.size} probes for half the interval"
                return [self._unsent_sample(due, Outcome.SKIPPED_NOT_READY, reason)]
            if failure := await self._reserve(due):
                return [self._unsent_sample(due, Outcome.SKIPPED_BUDGET, failure)]
            if self._stopping:
                return [self._unsent_sample(due, Outcome.SKIPPED_NOT_READY, "the agent stopped")]
            samples = await self._prober.burst(target, round_at=due.round_at, key=key)
        return [replace(sample, late_us=sample.dispatched_at - due.begins_at) for sample in samples]

    async def _reserve(self, due: ScheduledRound) -> str | None:
        """Store the round's maximum cost before it is sent, so that it survives a crash; return the error, if any."""
        reservation = self._budgets.reservation(due.target, self._clock())
        if not reservation:
            return None
        try:
            await self._spool.reserve(reservation)
        except SpoolError as error:
            return f"cannot store the reservation of this round: {error}"
        self._reserved[due.target.id, due.round_at] = reservation
        return None

    def _unsent_sample(self, due: ScheduledRound, outcome: Outcome, reason: str) -> Sample:
        at = self._clock()
        return Sample(
            target_id=due.target.id,
            round_at=due.round_at,
            outcome=outcome,
            dispatched_at=at,
            late_us=at - due.begins_at,
            error=reason[:ERROR_CHARS],
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
