"""Single samples: the newest of a selection, all of them, and those still to come.

Following reads batches by the instant of receipt, but they become visible only when committed, and commits are not in
the order of receipt. So each read starts `OVERLAP_US` before the end of the previous one, which is longer than a commit
may take, and batches already reported are skipped.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from isochrone_collector.errors import BadRequest, UnknownName
from isochrone_collector.queries.context import QueryContext, ResolvedSelection, resolve, resolve_names
from isochrone_collector.store import samples as sample_table
from isochrone_collector.store.samples import Arrival, Position, Record, parse_sample_name, position_of, stored_sample
from isochrone_wire.answers import Selection, Window
from isochrone_wire.fleet import SampleList, StoredSample
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US
from isochrone_wire.text import shortened

Row = TypeVar("Row")

OVERLAP_US = MINUTE_US
# After a pause, for example of a slow reader, the backlog is read in windows of this length.
STEP_US = 10 * MINUTE_US

MAX_SAMPLES = 10_000
DEFAULT_SAMPLES = 1_000
# A sample whose texts all have the maximum length takes 6 kB, so a portion stays below 4 MiB. Portions are small
# because encoding a message blocks the event loop.
_PORTION = 250
_PAGE = 2_000
_MAX_SHOWN = 80
_IDS = "samples have their ids in `isochrone samples --output json`"
_LEAST_STRIDE_US = SECOND_US
_MAX_AGE_US = 7 * DAY_US
_POLL_INTERVAL_S = 1.0
_KEEPALIVE_US = 10 * SECOND_US


class ArrivalCursor:
    """Cursor over batches received since `since_at`; every batch received before `resume_at` has been reported."""

    def __init__(self, since_at: int) -> None:
        self._since_at = since_at
        self._until_at = since_at
        self._seen: dict[tuple[int, int, int], int] = {}

    @property
    def resume_at(self) -> int:
        """The earliest instant of receipt that may still have unreported batches."""
        return max(self._since_at, self._until_at - OVERLAP_US)

    def next_window(self, now_at: int) -> Window:
        """Return the instants of receipt to read now; empty only if nothing can have arrived."""
        until_at = max(self._until_at, min(now_at, self._until_at + STEP_US))
        return Window(from_at=self.resume_at, until_at=until_at)

    def advance(self, found: Iterable[Arrival], window: Window) -> list[Arrival]:
        """Return the batches found in `window` that are new, and move the cursor to its end."""
        unseen = [arrival for arrival in found if arrival.key not in self._seen]
        self._until_at = window.until_at
        self._seen.update((arrival.key, arrival.received_at) for arrival in unseen)
        self._seen = {key: at for key, at in self._seen.items() if at >= self.resume_at}
        return unseen


def grouped(arrivals: Iterable[Arrival], *, samples: int) -> Iterable[list[Arrival]]:
    """Group batches, in order, into about `samples` samples per group, at least one batch each."""
    group: list[Arrival] = []
    weight = 0
    for arrival in arrivals:
        if group and weight + arrival.stored > samples:
            yield group
            group, weight = [], 0
        group.append(arrival)
        weight += arrival.stored
    if group:
        yield group


async def samples(context: QueryContext, selection: Selection, *, limit: int) -> SampleList:
    """Return the newest samples of a selection, newest first; `limit` is at most 10 000, 0 means 1 000."""
    if not 0 <= limit <= MAX_SAMPLES:
        raise BadRequest(f"limit {limit} is outside 0 to {MAX_SAMPLES}")
    async with context.database.connection() as connection:
        resolved = await resolve(connection, selection)
        records = await sample_table.newest(connection, resolved.scope, limit=limit or DEFAULT_SAMPLES)
    return SampleList(window=selection.window, samples=tuple(_values(records, resolved)))


async def one_sample(context: QueryContext, name: str) -> SampleList:
    """Return the sample with this id, in the window of its round. Raises `UnknownName`."""
    position = parse_sample_name(name)
    if position is None:
        raise UnknownName(_not_an_id(name), hint=_IDS)
    window = Window(from_at=position.round_at, until_at=position.round_at + 1)
    async with context.database.connection() as connection:
        resolved = await resolve_names(connection, Selection(window=window))
        records = await sample_table.at(connection, position)
    if not records:
        raise UnknownName(f"there is no sample {name}, perhaps no longer", hint=_IDS)
    return SampleList(window=window, samples=tuple(_values(records, resolved)))


async def export(
    context: QueryContext, selection: Selection, *, newest: int = 0, after: str = ""
) -> AsyncGenerator[list[StoredSample], None]:
    """Yield every sample of a selection in portions, oldest round first, or those after the sample with the id `after`
    in this order; or the `newest` ones, newest first. The first portion, which may be empty, comes at once.

    Samples are read page by page, so that neither side holds more than a page and a slow reader does not hold a
    database connection. A sample stored meanwhile is included if its round was not read yet. Raises `BadRequest` and
    `UnknownName`.
    """
    position = parse_sample_name(after)
    if after and (newest or position is None):
        raise BadRequest("an export of the newest samples cannot be continued" if newest else _not_an_id(after))
    if newest:
        found = await samples(context, selection, limit=newest)
        yield []
        for newest_first in _portions(found.samples):
            yield [*newest_first]
        return
    async with context.database.connection() as connection:
        resolved = await resolve(connection, selection)
    yield []
    async for records in _pages(context, resolved, after=position):
        for portion in _portions(records):
            yield _values(portion, resolved)


async def follow(context: QueryContext, selection: Selection, *, since_at: int = 0) -> AsyncGenerator[SampleList, None]:
    """Yield samples received from `since_at` (0: now) on, and empty portions as keepalives. Raises `BadRequest`."""
    now_at = context.clock()
    if since_at and now_at - since_at > _MAX_AGE_US:
        raise BadRequest(f"since_at is more than {_MAX_AGE_US // DAY_US} days ago; export older samples instead")
    cursor, sent_at = ArrivalCursor(since_at or now_at), now_at - _KEEPALIVE_US
    while True:
        resume_at, now_at = cursor.resume_at, context.clock()
        window = cursor.next_window(now_at)
        async for found in _arrived(context, selection, cursor, window):
            for portion in _portions(found):
                sent_at = now_at
                yield SampleList(samples=tuple(portion), resume_at=resume_at)
        if now_at - sent_at >= _KEEPALIVE_US:
            sent_at = now_at
            yield SampleList(resume_at=cursor.resume_at)
        if window.until_at >= now_at:
            await asyncio.sleep(_POLL_INTERVAL_S)


async def _arrived(
    context: QueryContext, selection: Selection, cursor: ArrivalCursor, window: Window
) -> AsyncIterator[list[StoredSample]]:
    """Yield the samples of new batches, about a page at a time."""
    async with context.database.connection() as connection:
        # Resolved each time: a new plan may have new targets that match a pattern.
        resolved = await resolve_names(connection, selection)
        fresh = cursor.advance(await sample_table.arrivals(connection, window, resolved.scope.regions), window)
    for group in grouped(fresh, samples=_PAGE):
        async with context.database.connection() as connection:
            records = await sample_table.of_batches(connection, resolved.scope, group)
        yield _values(records, resolved)


async def _pages(
    context: QueryContext, resolved: ResolvedSelection, *, after: Position | None
) -> AsyncIterator[list[Record]]:
    """Yield the records of a scope after a position. The span of a page is adapted to the fill of the page before."""
    window = resolved.scope.window
    position, stride_us = Position(round_at=window.from_at), MINUTE_US
    if after is not None and after.round_at >= window.from_at:
        position = after
    while position.round_at < window.until_at:
        until_at = min(position.round_at + stride_us, window.until_at)
        part = replace(resolved.scope, window=Window(from_at=position.round_at, until_at=until_at))
        async with context.database.connection() as connection:
            records = await sample_table.after(connection, part, position, limit=_PAGE)
        full = len(records) == _PAGE
        position = position_of(records[-1]) if full else Position(round_at=until_at)
        stride_us = max(_LEAST_STRIDE_US, stride_us // 2) if full else 2 * stride_us
        yield records


def _not_an_id(name: str) -> str:
    return f"{shortened(name, _MAX_SHOWN)!r} is not the id of a sample"


def _values(records: Sequence[Record], resolved: ResolvedSelection) -> list[StoredSample]:
    return [stored_sample(record, target=resolved.names[record["target_id"]]) for record in records]


def _portions(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for start in range(0, len(rows), _PORTION):
        yield rows[start : start + _PORTION]
