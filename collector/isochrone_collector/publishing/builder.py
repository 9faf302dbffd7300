"""Builder of route tables: runs on the leader, as soon as samples that may change a table are stored.

Each time it adds the new probes to the probe cache, decides every route that they may affect, and publishes the
tables that changed in one transaction. Deciding is pure and runs in another thread.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import structlog

from isochrone_collector.analysis.history import NO_HISTORY, History, median_of
from isochrone_collector.plans.service import Plans
from isochrone_collector.routing import serialization
from isochrone_collector.routing.decision import decide
from isochrone_collector.routing.evidence import ProbeCache
from isochrone_collector.routing.inputs import Inputs
from isochrone_collector.routing.inputs_builder import build_inputs, members_of, rules_of
from isochrone_collector.routing.long_run import quantities
from isochrone_collector.routing.switch import State
from isochrone_collector.routing.table import build_table, needs_publishing
from isochrone_collector.store import hourly_levels, vantages
from isochrone_collector.store import routes as tables
from isochrone_collector.store.batches import NewBatches, RecentBatches, probes_of, probes_so_far
from isochrone_collector.store.postgres.pool import Database, execute
from isochrone_collector.store.probe_queries import Scope
from isochrone_collector.store.routes import NewTable
from isochrone_wire.answers import Metric, Window
from isochrone_wire.model import DAY_US, SECOND_US, Plan
from isochrone_wire.routes import RouteTable

_log = structlog.get_logger()

RETRY_US = SECOND_US
DELETE_OLD_EVERY_US = 3600 * SECOND_US

_POLL_US = SECOND_US
# They are made once a day.
_HISTORY_EVERY_US = 3600 * SECOND_US
# While more samples are about to be stored, those of this time are decided together.
_GATHER_S = 0.1
# Decisions may take so long before half of the time has to be left to others.
_BURST_S = 0.5

_AT_FIRST = State()
_AT_FIRST_TEXT = serialization.dump(_AT_FIRST)

Key = tuple[str, str]
# A target's id and the region that it was probed from.
Series = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Published:
    """A route in a region: its newest table, and the state that the next decision starts from, as a text, too."""

    table: RouteTable | None = None
    state: State = _AT_FIRST
    state_text: str = _AT_FIRST_TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """The result of one decision: the state from now on, and the row of the table if it has to be published."""

    key: Key
    known: _Published
    row: NewTable | None


@dataclass(eq=False, kw_only=True)
class RouteBuilder:
    """The builder of one collector: it calls `on_published` with its tables, in order, unless `is_paused`."""

    database: Database
    plans: Plans
    clock: Callable[[], int]
    code_version: str
    on_published: Callable[[list[RouteTable]], None]
    is_paused: Callable[[], bool] = lambda: False
    recent: RecentBatches = field(default_factory=RecentBatches)

    def __post_init__(self) -> None:
        self._stored = asyncio.Event()
        self._more_follow = False
        self._probe_cache = ProbeCache()
        self._new = NewBatches(self.recent)
        self._known: dict[Key, _Published] = {}
        self._generation = 0
        self._read_at = 0
        self._built_plan: bytes | None = None
        self._history: History = NO_HISTORY
        self._history_read_at = 0

    def wake(self, *, more_follow: bool = False) -> None:
        """Build now, or in a moment if `more_follow` that are being stored."""
        self._more_follow = more_follow
        self._stored.set()

    async def build(self) -> None:
        """Build tables while this collector leads, without end. Raises `DatabaseUnavailable` and `Conflict`: then
        it has to be called again, and loads what the database has.
        """
        await self._load_published()
        now_s = asyncio.get_running_loop().time
        rests_until_s = now_s()
        while True:
            self._stored.clear()
            began_s = now_s()
            if not self.is_paused():
                await self._build_once()
            # Deciding takes at most half of the time, except for a burst after a pause.
            rests_until_s = max(rests_until_s, began_s - _BURST_S) + 2 * (now_s() - began_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_US / SECOND_US):
                    await self._stored.wait()
                    # Wait for samples that are being stored, but not for long: under load there are always some.
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_GATHER_S):
                            while self._more_follow:
                                self._stored.clear()
                                await self._stored.wait()
                    await asyncio.sleep(rests_until_s - now_s())

    async def delete_old(self) -> None:
        """Delete expired tables, but never the newest of a route. Raises `DatabaseUnavailable`."""
        at = self.clock()
        async with self.database.connection() as connection:
            evidence_before, events_before = at - DAY_US, at - 90 * DAY_US
            await tables.delete_old(connection, evidence_before=evidence_before, events_before=events_before)

    async def _load_published(self) -> None:
        self._built_plan = None
        async with self.database.connection() as connection:
            self._generation = await tables.newest_generation(connection)
            rows = await tables.newest(connection)
        self._known = {}
        for row in rows:
            table, text = serialization.load(RouteTable, row.document), serialization.decompress(row.after)
            known = _Published(table=table, state=serialization.load(State, text), state_text=text)
            self._known[table.client_region, table.route] = known

    async def _build_once(self) -> None:
        plan = self.plans.current
        if plan is None or not plan.routes:
            return
        at = self.clock()
        # The windows of a plan may be longer than those of the previous one, and its targets may differ.
        is_new = plan.content_hash != self._built_plan or at < self._read_at
        touched = await self._read(plan, at, is_new=is_new)
        if is_new or at - self._history_read_at >= _HISTORY_EVERY_US:
            of_routes = (quantity for route in plan.routes for quantity in quantities(route.slo))
            wanted = list(dict.fromkeys((median_of(Metric.TTFT), *of_routes)))
            scope = Scope(window=Window(from_at=at, until_at=at), target_ids=tuple(one.id for one in plan.targets))
            async with self.database.connection() as connection:
                self._history = await hourly_levels.history_of(connection, scope, wanted)
            self._history_read_at = at
        if is_new:
            touched = {(target.id, region) for target in plan.targets for region in self._probe_cache.regions}
        drafts = await asyncio.to_thread(lambda: list(self._drafts(plan, touched, at)))
        await self._publish(drafts)
        self._built_plan = plan.content_hash

    async def _read(self, plan: Plan, at: int, *, is_new: bool) -> set[Series]:
        """Read the probes stored since the last read, or of the window; return the series they affect."""
        cache, before = self._probe_cache, len(self._probe_cache.regions)
        ids, from_at = [target.id for target in plan.targets], at - _longest_us(plan)
        if is_new:
            cache.clear()
            async with self.database.transaction() as connection:
                await execute(connection, "see_one_state")
                await self._new.begin(connection)
                region_of = {row.id: row.region for row in await vantages.vantages(connection)}
                stored = await probes_so_far(connection, target_ids=ids, from_at=from_at)
            await asyncio.to_thread(cache.add, stored, region_of)
        async with self.database.connection() as connection:
            batches = await self._new.read(connection)
            probes = await probes_of(connection, batches, target_ids=ids, from_at=from_at)
            regions = await vantages.regions(connection)
        self._read_at = at
        touched = await asyncio.to_thread(cache.add, probes, {batch.vantage_id: batch.region for batch in batches})
        cache.forget(before_at=from_at)
        for region in regions:
            cache.place_of(region)
        return touched | {(target.id, region) for target in plan.targets for region in cache.regions[before:]}

    def _drafts(self, plan: Plan, touched: set[Series], at: int) -> Iterator[_Draft]:
        """Decide each route in each region with new samples of its members; new tables get consecutive generations."""
        if not touched:
            return
        names = {target.id: target.name for target in plan.targets}
        probes = self._probe_cache.table(names, from_at=at - _longest_us(plan))
        generation = self._generation
        for route in plan.routes:
            members = {target.id for target in members_of(route, plan)}
            regions = {region for target_id, region in touched if target_id in members}
            found = build_inputs(route, plan, probes, regions=sorted(regions), at=at, history=self._history)
            for inputs in found if regions else ():
                draft = self._drafted(inputs, generation=generation + 1)
                generation += draft.row is not None
                yield draft

    def _drafted(self, inputs: Inputs, *, generation: int) -> _Draft:
        key = (inputs.client_region, inputs.route.name)
        known = self._known.get(key, _Published())
        decision = decide(inputs, known.state)
        after = serialization.dump(decision.state)
        # Exactly what a replay will read, down to the order of the keys.
        state = serialization.load(State, after)
        if not needs_publishing(known.table, decision, inputs):
            return _Draft(key=key, known=replace(known, state=state, state_text=after), row=None)
        inputs_text = serialization.dump(inputs)
        table = build_table(
            inputs, decision, generation=generation, code_version=self.code_version, inputs_text=inputs_text
        )
        row = NewTable(
            generation=generation,
            client_region=table.client_region,
            route=table.route,
            built_at=table.built_at,
            change=table.change.value,
            sentence=table.sentence,
            document=serialization.dump(table),
            inputs=serialization.compress(inputs_text),
            before=serialization.compress(known.state_text),
            after=serialization.compress(after),
        )
        return _Draft(key=key, known=_Published(table=table, state=state, state_text=after), row=row)

    async def _publish(self, drafts: list[_Draft]) -> None:
        rows = [draft.row for draft in drafts if draft.row is not None]
        if rows:
            async with self.database.transaction() as connection:
                await tables.publish(connection, rows)
            self._generation += len(rows)
            self.on_published([draft.known.table for draft in drafts if draft.row and draft.known.table])
        self._known |= {draft.key: draft.known for draft in drafts}
        for row in rows:
            _log.info(
                "route.published",
                generation=row.generation,
                region=row.client_region,
                route=row.route,
                change=row.change,
                reason=row.sentence,
            )


def _longest_us(plan: Plan) -> int:
    return max(rules_of(route, plan).window_us for route in plan.routes)
