"""Samples of the agent's scheduler in simulated time, whose provider answers at once or, in an outage, never; and the
share of failed requests by target in the answers of a collector.
"""

import asyncio
import selectors
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from fixtures.collector import Caller
from isochrone_agent.plan import probe_scheduler
from isochrone_agent.plan.credentials import Keyring
from isochrone_agent.plan.probe_scheduler import ProbeScheduler
from isochrone_agent.probe.prober import Prober
from isochrone_agent.probe.transport import Start
from isochrone_agent.spool.spool import AsyncSpool
from isochrone_client.client import ReadClient
from isochrone_wire.answers import Selection
from isochrone_wire.model import DAY_US, SECOND_US, Outcome, Plan, Sample, Spend, Target
from testdata.trust import system_trust

OUTAGE_US, CYCLE_US = 100 * SECOND_US, 600 * SECOND_US
OUTAGE_SHARE = OUTAGE_US / CYCLE_US
# The golden ratio spreads the starts of the outages evenly over the rounds.
_GOLDEN = 0.618034

Hangs = Callable[[int], bool]
"""Returns whether a request that is sent at an instant (microseconds) is never answered."""

TTFT_US = 300_000
CONNECT_US = 40_000


def in_outage(at: int, outage_us: int = OUTAGE_US) -> bool:
    """Return whether an instant is in an outage: one of `outage_us` in every 600 s, at another place in each."""
    cycle, place_us = divmod(at, CYCLE_US)
    return 0 <= place_us - cycle * _GOLDEN % 1 * (CYCLE_US - outage_us) < outage_us


class _SimulatedTime(asyncio.SelectorEventLoop):
    """An event loop whose clock advances at once to the next timer."""

    def __init__(self) -> None:
        selector = selectors.SelectSelector()
        select, self._now = selector.select, 0.0

        def advance(timeout: float | None = None) -> list[Any]:
            self._now += timeout or 0.0
            return select(0)

        selector.select = advance  # type: ignore[method-assign]  # instead of waiting
        super().__init__(selector)

    def time(self) -> float:
        """Return the simulated time in seconds."""
        return self._now


@dataclass(frozen=True, slots=True, kw_only=True)
class _Provider(Prober):
    """A prober of a simulated provider; `clock` is the simulated wall time."""

    hangs: Hangs
    clock: Callable[[], int]

    async def probe(
        self,
        target: Target,
        *,
        round_at: int,
        key: str | None = None,  # noqa: ARG002  # as `Prober.probe`
        stream: int = 0,  # noqa: ARG002
        start: Start | None = None,  # noqa: ARG002
    ) -> Sample:
        """Return the sample that a real probe would record. See `Prober.probe`."""
        dispatched_at, limit_us = self.clock(), target.workload.timeouts.first_token_us
        await asyncio.sleep(CONNECT_US / SECOND_US)
        hangs = self.hangs(self.clock())
        await asyncio.sleep((limit_us if hangs else TTFT_US) / SECOND_US)
        ttft_us = None if hangs else TTFT_US
        return Sample(
            target_id=target.id,
            round_at=round_at,
            outcome=Outcome.TIMED_OUT if hangs else Outcome.OK,
            dispatched_at=dispatched_at,
            tcp_us=CONNECT_US,
            ttft_us=ttft_us,
            ttfat_us=ttft_us,
            e2e_us=ttft_us,
            timeout_us=limit_us if hangs else None,
        )


@dataclass(slots=True)
class _Memory:
    samples: list[Sample] = field(default_factory=list)

    async def spend(self, _day_at: int) -> list[Spend]:
        return []

    async def record(self, sample: Sample, _spends: Sequence[Spend] = ()) -> None:
        self.samples.append(sample)


def record(
    targets: Sequence[Target], *, from_at: int, until_at: int, hangs: Hangs, concurrency: int = 100
) -> list[Sample]:
    """Return the samples of one agent that runs from one instant until another, in the order of their rounds."""
    spool = _Memory()

    async def run() -> None:
        loop = asyncio.get_running_loop()

        def clock() -> int:
            return from_at + round(loop.time() * SECOND_US)

        provider = _Provider(vantage="simulated", tls=system_trust(), hangs=hangs, clock=clock)
        rounds = ProbeScheduler(provider, cast(AsyncSpool, spool), Keyring(), concurrency=concurrency, clock=clock)
        rounds.apply_plan(Plan(version=1, baseline="us", targets=tuple(targets)))
        running = asyncio.create_task(rounds.run())
        await asyncio.sleep((until_at - from_at) / SECOND_US)
        running.cancel()
        await rounds.finish(0)

    with asyncio.Runner(loop_factory=_SimulatedTime) as runner, pytest.MonkeyPatch.context() as patch:
        # The simulated wall clock does not jump, so nothing has to look for jumps.
        patch.setattr(probe_scheduler, "MAX_SLEEP_US", DAY_US)
        runner.run(run())
    return sorted(spool.samples, key=lambda sample: (sample.round_at, sample.target_id))


Shares = dict[str, float]


def coverage_shares(call: Caller, selection: Selection) -> Shares:
    """Return the shares in the outcomes of `coverage`."""
    counts = {
        line.target: (line.outcomes.get(Outcome.TIMED_OUT, 0), line.outcomes.get(Outcome.OK, 0))
        for line in call.coverage(selection)
    }
    return {target: late / (late + ok) for target, (late, ok) in counts.items() if late + ok}


def leaderboard_shares(call: Caller, selection: Selection) -> Shares:
    """Return what the leaderboard's success leaves."""
    standings = call.leaderboard(selection).standings
    return {line.target: 1 - line.success.value for line in standings if line.success is not None}


def slo_shares(call: Caller, selection: Selection) -> Shares:
    """Return what the goodput under the latency target `web` leaves."""
    lines = call.latency_budgets(selection, "web")
    return {line.target: 1 - line.goodput.value for line in lines if line.goodput is not None}


def route_shares(address: str, region: str) -> Shares:
    """Return what the success of the members of all routes leaves."""
    with ReadClient(address) as client:
        entries = [entry for table in client.get_tables(region).tables for entry in table.entries]
    return {entry.target: 1 - entry.success.value for entry in entries if entry.success is not None}
