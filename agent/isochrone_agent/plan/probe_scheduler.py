"""Probe scheduler: starts a task for each due round, and records its sample, or one sample per stream of a burst.

The laws:

1. Every round ends in at least one sample, whatever happens; if nothing is sent, one sample states why.
2. `skip_of` decides whether a round is skipped: a table of checks over facts, without I/O. `ProbeScheduler`
   gathers the facts before, and acts afterwards.
3. The maximum cost of a round is in the spool before its request is sent, and its samples correct it (`SpendGuard`).

With `overlap: skip`, a probe in flight keeps the following rounds from starting. In an outage these rounds count too,
as otherwise it would be one failure per timeout instead of one per round. Their laws:

1. An overdue probe (`_TargetState.is_overdue`) keeps no round from starting: only a request shows whether the outage
   lasts. Rounds wait for it all the same if half of the agent's slots are taken, or if the target probes in bursts.
2. A probe hung if it failed without a first token. A round that waited for such a probe is blocked: it counts as a
   timeout at the time that the probe had waited when the round began, because a request sent then would have met the
   same outage.
3. The outage ended at an unknown instant before the next probe. If that one hung too, or answered only after its
   interval, all rounds between are blocked. If it answered, the rounds in the first half of the time between are; only
   those in the first quarter if the probe before the one that hung was answered, because a single request that is lost
   looks the same as a short outage. Where a round begins near that bound, its number decides, pseudo-randomly.
4. A round behind a probe that was answered, however late, is not blocked: the probe's own value says more than the
   time waited until then. It stays skipped, without a value.
5. The last round behind a probe that hung is probed late, when that probe has ended: otherwise the next probe, and with
   it the end of an outage, would be up to an interval later.
6. Without a next probe (the agent stops, the target is paused) there is no result, and the rounds stay skipped.

The laws of a wait that the provider asks for (`retry-after`):

1. After a refusal because of the rate nothing is sent until the wait is over, for at most an hour at once.
2. After another failure, one round in five is probed all the same: the failure may be over before the wait. The rounds
   between are blocked: they count as that failure, because otherwise the wait would hide an outage.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

import structlog

from isochrone_agent.clock import now_at, uptime_us
from isochrone_agent.errors import CredentialError, SettingsError, SpoolError
from isochrone_agent.plan.budget import BudgetTracker
from isochrone_agent.plan.credentials import Keyring, describe_missing
from isochrone_agent.plan.policy import Policy, describe_refused
from isochrone_agent.plan.schedule import Schedule, ScheduledRound
from isochrone_agent.probe.destinations import REFUSED
from isochrone_agent.probe.measurement import ERROR_CHARS
from isochrone_agent.probe.prober import Prober
from isochrone_agent.spool.spool import AsyncSpool
from isochrone_common.probe_metrics import ProbeCounts, Series, labels_of
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import SECOND_US, Outcome, Overlap, Plan, Quality, Sample, Spend, Target, day_of

Samples = Sequence[Sample]
# A provider that refuses a request because of its rate is not hanging.
_ANSWERED = (Outcome.OK, Outcome.THROTTLED)

# The share of the time between a probe that hung and an answered one that belongs to the outage, without and with a
# second probe that hung before.
_SINGLE_SHARE, _REPEATED_SHARE = 0.25, 0.5
# The multiples of the golden ratio are spread evenly, also those of rounds that are regularly spaced.
_GOLDEN = 0.618034
# A probe in flight for longer than this multiple of the longest recent answer is overdue.
_OVERDUE_FACTOR = 2
# What remains of a long answer as the longest recent one, per later answer.
_ANSWER_DECAY = 0.9
# The most overdue probes of a target in flight; they divide the limit of the first token evenly.
_MAX_OVERDUE = 8


def waited_us(due: ScheduledRound, *, before: Samples, after: Samples, repeated: bool) -> int | None:
    """Return how long the probe before a round had waited for a first token at the planned start of the round, in
    microseconds; `None` unless the round is blocked. `before` and `after` are the samples of the probes before and
    after the round, one per stream; `repeated` if the probe before those hung too.
    """
    if not before or not after or not _hung(before):
        return None
    every_us = due.target.every_us
    is_slow = all(sample.ttft_us is not None and sample.ttft_us > every_us for sample in after)
    blocked_us = _blocked_us(before[0], after[0], every_us=every_us, repeated=repeated)
    if not (is_slow or _hung(after)) and due.begins_at - before[0].dispatched_at >= blocked_us:
        return None
    # A step of the wall clock may falsify the time from a request until the round.
    waits = ((due.begins_at - one.dispatched_at - (one.connect_us or 0), one.timeout_us) for one in before)
    return min(max(0, wait if limit is None else min(wait, limit)) for wait, limit in waits)


def _blocked_us(before: Sample, after: Sample, *, every_us: int, repeated: bool) -> float:
    """The time after a probe that hung in which rounds are blocked, on average a share of the time between probes."""
    share = _REPEATED_SHARE if repeated else _SINGLE_SHARE
    between_us = after.dispatched_at - before.dispatched_at - every_us
    return share * between_us + before.round_at // every_us * _GOLDEN % 1 * every_us


def _hung(samples: Samples) -> bool:
    return all(sample.ttft_us is None and sample.outcome not in _ANSWERED for sample in samples)


class InFlightProbe:
    """One probe (or burst) of a target, until the next one of the target has ended."""

    def __init__(self, target: Target, previous: "InFlightProbe | None" = None) -> None:
        loop = asyncio.get_running_loop()
        # After this time without a next probe none is expected.
        self._patience_us = 2 * target.every_us + target.workload.timeouts.total_us
        self._samples: asyncio.Future[Samples] = loop.create_future()
        self._next: asyncio.Future[Samples] = loop.create_future()
        self._begun_seconds = loop.time()
        self._previous = previous
        self._repeated = False

    @property
    def in_flight_us(self) -> float | None:
        """The time since the probe began, in microseconds; `None` once it has ended."""
        return None if self._samples.done() else (self._samples.get_loop().time() - self._begun_seconds) * SECOND_US

    @property
    def has_hung(self) -> bool:
        """True once the probe has ended without a first token."""
        return self._samples.done() and bool(self._samples.result()) and _hung(self._samples.result())

    def end(self, samples: Samples) -> None:
        """Record the samples of this probe; none if it was not sent."""
        self._samples.set_result(samples)
        # Without the reference no chain of all probes remains.
        self._repeated, self._previous = self._previous is not None and self._previous.has_hung, None

    def followed_by(self, samples: Samples) -> None:
        """Record the samples of the next probe, if there is one. Later calls have no effect."""
        if not self._next.done():
            self._next.set_result(samples)

    async def hung(self) -> bool:
        """Wait for the end of the probe, and return true if it hung."""
        await asyncio.wait([self._samples])
        return self.has_hung

    async def waited_us(self, due: ScheduledRound) -> int | None:
        """Return `waited_us` of a round behind this probe, when the probe and, if it hung, the next one have ended."""
        if await self.hung():
            await asyncio.wait([self._next], timeout=self._patience_us / SECOND_US)
        after = self._next.result() if self._next.done() else ()
        return waited_us(due, before=self._samples.result(), after=after, repeated=self._repeated)


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


def skip_of(
    target: Target,
    *,
    refusal: str | None = None,
    is_in_flight: bool = False,
    is_throttled: bool = False,
    over_budget: str | None = None,
    failure: Sample | None = None,
) -> tuple[Outcome, str] | None:
    """Return the outcome of a round that is not sent, and the reason; `None` if it is. The first check decides."""
    overlaps = is_in_flight and target.overlap is Overlap.SKIP
    checks = (
        (Outcome.SKIPPED_PAUSED, target.paused and "the plan pauses this target"),
        (Outcome.SKIPPED_NOT_READY, refusal and f"{REFUSED}{refusal}"),
        (Outcome.SKIPPED_OVERLAP, overlaps and "the previous probe is still in flight"),
        (Outcome.SKIPPED_THROTTLED, is_throttled and "the provider asked to wait"),
        (Outcome.SKIPPED_BUDGET, over_budget),
    )
    if failure and not any(reason for _, reason in checks):
        return failure.outcome, f"not sent: the provider asked to wait after: {failure.error}"
    return next(((outcome, reason) for outcome, reason in checks if reason), None)


@dataclass(slots=True)
class SpendGuard:
    """The daily budgets, with their spend in the spool, so that it survives a crash. The clock is the scheduler's."""

    _spool: AsyncSpool
    budgets: BudgetTracker
    _clock: Callable[[], int]
    # The reason why today's spend is unknown; `None` once it has been loaded.
    _error: str | None = "not yet"
    # By target id and round: the spend reserved in the spool for rounds in flight.
    _reserved: dict[tuple[int, int], tuple[Spend, ...]] = field(default_factory=dict)

    async def load(self) -> None:
        """Load today's spend, from before a restart too. An error is logged."""
        try:
            self.budgets.restore(await self._spool.spend(day_of(self._clock())))
        except SpoolError as error:
            if self._error != str(error):
                log.error("spend.unreadable", reason=str(error), hint=error.hint)  # noqa: TRY400  # no traceback
            self._error = str(error)
        else:
            self._error = None

    async def load_for(self, target: Target) -> None:
        """Load today's spend if it is unknown and limits `target`."""
        if self._error and self.budgets.has_budget(target):
            await self.load()

    def refusal(self, target: Target) -> str | None:
        """Return why a round of `target` must not start now; `None` if it may."""
        if self._error and self.budgets.has_budget(target):
            return f"today's spend is unknown: {self._error}"
        return self.budgets.refusal(target, self._clock())

    async def reserve(self, due: ScheduledRound) -> str | None:
        """Store the round's maximum cost; return the error, if any."""
        reservation = self.budgets.reservation(due.target, self._clock())
        if not reservation:
            return None
        try:
            await self._spool.reserve(reservation)
        except SpoolError as error:
            return f"cannot store the reservation of this round: {error}"
        self._reserved[due.key] = reservation
        return None

    def end(self, due: ScheduledRound, samples: Sequence[Sample]) -> None:
        """End a round that began; without samples it failed, but a request may have been sent, so it stays charged."""
        self.budgets.end(due.target, samples)
        if not samples:
            self.budgets.record(self._reserved.pop(due.key, ()))

    def settle(self, due: ScheduledRound, samples: Sequence[Sample]) -> list[tuple[Spend, ...]]:
        """Return the spend to record with each sample of a round."""
        return self.budgets.settle(samples, target=due.target, reserved=self._reserved.pop(due.key, ()))


