"""Push client: pushes the sealed batches of the spool to the collector until each is acknowledged.

With a backlog, up to four calls are in flight, because a single call would mostly wait on a link with high latency.
After a failure only one call is in flight, until one succeeds. `RETRY_ACTIONS` maps the collector's replies
to actions. No reply stops the measurement: at worst the spool fills.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum

import grpc
import grpc.aio
import structlog

from isochrone_agent.clock import now_at, offset_of, read_clocks
from isochrone_agent.collector_client import CollectorClient
from isochrone_agent.errors import CollectorRefused, SpoolError
from isochrone_agent.probe.socket_observer import LoopLagMonitor
from isochrone_agent.spool.database import SealedBatch
from isochrone_agent.spool.spool import AsyncSpool
from isochrone_common.channel import UNKNOWN_TARGETS_KEY
from isochrone_wire import __version__
from isochrone_wire.model import SECOND_US, Batch, Heartbeat, day_of
from isochrone_wire.operations import Receipt
from isochrone_wire.text import shortened
from isochrone_wire.workloads import POLICY_PREFIX

HEARTBEAT_US = 15 * SECOND_US

_LAG_CHECK_NS = 250_000_000
# As many as a collector keeps; plans that follow each other on a day may name more providers.
_MAX_SPEND_LINES = 100


async def gather_heartbeat(spool: AsyncSpool, conditions: Callable[[], Heartbeat], *, loop_lag_us: int) -> Heartbeat:
    """Collect the heartbeat of this moment. Raises `SpoolError`."""
    stats = await spool.stats()
    at = now_at()
    spend = await spool.spend(day_of(at))
    offset = spool.offset_estimator.estimate(lead_us=read_clocks().lead_us)
    return replace(
        conditions(),
        agent_version=__version__,
        spool_depth=stats.waiting,
        spool_oldest_at=stats.oldest_at,
        dropped=stats.dropped,
        next_heartbeat_us=HEARTBEAT_US,
        # The collector's ledger counts per epoch, so samples stored under earlier epochs are left out.
        finished=stats.finished - stats.earlier,
        stored=stats.stored - stats.earlier,
        quarantined=stats.quarantined,
        clock_offset_us=offset.offset_us if offset else None,
        clock_uncertainty_us=offset.uncertainty_us if offset else None,
        loop_lag_us=loop_lag_us,
        # Without the accounts of the agent's own policy.
        spend=tuple(one for one in spend if not one.provider.startswith(POLICY_PREFIX))[:_MAX_SPEND_LINES],
        epoch=spool.epoch,
    )


Metadata = Iterable[tuple[str, str | bytes]]

FIRST_WAIT_US = SECOND_US
# Seldom enough for a fleet: a healthy agent pushes more often. A longer wait would outlast most failures.
MAX_WAIT_US = 10 * SECOND_US
# The agent waits no longer than this, even if the collector asks for it.
MAX_DELAY_US = 600 * SECOND_US

_TOO_LARGE = "larger than max"
_PUSHBACK = "grpc-retry-pushback-ms"


class RetryAction(Enum):
    """The action of the agent after a push.

    STORED: continue. RETRY: push the same batch again after a growing wait. SLOW_DOWN: push it again after the wait
    that the collector asks for. SPLIT: push it in two halves, until the refused sample is alone and goes into
    quarantine. PARK: keep the samples of unknown targets until the collector has another plan. RENUMBER: seal its
    samples under a new epoch, and push them after a growing wait. STOP: push only heartbeats until one is accepted,
    log the reason, and continue to measure.
    """

    STORED = "stored"
    RETRY = "retry"
    SLOW_DOWN = "slow_down"
    SPLIT = "split"
    PARK = "park"
    RENUMBER = "renumber"
    STOP = "stop"


# By name of the gRPC status. Other statuses are retried, because a late sample is better than a lost one.
RETRY_ACTIONS: dict[str, RetryAction] = {
    "OK": RetryAction.STORED,
    "RESOURCE_EXHAUSTED": RetryAction.SLOW_DOWN,
    "INVALID_ARGUMENT": RetryAction.SPLIT,
    "OUT_OF_RANGE": RetryAction.SPLIT,
    "NOT_FOUND": RetryAction.PARK,
    "ALREADY_EXISTS": RetryAction.RENUMBER,
    "UNAUTHENTICATED": RetryAction.STOP,
    "PERMISSION_DENIED": RetryAction.STOP,
    "UNIMPLEMENTED": RetryAction.STOP,
    "FAILED_PRECONDITION": RetryAction.STOP,
}


def action_for(status: str, details: str = "") -> RetryAction:
    """Return the action. A message that is too large has the status of a busy collector; only its details differ."""
    if status == "RESOURCE_EXHAUSTED" and _TOO_LARGE in details:
        return RetryAction.SPLIT
    return RETRY_ACTIONS.get(status, RetryAction.RETRY)


def unknown_targets(metadata: Metadata) -> frozenset[int]:
    """The ids of the targets that the collector does not know, from the trailing metadata of a refusal."""
    texts = (text for key, text in metadata if key == UNKNOWN_TARGETS_KEY and isinstance(text, str))
    return frozenset(int(one) for text in texts for one in text.split(",") if one.isdecimal())


def spread_delay_us(delay_us: int, chance: float) -> int:
    """Return up to twice the delay that was asked for, perhaps of the whole fleet; `chance` is uniform in [0, 1)."""
    return int(min(max(delay_us, 0), MAX_DELAY_US // 2) * (1 + chance))


@dataclass(slots=True)
class Backoff:
    """Waits with full jitter: uniform from 0 to a ceiling that doubles from 1 s to 10 s until a push succeeds."""

    ceiling_us: int = FIRST_WAIT_US

    def next_wait_us(self, metadata: Metadata, chance: float) -> int:
        """The wait after a failure in microseconds, or what a refusal states; `chance` is uniform in [0, 1)."""
        for key, text in metadata:
            if key == _PUSHBACK and isinstance(text, str) and text.isdecimal():
                return spread_delay_us(int(text) * 1000, chance)
        wait_us = int(self.ceiling_us * chance)
        self.ceiling_us = min(self.ceiling_us * 2, MAX_WAIT_US)
        return wait_us

    def reset(self) -> None:
        """Start again at 1 s, after a push that succeeded."""
        self.ceiling_us = FIRST_WAIT_US


def draw() -> float:
    """A uniform random number in [0, 1) for `Backoff.next_wait_us`."""
    return random.random()  # noqa: S311  # jitter, not a secret


MAX_CALLS = 4
MAX_SHOWN_REASON_CHARS = 200
LINGER_SECONDS = 0.5
SPOOL_RETRY_SECONDS = 5.0
REFUSED_HEARTBEAT_SECONDS = 15.0
REFUSAL_LOG_SECONDS = 60.0
VERIFY_SECONDS = 900.0
VERIFY_AGAIN_SECONDS = 10.0
PARK_SECONDS = 3600.0
# Parts of gRPC's messages, and what they mean.
HINTS = {
    "CERTIFICATE_VERIFY_FAILED": "the collector's certificate is not the one that this agent has pinned: if it was "
    "replaced while this agent was offline, join again: isochrone-agent join; samples stay in the spool",
    "Socket closed": "a collector without --trust-loopback requires TLS: join it, isochrone-agent join, or as its user "
    "use its Unix socket, --collector unix:PATH; samples stay in the spool",
}

log = structlog.get_logger()


class PushClient:
    """Pushes the batches of the spool, and a heartbeat when there has been no push for a while.

    `on_plan` is called with the version and the content hash of the plan, from every receipt; `conditions` returns the
    part of the heartbeat on rounds and plan. While the collector refuses this agent, `refusal` is the reason, and only
    heartbeats are pushed. Now and then, and after the collector was away, a push without samples lists the delivered
    batches of which there is a copy; those that the collector's database has lost are pushed again.
    """

    def __init__(
        self,
        collector: CollectorClient,
        spool: AsyncSpool,
        *,
        on_plan: Callable[[int, bytes], Awaitable[int]],
        conditions: Callable[[], Heartbeat] = Heartbeat,
    ) -> None:
        self._collector = collector
        self._spool = spool
        self._on_plan = on_plan
        self._conditions = conditions
        self._lag = LoopLagMonitor(_LAG_CHECK_NS)
        self._backoff = Backoff()
        self._plan_lock = asyncio.Lock()
        self._in_flight = 0
        self._call_ended = asyncio.Event()
        self._healthy = self._stopped = False
        # Instants of the monotonic clock, in seconds.
        self._not_before = self._heartbeat_due = self._seal_due = self._failed_at = self._refusal_logged = 0.0
        self._verify_due = self._verified_at = self._unpark_at = 0.0
        self._plan: tuple[int, bytes] | None = None
        self.refusal: str | None = None

    async def run(self) -> None:
        """Deliver forever."""
        async with asyncio.TaskGroup() as calls:
            while True:
                try:
                    await self._start_or_wait(calls)
                except SpoolError as error:
                    await _pause_after(error)

    async def drain(self) -> None:
        """Push every batch of the spool once, one after the other, until the first failure."""
        if self.refusal is not None:
            return
        while (batch := await self._spool.lease()) is not None:
            if await self._push(batch) is not RetryAction.STORED:
                return

    async def announce_stop(self) -> None:
        """Push a last heartbeat, by which the collector knows that the agent was stopped."""
        if self.refusal is None:
            self._stopped = True
            await self._push(None)

    async def _start_or_wait(self, calls: asyncio.TaskGroup) -> None:
        while self._in_flight >= (MAX_CALLS if self._healthy else 1):
            self._call_ended.clear()
            await self._call_ended.wait()
        await asyncio.sleep(max(self._not_before - time.monotonic(), 0))
        # While refused, heartbeats alone decide when the next call is: each of them verifies.
        verify_due = self._verify_due if self.refusal is None else self._heartbeat_due
        if time.monotonic() >= min(self._heartbeat_due, verify_due) and not self._in_flight:
            # First, even while refused: a push returns the plan version and the clock.
            self._start_call(calls, None)
        elif self.refusal is not None:
            await asyncio.sleep(max(self._heartbeat_due - time.monotonic(), 0))
        elif (batch := await self._spool.lease(seal=self._may_seal())) is not None:
            self._start_call(calls, batch)
        elif await self._spool.wait_for_more(max(self._heartbeat_due - time.monotonic(), LINGER_SECONDS)):
            # Waiting a moment turns many small commits into one.
            await asyncio.sleep(LINGER_SECONDS)

    def _may_seal(self) -> bool:
        """Return whether to seal waiting samples; not without a reachable collector, so that they fill a batch."""
        seal = self._healthy and time.monotonic() >= self._seal_due
        if seal:
            self._seal_due = time.monotonic() + LINGER_SECONDS
        return seal

    def _start_call(self, calls: asyncio.TaskGroup, batch: SealedBatch | None) -> None:
        self._in_flight += 1
        self._heartbeat_due = time.monotonic() + HEARTBEAT_US / SECOND_US
        calls.create_task(self._call(batch))

    async def _call(self, batch: SealedBatch | None) -> None:
        try:
            await self._push(batch)
        except SpoolError as error:
            await _pause_after(error)
        finally:
            # No effect on a batch that was delivered.
            self._spool.release(batch)
            self._in_flight -= 1
            self._call_ended.set()

    async def _push(self, batch: SealedBatch | None) -> RetryAction:
        """Push one batch, or a heartbeat for `None`, and handle the reply."""
        started = time.monotonic()
        try:
            receipt = await self._send(batch)
            rejected = _rejected_counts(receipt, batch)
        except grpc.aio.AioRpcError as error:
            return await self._handle_error(batch, error, started)
        except CollectorRefused as error:
            return self._stop_pushing(str(error))
        except SpoolError:
            raise
        except Exception:  # whatever a collector answers, it must not end the agent
            log.exception("push.failed")
            self._slow_down(started, ())
            return RetryAction.RETRY
        await self._handle_receipt(batch, receipt, rejected)
        return RetryAction.STORED

    async def _send(self, batch: SealedBatch | None) -> Receipt:
        heartbeat = await gather_heartbeat(self._spool, self._conditions, loop_lag_us=self._lag.take_us())
        heartbeat = replace(heartbeat, stopped=self._stopped)
        epoch, seq = (batch.epoch, batch.seq) if batch else (self._spool.epoch, 0)
        verifies = batch is None and time.monotonic() >= self._verify_due
        before = read_clocks()
        head = Batch(
            vantage=self._collector.vantage,
            epoch=epoch,
            seq=seq,
            heartbeat=heartbeat,
            sent_at=before.wall_at,
            epoch_history=self._spool.epoch_history,
            kept=await self._spool.replay_ranges() if verifies else (),
        )
        receipt = await self._collector.push(head, batch.content if batch else b"")
        after = read_clocks()
        if verifies:
            self._verified_at = time.monotonic()
            self._verify_due = self._verified_at + VERIFY_SECONDS
        if not after.stepped_since(before):
            offset = offset_of(
                sent_at=before.wall_at,
                received_at=receipt.received_at,
                server_at=receipt.server_at,
                returned_at=after.wall_at,
            )
            self._spool.offset_estimator.add(offset, lead_us=after.lead_us)
        return receipt

    async def _handle_receipt(self, batch: SealedBatch | None, receipt: Receipt, rejected: Counter[str]) -> None:
        self._healthy = True
        self._backoff.reset()
        if self.refusal is not None:
            self.refusal = None
            log.info("push.accepted_again")
        if receipt.delay_us:
            self._delay_calls(spread_delay_us(receipt.delay_us, draw()))
        if batch is not None:
            await self._spool.acknowledge(batch, rejected=rejected)
            log.info("batch.stored", seq=batch.seq, stored=receipt.stored, duplicate=receipt.duplicate)
            for rejection in receipt.rejections:
                reason = shortened(rejection.reason, MAX_SHOWN_REASON_CHARS)
                log.warning("sample.rejected", seq=batch.seq, index=rejection.index, reason=reason)
        if receipt.missing:
            batches = await self._spool.redeliver(receipt.missing)
            log.warning("batches.delivered_again", batches=batches, reason="the collector's database has lost them")
        if not self._plan_lock.locked():
            async with self._plan_lock:
                await self._on_plan(receipt.plan_version, receipt.plan_hash)
        # Parked samples are pushed again if the collector has another plan, or once an hour.
        plan = receipt.plan_version, receipt.plan_hash
        if plan != self._plan or 0 < self._unpark_at <= time.monotonic():
            self._plan, self._unpark_at = plan, 0.0
            await self._spool.unpark()

    async def _handle_error(self, batch: SealedBatch | None, error: grpc.aio.AioRpcError, begun: float) -> RetryAction:
        status, details = error.code().name, error.details() or ""
        action = action_for(status, details)
        if action is RetryAction.STOP:
            return self._stop_pushing(f"{details} ({status})")
        hint = next((hint for part, hint in HINTS.items() if part in details), None)
        more = {} if hint is None else {"hint": hint}
        log.warning("push.failed", status=status, details=details, action=action.value, **more)
        if action is RetryAction.SPLIT and batch is not None:
            reason = f"{status}: {details}"
            await self._spool.split(batch, reason)
            if batch.samples == 1:
                log.error("sample.quarantined", seq=batch.seq, reason=reason)
            else:
                log.warning("batch.split", seq=batch.seq, samples=batch.samples, reason=reason)
            return action
        if action is RetryAction.PARK and batch is not None and await self._park(batch, error):
            return action
        if action is RetryAction.RENUMBER and batch is not None:
            await self._spool.renumber(batch)
            log.warning("batch.renumbered", seq=batch.seq, samples=batch.samples, epoch=self._spool.epoch)
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            # The database may be another one, or restored from a backup, when it is back.
            self._verify_due = min(self._verify_due, self._verified_at + VERIFY_AGAIN_SECONDS)
        self._slow_down(begun, error.trailing_metadata() or ())
        return action

    async def _park(self, batch: SealedBatch, error: grpc.aio.AioRpcError) -> bool:
        """Park the samples of the targets that the refusal names; return whether the batch had others."""
        targets = unknown_targets(error.trailing_metadata() or ())
        if not targets:
            return False
        self._unpark_at = self._unpark_at or time.monotonic() + PARK_SECONDS
        # The plan has changed, and only a receipt says so. While all samples are refused, only heartbeats have one.
        self._verify_due = min(self._verify_due, self._verified_at + VERIFY_AGAIN_SECONDS)
        return await self._spool.park(batch, targets)

    def _slow_down(self, started: float, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Wait before the next call after one that began at `started` of the monotonic clock and failed."""
        self._healthy = False
        # Calls that were in flight at the same time often fail together, which counts as one failure.
        if started >= self._failed_at:
            self._failed_at = time.monotonic()
            self._delay_calls(self._backoff.next_wait_us(metadata, draw()))

    def _stop_pushing(self, reason: str) -> RetryAction:
        """Push only heartbeats until one is accepted; log the reason once a minute."""
        now = time.monotonic()
        if self.refusal is None or now >= self._refusal_logged + REFUSAL_LOG_SECONDS:
            self._refusal_logged = now
            hint = "probing continues and the spool keeps every sample; join again, or compare the versions"
            log.error("push.refused", reason=reason, hint=hint)
        self.refusal = reason
        self._healthy = False
        self._heartbeat_due = now + REFUSED_HEARTBEAT_SECONDS
        return RetryAction.STOP

    def _delay_calls(self, wait_us: int) -> None:
        log.info("push.waiting", wait_ms=wait_us // 1000)
        self._not_before = max(self._not_before, time.monotonic() + wait_us / SECOND_US)


def _rejected_counts(receipt: Receipt, batch: SealedBatch | None) -> Counter[str]:
    """The number of rejected samples by reason. Raises `CollectorRefused` when the counts are inconsistent."""
    samples = batch.samples if batch else 0
    accounted = receipt.stored + receipt.duplicate + receipt.rejected
    named = {rejection.index for rejection in receipt.rejections if 0 <= rejection.index < samples}
    is_valid = min(receipt.stored, receipt.duplicate) >= 0 and len(named) == len(receipt.rejections)
    if accounted != samples or receipt.rejected != len(receipt.rejections) or not is_valid:
        raise CollectorRefused(
            f"the collector accounts for {accounted} of {samples} samples and names {len(receipt.rejections)} of "
            f"{receipt.rejected} rejected; compare the versions of agent and collector"
        )
    return Counter(rejection.reason.partition(":")[0].strip() or "unnamed" for rejection in receipt.rejections)


async def _pause_after(error: SpoolError) -> None:
    """Log a spool error and wait before the next attempt; measuring continues meanwhile."""
    log.error("spool.failed", reason=str(error), hint=error.hint)
    await asyncio.sleep(SPOOL_RETRY_SECONDS)
