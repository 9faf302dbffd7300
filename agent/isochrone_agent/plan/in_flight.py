"""Rounds that cannot start because the previous probe of their target is in flight (`overlap: skip`).

A hanging probe keeps the following rounds from starting. If these did not count, an outage would be one failure per
timeout instead of one per round. The laws:

1. A probe hung if it failed without a first token. A round behind such a probe is blocked: it counts as a timeout at
   the time that the probe had waited when the round began, because a request sent then would have met the same outage.
2. The outage ended at an unknown instant before the next probe. If that one hung too, or answered only after its
   interval, all rounds between are blocked. If it answered, the rounds in the first half of the time between are; only
   those in the first quarter if the probe before the one that hung was answered, because a single request that is lost
   looks the same as a short outage. Where a round begins near that bound, its number decides, pseudo-randomly.
3. A round behind a probe that was answered, however late, is not blocked: the probe's own value says more than the
   time waited until then. It stays skipped, without a value.
4. The last round behind a probe that hung is probed late, when that probe has ended: otherwise the next probe, and with
   it the end of an outage, would be up to an interval later.
5. Without a next probe (the agent stops, the target is paused) nothing is known, and the rounds stay skipped.
"""

import asyncio
from collections.abc import Sequence

from isochrone_agent.plan.schedule import ScheduledRound
from isochrone_wire.model import SECOND_US, Outcome, Sample, Target

Samples = Sequence[Sample]
# A provider that refuses a request because of its rate is not hanging.
_ANSWERED = (Outcome.OK, Outcome.THROTTLED)

# The share of the time between a probe that hung and an answered one that belongs to the outage, without and with a
# second probe that hung before.
_SINGLE_SHARE, _REPEATED_SHARE = 0.25, 0.5
# The multiples of the golden ratio are spread evenly, also those of rounds that are regularly spaced.
_GOLDEN = 0.618034


def waited_us(due: ScheduledRound, *, before: Samples, after: Samples, repeated: bool) -> int | None:
    """Return how long the probe before a round had waited for a first token at the planned start of the round, in
    microseconds; `None` unless the round is blocked. `before` and `after` are the samples of the probes before and
    after the round, one per stream; `repeated` if the probe before those hung too.
    """
    if not before or not after or not _hung(before):
        return None
    still_hangs = _hung(after) or _slow(after, due.target.every_us)
    if not still_hangs and due.begins_at - before[0].dispatched_at >= _blocked_us(
        due, before[0], after[0], repeated=repeated
    ):
        return None
    return min(_waited_us(due, sample) for sample in before)


def _blocked_us(due: ScheduledRound, before: Sample, after: Sample, *, repeated: bool) -> float:
    """The time after a probe that hung in which rounds are blocked, on average a share of the time between probes."""
    every_us = due.target.every_us
    share = _REPEATED_SHARE if repeated else _SINGLE_SHARE
    between_us = after.dispatched_at - before.dispatched_at - every_us
    return share * between_us + before.round_at // every_us * _GOLDEN % 1 * every_us


def _hung(samples: Samples) -> bool:
    return all(sample.ttft_us is None and sample.outcome not in _ANSWERED for sample in samples)


def _slow(samples: Samples, every_us: int) -> bool:
    return all(sample.ttft_us is not None and sample.ttft_us > every_us for sample in samples)


def _waited_us(due: ScheduledRound, before: Sample) -> int:
    """Return the time from a request until the round, which a step of the wall clock may falsify, within its bounds."""
    waited = due.begins_at - before.dispatched_at - (before.connect_us or 0)
    return max(0, waited if before.timeout_us is None else min(waited, before.timeout_us))


class InFlightProbe:
    """One probe (or burst) of a target, until the next one of the target has ended."""

    def __init__(self, target: Target, previous: "InFlightProbe | None" = None) -> None:
        loop = asyncio.get_running_loop()
        # After this time without a next probe none is expected.
        self._patience_us = 2 * target.every_us + target.workload.timeouts.total_us
        self._samples: asyncio.Future[Samples] = loop.create_future()
        self._next: asyncio.Future[Samples] = loop.create_future()
        self._repeated = previous is not None and previous.has_hung

    @property
    def has_hung(self) -> bool:
        """True once the probe has ended without a first token."""
        return self._samples.done() and bool(self._samples.result()) and _hung(self._samples.result())

    def end(self, samples: Samples) -> None:
        """Record the samples of this probe; none if it was not sent."""
        self._samples.set_result(samples)

    def followed_by(self, samples: Samples) -> None:
        """Record the samples of the next probe; none if there is no such probe. Later calls have no effect."""
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