# Of the rounds in a wait after a failure, one in five is probed.
_HELD_ROUNDS = 4
MAX_WAIT_US = HOUR_US
"""A wait that a provider asks for is cut to this."""


@dataclass(slots=True)
class _TargetState:
    """The state of a target across its rounds. The ends of waits are monotonic: no step prolongs them.

    `longest_us`: the longest answer, less a tenth per later one, `None` before the first; `failure`: the sample that
    asked to wait until `failed_until_ns`; `held`: the rounds in a row blocked since.
    """

    in_flight: int = 0
    latest: InFlightProbe | None = None
    longest_us: float | None = None
    begun_at: int | None = None
    throttled_until_ns: int = 0
    failed_until_ns: int = 0
    failure: Sample | None = None
    held: int = 0
    counts: ProbeCounts = field(default_factory=ProbeCounts)

    def end(self) -> None:
        """Expect no further probe."""
        self.begun_at = None
        if self.latest is not None:
            self.latest.followed_by(())

    @property
    def held_by(self) -> Sample | None:
        """The failure that a round counts as, in a wait; `None` if there is none, or it is probed all the same."""
        is_held = self.held < _HELD_ROUNDS and time.monotonic_ns() < self.failed_until_ns
        return self.failure if is_held else None

    def is_overdue(self, *, spacing_us: float) -> bool:
        """Return whether the probes in flight keep no round from starting: the latest takes unusually long, and began
        at least `spacing_us` ago, or it has ended before the others.
        """
        if self.latest is None or self.longest_us is None:
            return False
        in_flight_us = self.latest.in_flight_us
        return in_flight_us is None or in_flight_us > max(spacing_us, _OVERDUE_FACTOR * self.longest_us)

    def note_answer(self, samples: Samples) -> None:
        """Keep `longest_us` current."""
        answers = [sample.e2e_us or 0 for sample in samples if sample.outcome is Outcome.OK]
        if answers:
            self.longest_us = max(*answers, _ANSWER_DECAY * (self.longest_us or 0))

    def wait(self, samples: Samples) -> None:
        """Wait as long as the answers of a probe asked for."""
        throttled = [sample for sample in samples if sample.outcome is Outcome.THROTTLED]
        self.throttled_until_ns = max(self.throttled_until_ns, _wait_ends_ns(throttled))
        if any(sample.sent for sample in samples):
            failed = samples if all(sample.outcome.failed for sample in samples) else ()
            self.failed_until_ns, self.held = _wait_ends_ns(failed), 0
            self.failure = failed[0] if failed else None


