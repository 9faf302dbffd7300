"""The agent's heartbeat, which every push carries: spool, plan, clock, event loop and spend."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from isochrone_agent.clock import now_at, read_clocks
from isochrone_agent.spool.async_spool import AsyncSpool
from isochrone_agent.spool.database import is_policy_account
from isochrone_wire import __version__
from isochrone_wire.model import SECOND_US, Heartbeat, day_of

HEARTBEAT_US = 15 * SECOND_US

_CHECK_SECONDS = 0.25
# As many as a collector keeps; plans that follow each other on a day may name more providers.
_MAX_SPEND_LINES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The part of the heartbeat that comes from the rounds and the plan: the running version (0 for none), the number
    of planned rounds that were not started, the refused plan's version with the reason, the targets without a key, and
    those that the agent's policy refuses.
    """

    plan_version: int = 0
    rounds_missed: int = 0
    refused_plan: tuple[int, str] | None = None
    missing_keys: str | None = None
    refused_targets: str | None = None


class LoopLag:
    """The maximum delay of the event loop since the last reading, in microseconds."""

    def __init__(self) -> None:
        self._max_us = 0

    async def run(self) -> None:
        """Measure the delay four times a second, forever."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _CHECK_SECONDS
            await asyncio.sleep(_CHECK_SECONDS)
            self._max_us = max(self._max_us, round((loop.time() - due) * SECOND_US))

    def take_us(self) -> int:
        """Return the maximum since the last call, and reset it."""
        max_us, self._max_us = self._max_us, 0
        return max_us


async def gather_heartbeat(spool: AsyncSpool, conditions: Callable[[], Conditions], *, loop_lag_us: int) -> Heartbeat:
    """Collect the heartbeat of this moment. Raises `SpoolError`."""
    stats = await spool.stats()
    at = now_at()
    spend = await spool.spend(day_of(at))
    offset = spool.offset_estimator.estimate(lead_us=read_clocks().lead_us)
    plan = conditions()
    refused_version, refused_reason = plan.refused_plan or (None, None)
    return Heartbeat(
        agent_version=__version__,
        plan_version=plan.plan_version,
        spool_depth=stats.waiting,
        spool_oldest_at=stats.oldest_at,
        dropped=stats.dropped,
        next_heartbeat_us=HEARTBEAT_US,
        # The collector's ledger counts per epoch, so samples stored under earlier epochs are left out.
        finished=stats.finished - stats.earlier,
        stored=stats.stored - stats.earlier,
        quarantined=stats.quarantined,
        rounds_missed=plan.rounds_missed,
        clock_offset_us=offset.offset_us if offset else None,
        clock_uncertainty_us=offset.uncertainty_us if offset else None,
        loop_lag_us=loop_lag_us,
        refused_plan_version=refused_version,
        refused_plan_reason=refused_reason,
        missing_keys=plan.missing_keys,
        refused_targets=plan.refused_targets,
        spend=tuple(one for one in spend if not is_policy_account(one.provider))[:_MAX_SPEND_LINES],
        epoch=spool.epoch,
    )
