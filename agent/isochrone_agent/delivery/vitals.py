"""How the agent is doing, gathered for every push."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from isochrone_agent.clock import now_at, read_clocks
from isochrone_agent.spool.async_spool import AsyncSpool
from isochrone_wire import __version__
from isochrone_wire.model import SECOND_US, Vitals, day_of

HEARTBEAT_US = 15 * SECOND_US

_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What the rounds and the plan say of themselves: the version that runs (0 for none), planned rounds that passed
    before they could be begun, and the plan this agent will not run, with the reason.
    """

    plan_version: int = 0
    rounds_missed: int = 0
    refused_plan: tuple[int, str] | None = None


class LoopLag:
    """How late the event loop is at worst, in microseconds, since somebody asked."""

    def __init__(self) -> None:
        self._worst_us = 0

    async def run(self) -> None:
        """Look four times a second, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LOOK_SECONDS
            await asyncio.sleep(_LOOK_SECONDS)
            self._worst_us = max(self._worst_us, round((loop.time() - due) * SECOND_US))

    def take_us(self) -> int:
        """The worst since the last call."""
        worst_us, self._worst_us = self._worst_us, 0
        return worst_us


async def gather_vitals(spool: AsyncSpool, conditions: Callable[[], Conditions], *, loop_lag_us: int) -> Vitals:
    """Everything at one instant, as far as there is one. Raises `SpoolError`."""
    stats = await spool.stats()
    at = now_at()
    spend = await spool.spend(day_of(at))
    clock = spool.offset_estimator.estimate(lead_us=read_clocks().lead_us)
    now = conditions()
    refused_version, refused_reason = now.refused_plan or (None, None)
    return Vitals(
        agent_version=__version__,
        plan_version=now.plan_version,
        spool_depth=stats.waiting,
        spool_oldest_at=stats.oldest_at,
        dropped=stats.dropped,
        next_heartbeat_us=HEARTBEAT_US,
        # The collector's ledger of this epoch knows nothing of what was stored under an earlier one.
        finished=stats.finished - stats.earlier,
        stored=stats.stored - stats.earlier,
        quarantined=stats.quarantined,
        rounds_missed=now.rounds_missed,
        clock_offset_us=clock.offset_us if clock else None,
        clock_uncertainty_us=clock.uncertainty_us if clock else None,
        loop_lag_us=loop_lag_us,
        refused_plan_version=refused_version,
        refused_plan_reason=refused_reason,
        spend=spend,
        epoch=spool.epoch,
    )
