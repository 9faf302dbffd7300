"""Incident detection: feeds new rounds to the watch over the targets, and records what happens, with an alert each.
Runs on the leader.

Theory of operation. The newest rounds of each series are kept in memory. A run takes the rounds of the batches that
were stored since the last one. The watch works in a thread, so that pushes do not wait for it. A new leader reads the
open incidents and the rounds of the last two hours, and so does a run after one that failed, because the transitions of
that run may not be recorded. The evidence ignores rounds that it has.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from isochrone_collector.alerting.service import AlertService
from isochrone_collector.alerts.failure_evidence import Fleet, WatchedTarget, round_results
from isochrone_collector.alerts.incidents import KINDS, IncidentTarget, IncidentWatch, Step, Transition, of_transition
from isochrone_collector.jobs.watches import FleetWatch
from isochrone_collector.plans.service import Plans
from isochrone_collector.store import incidents
from isochrone_collector.store import plans as plan_table
from isochrone_collector.store.batches import NewBatches, RecentBatches, probes_of
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Plan, Target
from isochrone_wire.operations import incident_name

EVERY_US = SECOND_US // 4
_LONGEST_PAUSE_US = 2 * SECOND_US
_RUNS_PER_ROUND = 8

_HISTORY_US = 120 * MINUTE_US
# Rounds that were delivered later are not read: a vantage that catches up is judged by its newest ones.
_LATE_US = 15 * MINUTE_US
_LATE_ROUNDS = 4
# After a longer pause another collector may have led.
_STALE_US = 2 * MINUTE_US
# An incident that merely goes on is recorded so often.
_RECORD_EVERY_US = MINUTE_US

_log = structlog.get_logger()


@dataclass(eq=False, kw_only=True)
class IncidentDetection:
    """The watch over the targets of the plan in force. `fleet` knows the vantages whose clocks are wrong."""

    database: Database
    plans: Plans
    alerting: AlertService
    fleet: FleetWatch
    clock: Callable[[], int]
    recent: RecentBatches = field(default_factory=RecentBatches)

    def __post_init__(self) -> None:
        self._new = NewBatches(self.recent)
        self._watch: IncidentWatch | None = None
        self._read_at = 0
        self._known: set[int] = set()
        self._worked: set[int] = set()
        self._recorded_at: dict[int, int] = {}
        self._described: dict[int, IncidentTarget] = {}
        self._plan_version = self._pause_us = 0

    async def run(self) -> None:
        """Read new rounds, and record the incidents that they open, continue and end. Raises `DatabaseUnavailable`."""
        plan, now_at = self.plans.current, self.clock()
        if plan is None:
            return
        if plan.version != self._plan_version:
            self._plan_version, self._described, self._pause_us = plan.version, {}, _pause_us(plan)
        elif 0 <= now_at - self._read_at < self._pause_us:
            return
        targets = [target for target in plan.targets if not target.paused]
        is_stale = not 0 <= now_at - self._read_at <= _STALE_US
        watch, self._watch = None if is_stale else self._watch, None
        async with self.database.connection() as connection:
            if watch is None:
                watch = await self._load(connection, targets, now_at)
            await self._read_new(connection, watch, targets, now_at)
            distrusted = await self.fleet.distrusted(connection, now_at=now_at)
            await self._find_worked(connection, watch, targets, now_at)
        self._read_at = now_at
        watch.evidence.keep({target.id for target in targets})
        fleet = self._fleet_of(plan, targets, distrusted)
        for transition in await asyncio.to_thread(watch.step, fleet, now_at=now_at):
            if not await self._record(transition, now_at):
                return
        self._watch = watch

    async def _load(self, connection: Connection, targets: list[Target], now_at: int) -> IncidentWatch:
        rows = await incidents.since(connection, now_at - DAY_US)
        # A collector of a later version may have led, and have found others.
        watch = IncidentWatch(row.state for row in rows if row.kind in KINDS)
        self._known = set()
        self._recorded_at = {}
        from_at = now_at - _late_us(targets, least_us=_HISTORY_US)
        await self._new.begin(connection)
        rounds = await incidents.rounds(connection, [target.id for target in targets], from_at=from_at)
        await asyncio.to_thread(watch.evidence.add, rounds)
        return watch

    async def _read_new(self, connection: Connection, watch: IncidentWatch, targets: list[Target], now_at: int) -> None:
        batches = await self._new.read(connection)
        ids, from_at = [target.id for target in targets], now_at - _late_us(targets, least_us=_LATE_US)
        probes = await probes_of(connection, batches, target_ids=ids, from_at=from_at)
        region_of = {batch.vantage_id: batch.region for batch in batches}
        await asyncio.to_thread(lambda: watch.evidence.add(round_results(probes, region_of)))

    async def _find_worked(
        self, connection: Connection, watch: IncidentWatch, targets: list[Target], now_at: int
    ) -> None:
        """Keep the set of the targets that were ever answered; a new target is looked up once."""
        self._worked |= {target.id for target in targets if watch.evidence.has_answered(target.id)}
        new = {target.id for target in targets} - self._known
        if unknown := new - self._worked:
            self._worked |= await incidents.answered(connection, unknown, now_at=now_at)
        self._known |= new

    def _fleet_of(self, plan: Plan, targets: list[Target], distrusted: frozenset[int]) -> Fleet:
        return Fleet(
            targets={
                target.id: WatchedTarget(
                    id=target.id,
                    name=target.name,
                    provider=target.provider,
                    every_us=target.every_us,
                    has_worked=target.id in self._worked,
                )
                for target in targets
            },
            control=next((target.id for target in targets if target.name == plan.control), 0),
            distrusted=distrusted,
        )

    async def _record(self, transition: Transition, now_at: int) -> bool:
        """Record what happened and raise its alert; return false if another collector has recorded something else."""
        incident = transition.incident
        is_due = now_at - self._recorded_at.get(incident.id, 0) >= _RECORD_EVERY_US
        if transition.step is Step.CONTINUED and not is_due:
            return True
        async with self.database.transaction() as connection:
            if incident.target_id not in self._described:
                self._described = {
                    row.id: IncidentTarget(name=row.name, provider=row.provider, model=row.model)
                    for row in await plan_table.targets(connection)
                }
            target = self._described[incident.target_id]
            failures = await incidents.summarised(connection, incident)
            if not await incidents.record(connection, incident, target.name, failures):
                return False
            message = of_transition(
                transition, target, classes=failures.classes, example=failures.example, raised_at=now_at
            )
            if message is not None:
                await self.alerting.raise_alert(connection, message)
        self._recorded_at[incident.id] = now_at
        if message is not None:
            _log.warning(
                f"incident.{transition.step}",
                id=incident_name(incident.id),
                kind=incident.kind.value,
                target=target.name,
                regions=sorted(incident.failing),
            )
        return True


def _pause_us(plan: Plan) -> int:
    """Return the pause between two runs, in microseconds: some runs for each of the shortest rounds."""
    shortest_us = min((target.every_us for target in plan.targets if not target.paused), default=MINUTE_US)
    # The job itself starts a little early or late.
    return min(shortest_us // _RUNS_PER_ROUND, _LONGEST_PAUSE_US) - EVERY_US // 2


def _late_us(targets: list[Target], *, least_us: int) -> int:
    """Return a time in microseconds within which each target has some rounds."""
    return max([least_us, *(_LATE_ROUNDS * target.every_us for target in targets)])
