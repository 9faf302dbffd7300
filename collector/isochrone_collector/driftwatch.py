"""Watches every series for lasting changes, and tells of those it finds. Done by the collector that leads.

Theory of operation. What was seen of each series lately is kept in memory (`track`), about 20 kB each, so that a look
reads only what came since the last one: the rounds of the last minutes again, because the medians of rounds move while
probes come in, and what regions delivered late. A target that was not read yet is read once, a week back. All reading
is done in portions with rests in between (`pacing`), so that a leader does not keep the database from others. Series
are computed in a thread, some at a time, so that ingest goes on meanwhile.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence

import structlog

from isochrone_collector.alerting import Alerting
from isochrone_collector.drift import LEAST_AFTER, Change
from isochrone_collector.names import display_names
from isochrone_collector.notice import Changed, of_change
from isochrone_collector.pacing import Pace
from isochrone_collector.plans import Plans
from isochrone_collector.store import drift
from isochrone_collector.store import plans as plan_table
from isochrone_collector.store.drift import WATCHED, MediansRow, SeriesKey
from isochrone_collector.store.pool import Connection, Database
from isochrone_collector.store.readers import Scope
from isochrone_collector.track import KEPT_DAYS, Track
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US

EVERY_US = 30 * SECOND_US

# By then most probes of a round have ended and come in.
_SETTLED_US = 15 * SECOND_US
_OVERLAP_US = 5 * MINUTE_US
# What was received at the same time as the last look was read may have been committed after it.
_COMMITTING_US = MINUTE_US
_LATE_US = DAY_US
# Another collector may have led meanwhile: what is remembered is not what is known any more.
_STALE_US = 10 * MINUTE_US
_AT_ONCE = 32
# A fifth of the time is for reading, unless reading is behind. Targets at once, to begin with.
_RESTS = 4.0
_RESTS_AT_MOST_US, _RESTS_AT_FIRST_US = 2 * MINUTE_US, 5 * MINUTE_US
_TARGETS_AT_ONCE = 8

_log = structlog.get_logger()

Found = tuple[SeriesKey, Change, int]
"""A change of a series, and how far apart (microseconds) two that are the same may begin."""


class DriftWatch:
    """The series of the plan in force, as far as they were read."""

    def __init__(self, *, database: Database, plans: Plans, alerting: Alerting, clock: Callable[[], int]) -> None:
        self._database = database
        self._plans = plans
        self._alerting = alerting
        self._clock = clock
        self._tracks: dict[SeriesKey, Track] = {}
        self._read: set[int] = set()
        self._looked_at = 0
        self._unrecorded: list[Found] = []

    async def look(self) -> None:
        """Read what is new, and record the changes in it, with an alert each."""
        now_at = self._clock()
        targets = {target.id for target in self._plans.current.targets} if self._plans.current else set()
        self._forget(targets, now_at=now_at)
        if self._read:
            await self._read_on(now_at)
        self._looked_at = now_at
        pace = Pace(at_once=1, rests=_RESTS, at_most_us=_RESTS_AT_FIRST_US)
        for target_id in sorted(targets - self._read):
            await self._read_past(target_id, pace)
        await self._seek()
        await self._record()

    def _forget(self, targets: Collection[int], *, now_at: int) -> None:
        """Forget what is not measured any more, and everything after others may have watched instead."""
        if not 0 <= now_at - self._looked_at <= _STALE_US:
            targets = ()
        self._read.intersection_update(targets)
        self._tracks = {key: track for key, track in self._tracks.items() if key.target_id in self._read}

    async def _read_on(self, now_at: int) -> None:
        since_at = self._looked_at - _OVERLAP_US
        pace = Pace(at_once=_TARGETS_AT_ONCE, rests=_RESTS, at_most_us=_RESTS_AT_MOST_US)
        await self._read_window(Window(from_at=since_at, until_at=max(now_at - _SETTLED_US, since_at)), pace)
        async with self._database.connection() as connection:
            found = await drift.late(
                connection,
                received_at=self._looked_at - _COMMITTING_US,
                before_at=since_at,
                from_at=now_at - _LATE_US,
            )
        for late in found:
            old = Window(from_at=max(late.oldest_round_at, now_at - _LATE_US), until_at=since_at)
            await self._read_window(old, pace, late.region)

    async def _read_window(self, window: Window, pace: Pace, *regions: str) -> None:
        """Read what is watched, of all regions where none is named."""
        waiting = sorted(self._read)
        while waiting:
            some, waiting = waiting[: pace.at_once], waiting[pace.at_once :]
            began_at = self._clock()
            scope = Scope(window=window, target_ids=tuple(some), regions=regions or None)
            async with self._database.connection() as connection:
                rows = await drift.medians(connection, scope)
            await asyncio.to_thread(self._take, rows)
            await asyncio.sleep(pace.rest_us(self._clock() - began_at) / SECOND_US)

    async def _read_past(self, target_id: int, pace: Pace) -> None:
        began_at = self._clock()
        past = Window(from_at=began_at - KEPT_DAYS * DAY_US, until_at=began_at - _SETTLED_US)
        async with self._database.connection() as connection:
            known = await drift.known(connection, target_id, from_at=past.from_at)
            rows = await drift.medians(connection, Scope(window=past, target_ids=(target_id,)))
        self._tracks |= {key: Track(changes) for key, changes in known.items()}
        await asyncio.to_thread(self._take, rows)
        self._read.add(target_id)
        await asyncio.sleep(pace.rest_us(self._clock() - began_at) / SECOND_US)

    def _take(self, rows: Iterable[MediansRow]) -> None:
        for row in rows:
            for metric in WATCHED:
                key = SeriesKey(target_id=row.target_id, region=row.region, metric=metric)
                self._tracks.setdefault(key, Track()).take(row.rounds, row.values(metric), row.limited(metric))

    async def _seek(self) -> None:
        waiting = [(key, track) for key, track in self._tracks.items() if track.has_fresh]
        for begin in range(0, len(waiting), _AT_ONCE):
            self._unrecorded += await asyncio.to_thread(_changes_of, waiting[begin : begin + _AT_ONCE])

    async def _record(self) -> None:
        """Record what was found; what cannot be recorded now is recorded with the next look."""
        if not self._unrecorded:
            return
        async with self._database.connection() as connection:
            rows = await plan_table.targets(connection)
        names = display_names({row.id: (row.name, row.last_version) for row in rows})
        of = {row.id: (names[row.id], row.provider, row.model) for row in rows}
        while self._unrecorded:
            key, change, tolerance_us = self._unrecorded[0]
            target, provider, model = of[key.target_id]
            whose = Changed(target=target, provider=provider, model=model, region=key.region, metric=key.metric)
            async with self._database.transaction() as connection:
                await self._record_one(connection, key, change, whose, tolerance_us)
            del self._unrecorded[0]

    async def _record_one(
        self, connection: Connection, key: SeriesKey, change: Change, whose: Changed, tolerance_us: int
    ) -> None:
        now_at = self._clock()
        if await drift.record(connection, key, change, detected_at=now_at, tolerance_us=tolerance_us):
            await self._alerting.raise_(connection, of_change(whose, change, raised_at=now_at))
            _log.info(
                "drift.found",
                target=whose.target,
                region=key.region,
                metric=key.metric.value,
                before=round(change.before, 3),
                after=round(change.after, 3),
                p_value=change.p_value,
            )


def _changes_of(tracks: Sequence[tuple[SeriesKey, Track]]) -> list[Found]:
    return [(key, change, LEAST_AFTER * track.every_us) for key, track in tracks for change in track.look()]