def _wait_ends_ns(samples: Samples) -> int:
    limits = [sample.ratelimit for sample in samples if sample.ratelimit]
    wait_us = max((limit.retry_after_us or 0 for limit in limits), default=0)
    return time.monotonic_ns() + min(wait_us, MAX_WAIT_US) * 1000


class ProbeScheduler:
    """Probes the rounds of the plan, at most `concurrency` at once, and records them in the spool.

    `plan` is the running one, of version 0 before the first. `lost` counts samples that could not be written to the
    spool; probing continues. `missing_keys` has, by target name,
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
        budgets = BudgetTracker(prober.vantage, accounts=policy.accounts_of if policy else lambda _: ())
        self._spend = SpendGuard(spool, budgets, clock)
        self.plan = Plan(version=0, baseline="", targets=())
        self._planned = frozenset[int]()
        self._schedule = Schedule((), now_at=0)
        self._missed_before = 0
        self._states: dict[int, _TargetState] = {}
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.lost = 0
        self.missing_keys: dict[str, CredentialError] = {}
        self.refused_targets: dict[str, str] = {}

    @property
    def in_flight(self) -> int:
        """The number of rounds that have started and not ended."""
        return len(self._tasks)

    @property
    def missed(self) -> int:
        """The number of planned rounds missed since the agent started."""
        return self._missed_before + self._schedule.missed

    def series(self, region: str) -> list[Series]:
        """Return the counts of the probes of each target of the plan since the agent started, for metrics."""
        counted = [(target, self._states.get(target.id)) for target in self.plan.targets]
        return [(labels_of(region, target), state.counts) for target, state in counted if state]

    def apply_plan(self, plan: Plan) -> None:
        """Probe the rounds of `plan` from now on, within its budgets. If it cannot be scheduled, nothing changes."""
        schedule = Schedule(
            plan.targets,
            now_at=self._clock(),
            vantage=self._prober.vantage,
            routes=plan.routes,
            begun=self._schedule.begun,
        )
        self._missed_before, self._schedule, self.plan = self.missed, schedule, plan
        self._spend.budgets.budgets = plan.budgets
        self._planned = frozenset(target.id for target in plan.targets)
        for removed in self._states.keys() - self._planned:
            self._states[removed].end()
            self._forget_if_removed(removed)
        self._changed.set()
        log.info("plan.running", version=plan.version, targets=len(plan.targets), budgets=len(plan.budgets))
        self.missing_keys = self._keyring.missing(target for target in plan.targets if not target.paused)
        if self.missing_keys:
            reason, hint = describe_missing(self.missing_keys), next(iter(self.missing_keys.values())).hint
            log.warning("keys.missing", targets=len(self.missing_keys), reason=reason, hint=hint)
        self.refused_targets = self._policy.refusals(plan.targets) if self._policy else {}
        if self.refused_targets:
            count, reason = len(self.refused_targets), describe_refused(self.refused_targets)
            log.warning("targets.refused", targets=count, reason=reason, hint="see isochrone-agent policy")

    async def run(self) -> None:
        """Start every round when it is due. Spend from before a restart counts towards today's budgets."""
        await self._spend.load()
        while True:
            if self._changed.is_set():
                self._changed.clear()
                await self._prober.retain(self.plan.targets)
            for due in self._schedule.due(self._clock(), uptime_us=uptime_us()):
                task = asyncio.create_task(self._round(due))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            next_at = self._schedule.next_at()
            sleep_us = MAX_SLEEP_US if next_at is None else min(max(next_at - self._clock(), 0), MAX_SLEEP_US)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), sleep_us / SECOND_US)

    async def finish(self, seconds: float) -> None:
        """Wait for the rounds in flight. After `seconds`, abort those that remain; their samples record that."""
        if not self._tasks:
            return
        for state in self._states.values():
            state.end()
        await asyncio.wait(self._tasks, timeout=seconds)
        self._stopping = True
        self._prober.abort()
        if not self._tasks:
            return
        _, stuck = await asyncio.wait(self._tasks, timeout=_ABORT_SECONDS)
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)

    async def _round(self, due: ScheduledRound) -> None:
        state = self._states.setdefault(due.target.id, _TargetState())
        samples = await self._samples(due, state)
        for sample, spends in zip(samples, self._spend.settle(due, samples), strict=True):
            log.info(
                "probe.done",
                target=due.target.name,
                outcome=sample.outcome.value,
                ttft_ms=None if sample.ttft_us is None else sample.ttft_us / 1000,
                tokens_per_second=sample.tokens_per_second and round(sample.tokens_per_second, 1),
                late_ms=sample.late_us // 1000,
                quality=",".join(sample.quality.labels) or None,
                error=sample.error,
            )
            state.counts.add(sample)
            await self._record(sample, spends)
        self._forget_if_removed(due.target.id)

    def _forget_if_removed(self, target_id: int) -> None:
        """Forget the state of a target that left the plan, once none of its probes is in flight."""
        state = self._states.get(target_id)
        if state and not state.in_flight and target_id not in self._planned:
            del self._states[target_id]

    async def _record(self, sample: Sample, spends: Sequence[Spend]) -> None:
        try:
            await self._spool.record(sample, spends)
        except SpoolError as error:
            self.lost += 1
            log.error("sample.lost", reason=str(error), hint=error.hint, lost=self.lost)  # noqa: TRY400  # no traceback
        except Exception:  # a bug in the agent: log it, and still record the other samples of a burst
            self.lost += 1
            log.exception("sample.lost", lost=self.lost)

    async def _samples(self, due: ScheduledRound, state: _TargetState) -> list[Sample]:
        """Run the round, and return at least one sample whatever happens."""
        outcome, reason = Outcome.SKIPPED_NOT_READY, "the agent stopped"
        try:
            await self._spend.load_for(due.target)
            state.begun_at = due.round_at
            skipped = self._skip(due.target, state)
            if skipped is None:
                return await self._probe(due, state)
            outcome, reason = skipped
            if outcome.failed and state.failure:
                state.held += 1
                blocked = self._unsent_sample(due, outcome, reason)
                return [replace(blocked, http_status=state.failure.http_status, quality=Quality.BLOCKED)]
            if outcome is Outcome.SKIPPED_OVERLAP:
                return await self._overlapping(due, state, self._unsent_sample(due, outcome, reason))
        except (CredentialError, SettingsError) as error:
            outcome, reason = Outcome.SKIPPED_NOT_READY, str(error)
        except asyncio.CancelledError:
            outcome, reason = Outcome.SKIPPED_NOT_READY, "the agent stopped"
            log.warning("probe.cancelled", target=due.target.name)
        except Exception as error:  # a bug in the agent: log it; the round still gets a sample
            outcome, reason = Outcome.SKIPPED_NOT_READY, f"the agent failed: {type(error).__name__}"
            log.exception("probe.failed", target=due.target.name)
        return [self._unsent_sample(due, outcome, reason)]

    def _skip(self, target: Target, state: _TargetState) -> tuple[Outcome, str] | None:
        return skip_of(
            target,
            refusal=self._policy.refusal(target) if self._policy else None,
            is_in_flight=state.in_flight > 0 and not self._may_overlap(target, state),
            is_throttled=state.throttled_until_ns > time.monotonic_ns(),
            over_budget=self._spend.refusal(target),
            failure=state.held_by,
        )

    def _may_overlap(self, target: Target, state: _TargetState) -> bool:
        """Return whether a round may start beside overdue probes of its target."""
        most = self._slots.size / 2
        spacing_us = target.workload.timeouts.first_token_us / min(_MAX_OVERDUE, most)
        return (
            target.workload.concurrency == 1
            and state.is_overdue(spacing_us=spacing_us)
            and sum(one.in_flight for one in self._states.values()) < most
        )

    async def _overlapping(self, due: ScheduledRound, state: _TargetState, sample: Sample) -> list[Sample]:
        """Return the samples of a round behind a probe; the last one behind a hung probe is probed late."""
        previous = state.latest
        assert previous is not None  # it is in flight
        is_last = await previous.hung() and state.begun_at == due.round_at
        if is_last and self._skip(due.target, state) is None:
            return await self._probe(due, state)
        waited_us = await previous.waited_us(due)
        if waited_us is None:
            return [sample]
        error = f"not sent: the previous probe had waited {waited_us / SECOND_US:.3g} s, and got no token"
        return [replace(sample, outcome=Outcome.TIMED_OUT, timeout_us=waited_us, quality=Quality.BLOCKED, error=error)]

    async def _probe(self, due: ScheduledRound, state: _TargetState) -> list[Sample]:
        target, samples = due.target, list[Sample]()
        # Files with keys may appear and disappear.
        try:
            key = self._keyring.key_for(target)
        except CredentialError as error:
            self.missing_keys[target.name] = error
            raise
        self.missing_keys.pop(target.name, None)
        previous = state.latest
        state.latest = probe = InFlightProbe(target, previous)
        state.in_flight += 1
        self._spend.budgets.begin(target)
        try:
            samples = await self._send(due, key)
        finally:
            state.in_flight -= 1
            self._spend.end(due, samples)
            # For the rounds that wait for them; an aborted probe shows nothing.
            sent = [] if self._stopping else [sample for sample in samples if sample.sent]
            probe.end(sent)
            if previous is not None:
                previous.followed_by(sent)
        self._note_refusal(target, samples)
        state.note_answer(samples)
        state.wait(samples)
        return samples

    def _note_refusal(self, target: Target, samples: Sequence[Sample]) -> None:
        """Keep `refused_targets` current: only a probe shows the address that a name resolves to."""
        refusals = [s.error for s in samples if not s.sent and s.error and s.error.startswith(REFUSED)]
        if refusals:
            self.refused_targets[target.name] = refusals[0].removeprefix(REFUSED)
        elif any(sample.sent for sample in samples):
            self.refused_targets.pop(target.name, None)

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
            if failure := await self._spend.reserve(due):
                return [self._unsent_sample(due, Outcome.SKIPPED_BUDGET, failure)]
            if self._stopping:
                return [self._unsent_sample(due, Outcome.SKIPPED_NOT_READY, "the agent stopped")]
            samples = await self._prober.burst(target, round_at=due.round_at, key=key)
        return [replace(sample, late_us=sample.dispatched_at - due.begins_at) for sample in samples]

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
