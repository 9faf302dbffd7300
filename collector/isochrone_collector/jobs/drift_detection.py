"""Drift detection: finds lasting changes of every series, and raises an alert for each. Runs on the leader.

Theory of operation. The recent rounds of each series are kept in memory, about 30 kB per series. The probes of new
batches are collected until their rounds are complete, including slow probes; then the medians of these rounds are
added. The rounds of regions with batches that this collector does not have in memory are read from the database. So are
rounds that were delivered later, every few minutes, and four weeks of each target that was not read yet: in portions
of time over all targets, because a page of the table holds the rows of some seconds. Series are computed in a thread, a
few at a time, so that ingest continues meanwhile.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from isochrone_collector.alerting.service import AlertService
from isochrone_collector.alerts.message import ChangedSeries, of_change
from isochrone_collector.analysis.drift import MAX_WEEKS, MIN_ROUNDS_AFTER, Change, SeriesState
from isochrone_collector.analysis.probe_records import MediansRow, Records, UnsettledRounds, joined
from isochrone_collector.errors import DatabaseSetBack
from isochrone_collector.names import display_names
from isochrone_collector.plans.service import Plans
from isochrone_collector.store import drift
from isochrone_collector.store import plans as plan_table
from isochrone_collector.store.batches import NewBatch, NewBatches, RecentBatches
from isochrone_collector.store.drift import WATCHED, SeriesKey
from isochrone_collector.store.postgres.pool import Database
from isochrone_collector.store.probe_queries import Scope
from isochrone_wire.answers import Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US

EVERY_US = 5 * SECOND_US
_DETECT_EVERY_US = 30 * SECOND_US

# By then the probes of a round are finished and delivered, except those with a long timeout.
_SETTLED_US = 90 * SECOND_US
_LATE_EVERY_US = 5 * MINUTE_US
_LATE_US = DAY_US
# After a longer pause another collector may have led, so that the states in memory are out of date.
_STALE_US = 10 * MINUTE_US
_SERIES_AT_ONCE = 32
# An hour that was read faster is followed by a larger portion. Series states keep the medians of hours.
_FAST_US = SECOND_US // 2

_log = structlog.get_logger()

Found = tuple[SeriesKey, Change, int]
"""A change of a series, and the distance in microseconds within which two changes are the same."""


@dataclass(eq=False, kw_only=True)
class DriftDetection:
    """The series of the plan in force, as far as they have been read."""

    database: Database
    plans: Plans
    alerting: AlertService
    clock: Callable[[], int]
    recent: RecentBatches = field(default_factory=RecentBatches)

    def __post_init__(self) -> None:
        self._new = NewBatches(self.recent)
        self._states: dict[SeriesKey, SeriesState] = {}
        self._read: set[int] = set()
        self._read_at = self._ended_at = self._late_at = 0
        self._unsettled = UnsettledRounds()
        self._settled_until = 0
        self._late: dict[str, int] = {}
        self._unrecorded: list[Found] = []

    async def run(self) -> None:
        """Add complete rounds; when it is time, read missing ones and record changes.

        The next run begins again after one that was cancelled, or found the database set back.
        """
        try:
            await self._run()
        except (asyncio.CancelledError, DatabaseSetBack):
            # A thread may have added rounds that are not noted as added, or the database may lack rounds that were.
            self._ended_at = 0
            raise

    async def _run(self) -> None:
        now_at = self.clock()
        if now_at < self._read_at or now_at - self._ended_at > _STALE_US:
            # Forget everything: another collector may have led meanwhile.
            self._read, self._read_at = set(), 0
            self._unsettled, self._settled_until, self._late = UnsettledRounds(), 0, {}
            async with self.database.connection() as connection:
                await self._new.begin(connection, now_at - _SETTLED_US)
        async with self.database.connection() as connection:
            batches = await self._new.read(connection)
        await asyncio.to_thread(self._keep, batches, now_at)
        is_due = now_at - self._read_at >= _DETECT_EVERY_US
        if is_due or not self._unsettled.incomplete(self._settled_until):
            # Often, so that each time takes little of a core.
            await self._settle(now_at)
        if is_due:
            await self._read_rounds(now_at)
            self._read_at = now_at
            waiting = [(key, state) for key, state in self._states.items() if state.has_new_rounds]
            for begin in range(0, len(waiting), _SERIES_AT_ONCE):
                self._unrecorded += await asyncio.to_thread(_changes_of, waiting[begin : begin + _SERIES_AT_ONCE])
            await self._record()
        self._ended_at = self.clock()

    def _keep(self, batches: Iterable[NewBatch], now_at: int) -> None:
        new: dict[str, list[Records]] = {}
        for batch in batches:
            if batch.oldest_round_at < self._settled_until and batch.newest_round_at >= now_at - _LATE_US:
                from_at = max(batch.oldest_round_at, now_at - _LATE_US)
                self._late[batch.region] = min(from_at, self._late.get(batch.region, from_at))
            if batch.records is None:
                self._unsettled.miss(batch.region, batch.newest_round_at)
            else:
                new.setdefault(batch.region, []).append(batch.records)
        for region, parts in new.items():
            self._unsettled.add(region, joined(parts))
        self._unsettled.limit()

    async def _settle(self, now_at: int) -> None:
        """Add the rounds that are complete by now, those with probes that are not in memory from the database."""
        # A clock that was set back must not make complete rounds incomplete: what is added to them is late.
        until_at = max(self._settled_until, now_at - _SETTLED_US)
        known, window = tuple(sorted(self._read)), Window(from_at=self._settled_until, until_at=until_at)
        if known and (regions := self._unsettled.incomplete(window.from_at)):
            await self._read_window(window, known, regions=regions)
        await asyncio.to_thread(lambda: self._add(self._unsettled.settle(window, known)))
        self._settled_until = window.until_at

    async def _read_rounds(self, now_at: int) -> None:
        """Read the rounds that were delivered late, and four weeks of the targets that were not read yet."""
        targets = {target.id for target in self.plans.current.targets} if self.plans.current else set()
        self._read.intersection_update(targets)
        self._states = {key: state for key, state in self._states.items() if key.target_id in self._read}
        if self._late and now_at - self._late_at >= _LATE_EVERY_US:
            while self._late:
                region, from_at = next(iter(self._late.items()))
                window = Window(from_at=from_at // HOUR_US * HOUR_US, until_at=self._settled_until)
                await self._read_window(window, tuple(sorted(self._read)), regions=(region,))
                del self._late[region]
            self._late_at = now_at
        if unread := targets - self._read:
            await self._read_history(tuple(sorted(unread)))

    async def _read_window(
        self, window: Window, targets: tuple[int, ...], *, regions: tuple[str, ...] | None = None
    ) -> None:
        """Read the rounds of a window for some targets from the database, one portion at a time, oldest first."""
        from_at, portion_us = window.from_at, HOUR_US
        while from_at < window.until_at:
            part = Window(from_at=from_at, until_at=min(from_at + portion_us, window.until_at))
            began_at = self.clock()
            async with self.database.connection() as connection:
                rows = await drift.medians(connection, Scope(window=part, target_ids=targets, regions=regions))
            is_fast = self.clock() - began_at < _FAST_US
            await asyncio.to_thread(self._add, rows)
            from_at, portion_us = part.until_at, min(2 * portion_us, DAY_US) if is_fast else HOUR_US

    async def _read_history(self, targets: tuple[int, ...]) -> None:
        until_at = self._settled_until
        from_at = (until_at - MAX_WEEKS * 7 * DAY_US) // HOUR_US * HOUR_US
        async with self.database.connection() as connection:
            known = await drift.known(connection, targets, from_at=from_at)
        self._states |= {key: SeriesState(changes) for key, changes in known.items()}
        await self._read_window(Window(from_at=from_at, until_at=until_at), targets)
        self._read.update(targets)

    def _add(self, rows: Iterable[MediansRow]) -> None:
        for row in rows:
            for metric in WATCHED:
                key = SeriesKey(target_id=row.target_id, region=row.region, metric=metric)
                self._states.setdefault(key, SeriesState()).add(row.rounds, row.values(metric), row.limited(metric))

    async def _record(self) -> None:
        """Record the changes found; one that cannot be recorded now is recorded by the next run."""
        if not self._unrecorded:
            return
        async with self.database.connection() as connection:
            rows = await plan_table.targets(connection)
        names = display_names({row.id: (row.name, row.last_version) for row in rows})
        of = {row.id: (names[row.id], row.provider, row.model) for row in rows}
        while self._unrecorded:
            key, change, tolerance_us = self._unrecorded[0]
            target, provider, model = of[key.target_id]
            series = ChangedSeries(target=target, provider=provider, model=model, region=key.region, metric=key.metric)
            async with self.database.transaction() as connection:
                now_at = self.clock()
                if await drift.record(connection, key, change, detected_at=now_at, tolerance_us=tolerance_us):
                    await self.alerting.raise_alert(connection, of_change(series, change, raised_at=now_at))
                    _log.info(
                        "drift.found",
                        target=series.target,
                        region=key.region,
                        metric=key.metric.value,
                        before=round(change.before, 3),
                        after=round(change.after, 3),
                        p_value=change.p_value,
                    )
            del self._unrecorded[0]


def _changes_of(states: Sequence[tuple[SeriesKey, SeriesState]]) -> list[Found]:
    return [(key, change, MIN_ROUNDS_AFTER * state.every_us) for key, state in states for change in state.detect()]
