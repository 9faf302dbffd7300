"""Drift detection: finds lasting changes of every series, and raises an alert for each. Runs on the leader.

Theory of operation. The recent rounds of each series are kept in memory, about 20 kB per series, so that a run reads
only the rounds that were completed since the last run, including their slow probes. Rounds that are delivered later are
found through the ledger, every few minutes. A target that was not read yet is read once, a week back.

All reading is done in portions of time over all targets: a page of the table holds the rows of some seconds, so each
page is read once. The server rests while it reads, so that the leader does not slow down other work on the database:
the first read of fresh rows makes the server write their pages again. Series are computed in a thread, a few at a time,
so that ingest continues meanwhile.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import structlog

from isochrone_collector.alerts.message import ChangedSeries, of_change
from isochrone_collector.analysis.drift.change_detection import MIN_ROUNDS_AFTER, Change
from isochrone_collector.analysis.drift.seasonality import HOUR_US
from isochrone_collector.analysis.drift.series_state import MAX_DAYS, SeriesState
from isochrone_collector.jobs.alert_delivery import AlertDelivery
from isochrone_collector.names import display_names
from isochrone_collector.plans.service import Plans
from isochrone_collector.store import drift
from isochrone_collector.store import plans as plan_table
from isochrone_collector.store.drift import WATCHED, MediansRow, SeriesKey
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_collector.store.probe_queries import Scope
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US

EVERY_US = 30 * SECOND_US

# By then the probes of a round are finished and delivered, except those with a long timeout.
_SETTLED_US = 75 * SECOND_US
# A batch that took longer may have been committed after its rounds were read: a commit may wait, and clocks differ.
_IN_TIME_US = _SETTLED_US - 30 * SECOND_US
_LATE_EVERY_US = 5 * MINUTE_US
# A batch that was received shortly before the last run may have been committed after it.
_COMMITTING_US = MINUTE_US
_LATE_US = DAY_US
# After a longer pause another collector may have led, so that the states in memory are out of date.
_STALE_US = 10 * MINUTE_US
_SERIES_AT_ONCE = 32
# For this part of a run the server rests between rows, unless there is so much to read that it would fall behind.
_RESTING_US = MINUTE_US
_BEHIND_US = 3 * EVERY_US
# A portion that was read faster is followed by a larger one, and one that was read slower by a smaller one.
_FAST_US, _SLOW_US = SECOND_US // 2, 2 * SECOND_US

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class _PortionSizes:
    """Bounds of the span of rounds that is read at once, in microseconds: a multiple of the minimum."""

    min_us: int
    max_us: int

    def after(self, portion_us: int, took_us: int) -> int:
        """Return the next portion after one of `portion_us` that the server took `took_us` to read."""
        if took_us > _SLOW_US:
            return max(portion_us * _SLOW_US // took_us // self.min_us * self.min_us, self.min_us)
        return min(portion_us * 2, self.max_us) if took_us < _FAST_US else portion_us


# A shorter portion would read the same pages repeatedly; a longer one might not fit the server's memory under load.
_NEW = _PortionSizes(min_us=3 * SECOND_US, max_us=3 * SECOND_US)
# Old rounds are read by whole hours, because series states keep the medians of hours.
_OLD = _PortionSizes(min_us=HOUR_US, max_us=DAY_US)

Found = tuple[SeriesKey, Change, int]
"""A change of a series, and the distance in microseconds within which two changes are the same."""


class DriftDetection:
    """The series of the plan in force, as far as they have been read."""

    def __init__(self, *, database: Database, plans: Plans, alerting: AlertDelivery, clock: Callable[[], int]) -> None:
        self._database = database
        self._plans = plans
        self._alerting = alerting
        self._clock = clock
        self._states: dict[SeriesKey, SeriesState] = {}
        self._read: set[int] = set()
        self._read_at = 0
        self._ended_at = 0
        self._late_at = 0
        self._resting_until = 0
        self._unrecorded: list[Found] = []

    async def run(self) -> None:
        """Read new rounds, and record the changes found in them, with an alert each."""
        now_at = self._clock()
        targets = {target.id for target in self._plans.current.targets} if self._plans.current else set()
        self._forget(targets, now_at=now_at)
        self._resting_until = now_at + _RESTING_US
        if self._read:
            await self._read_new(now_at)
        else:
            self._late_at = now_at
        self._read_at = now_at
        if unread := targets - self._read:
            await self._read_history(tuple(sorted(unread)))
        await self._detect()
        await self._record()
        self._ended_at = self._clock()

    def _forget(self, targets: Collection[int], *, now_at: int) -> None:
        """Forget targets that are no longer measured, and all of them if another collector may have led meanwhile."""
        if now_at < self._read_at or now_at - self._ended_at > _STALE_US:
            targets = ()
        self._read.intersection_update(targets)
        self._states = {key: state for key, state in self._states.items() if key.target_id in self._read}

    async def _read_new(self, now_at: int) -> None:
        new = Window(from_at=self._read_at - _SETTLED_US, until_at=now_at - _SETTLED_US)
        if now_at - self._read_at > _BEHIND_US:
            self._resting_until = now_at
        await self._read_window(new, tuple(sorted(self._read)), portions=_NEW)
        if now_at - self._late_at >= _LATE_EVERY_US:
            await self._read_late(now_at)

    async def _read_late(self, now_at: int) -> None:
        rounds = Window(from_at=now_at - _LATE_US, until_at=now_at - _SETTLED_US)
        received_at = self._late_at - _COMMITTING_US
        async with self._database.connection() as connection:
            found = await drift.late(connection, received_at=received_at, usual_us=_IN_TIME_US, rounds=rounds)
        for late in found:
            from_at = max(late.oldest_round_at, rounds.from_at)
            if from_at < rounds.until_at:
                window = Window(from_at=from_at // HOUR_US * HOUR_US, until_at=rounds.until_at)
                targets = tuple(sorted(self._read))
                await self._read_window(window, targets, portions=_OLD, regions=(late.region,))
        self._late_at = now_at

    async def _read_window(
        self,
        window: Window,
        targets: tuple[int, ...],
        *,
        portions: _PortionSizes,
        regions: tuple[str, ...] | None = None,
    ) -> None:
        """Read the rounds of a window for some targets, one portion at a time, oldest first."""
        from_at, portion_us = window.from_at, portions.min_us
        while from_at < window.until_at:
            part = Window(from_at=from_at, until_at=min(from_at + portion_us, window.until_at))
            began_at = self._clock()
            async with self._database.connection() as connection:
                scope = Scope(window=part, target_ids=targets, regions=regions)
                rows = await drift.medians(connection, scope, resting_us=max(0, self._resting_until - began_at))
            took_us = self._clock() - began_at
            await asyncio.to_thread(self._add, rows)
            from_at, portion_us = part.until_at, portions.after(portion_us, took_us)

    async def _read_history(self, targets: tuple[int, ...]) -> None:
        until_at = self._read_at - _SETTLED_US
        from_at = (until_at - MAX_DAYS * DAY_US) // HOUR_US * HOUR_US
        async with self._database.connection() as connection:
            known = await drift.known(connection, targets, from_at=from_at)
        self._states |= {key: SeriesState(changes) for key, changes in known.items()}
        await self._read_window(Window(from_at=from_at, until_at=until_at), targets, portions=_OLD)
        self._read.update(targets)

    def _add(self, rows: Iterable[MediansRow]) -> None:
        for row in rows:
            for metric in WATCHED:
                key = SeriesKey(target_id=row.target_id, region=row.region, metric=metric)
                self._states.setdefault(key, SeriesState()).add(row.rounds, row.values(metric), row.limited(metric))

    async def _detect(self) -> None:
        waiting = [(key, state) for key, state in self._states.items() if state.has_new_rounds]
        for begin in range(0, len(waiting), _SERIES_AT_ONCE):
            self._unrecorded += await asyncio.to_thread(_changes_of, waiting[begin : begin + _SERIES_AT_ONCE])

    async def _record(self) -> None:
        """Record the changes found; one that cannot be recorded now is recorded by the next run."""
        if not self._unrecorded:
            return
        async with self._database.connection() as connection:
            rows = await plan_table.targets(connection)
        names = display_names({row.id: (row.name, row.last_version) for row in rows})
        of = {row.id: (names[row.id], row.provider, row.model) for row in rows}
        while self._unrecorded:
            key, change, tolerance_us = self._unrecorded[0]
            target, provider, model = of[key.target_id]
            series = ChangedSeries(target=target, provider=provider, model=model, region=key.region, metric=key.metric)
            async with self._database.transaction() as connection:
                await self._record_one(connection, key, change, series, tolerance_us)
            del self._unrecorded[0]

    async def _record_one(
        self, connection: Connection, key: SeriesKey, change: Change, series: ChangedSeries, tolerance_us: int
    ) -> None:
        now_at = self._clock()
        if await drift.record(connection, key, change, detected_at=now_at, tolerance_us=tolerance_us):
            await self._alerting.raise_alert(connection, of_change(series, change, raised_at=now_at))
            _log.info(
                "drift.found",
                target=series.target,
                region=key.region,
                metric=key.metric.value,
                before=round(change.before, 3),
                after=round(change.after, 3),
                p_value=change.p_value,
            )


def _changes_of(states: Sequence[tuple[SeriesKey, SeriesState]]) -> list[Found]:
    return [(key, change, MIN_ROUNDS_AFTER * state.every_us) for key, state in states for change in state.detect()]
