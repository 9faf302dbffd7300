"""Single samples: the newest of a selection, all of them, and those still to come.

Following reads the new batches in the order of the database's transactions. A stream that broke continues at an instant
of receipt, before which all batches of all collectors, whose clocks may differ, have been reported: `RESUME_US` ago.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

import structlog

from isochrone_collector.errors import BadRequest, DatabaseSetBack, UnknownName
from isochrone_collector.queries.context import QueryContext, ResolvedSelection, resolve, resolve_names
from isochrone_collector.store import sample_filter
from isochrone_collector.store import samples as sample_table
from isochrone_collector.store.batches import NewBatch, NewBatches
from isochrone_collector.store.samples import (
    Position,
    Record,
    SampleFilter,
    parse_sample_name,
    position_of,
    stored_sample,
)
from isochrone_collector.store.vantages import AHEAD_US
from isochrone_wire.answers import Selection, Window
from isochrone_wire.fleet import SampleList, StoredSample
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US
from isochrone_wire.text import shortened

Row = TypeVar("Row")

_log = structlog.get_logger()

RESUME_US = AHEAD_US + 2 * MINUTE_US
"""The difference of two clocks, and the time from a receipt to the end of its commit."""

# After a pause, for example of a slow reader, the backlog is read in portions of so many batches.
_MOST_BATCHES = 10_000

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
_KEEPALIVE_US = 10 * SECOND_US


def grouped(batches: Iterable[NewBatch], *, samples: int) -> Iterable[list[NewBatch]]:
    """Group batches, in order, into about `samples` samples per group, at least one batch each."""
    group: list[NewBatch] = []
    weight = 0
    for batch in batches:
        if group and weight + batch.stored > samples:
            yield group
            group, weight = [], 0
        group.append(batch)
        weight += batch.stored
    if group:
        yield group


async def samples(context: QueryContext, selection: Selection, *, limit: int, matching: str = "") -> SampleList:
    """Return the newest samples of a selection that pass the filter `matching`, newest first; `limit` is at most
    `MAX_SAMPLES`, 0 means 1 000. Raises `BadRequest` and `UnknownName`.
    """
    async with context.database.connection() as connection:
        resolved = await resolve(connection, selection)
        of = _filter(matching, resolved)
        records = await sample_table.newest(connection, resolved.scope, limit=limit or DEFAULT_SAMPLES, of=of)
    return SampleList(window=selection.window, samples=tuple(_values(records, resolved)))


async def one_sample(context: QueryContext, id: str) -> SampleList:  # noqa: A002  # the name in the path
    """Return the sample with this id, in the window of its round. Raises `UnknownName`."""
    position = parse_sample_name(id)
    if position is None:
        raise UnknownName(_not_an_id(id), hint=_IDS)
    window = Window(from_at=position.round_at, until_at=position.round_at + 1)
    async with context.database.connection() as connection:
        resolved = await resolve_names(connection, Selection(window=window))
        records = await sample_table.at(connection, position)
    if not records:
        raise UnknownName(f"there is no sample {id}, perhaps no longer", hint=_IDS)
    return SampleList(window=window, samples=tuple(_values(records, resolved)))


async def export(
    context: QueryContext, selection: Selection, *, newest: int = 0, after: str = "", matching: str = ""
) -> AsyncGenerator[list[StoredSample], None]:
    """Yield every sample of a selection that passes the filter `matching` in portions, oldest round first, or those
    after the sample with the id `after` in this order; or the `newest` ones, newest first. The first portion, which may
    be empty, comes at once.

    Samples are read page by page, so that neither side holds more than a page and a slow reader does not hold a
    database connection. A sample stored meanwhile is included if its round was not read yet. Raises `BadRequest` and
    `UnknownName`.
    """
    position = parse_sample_name(after)
    if after and (newest or position is None):
        raise BadRequest("an export of the newest samples cannot be continued" if newest else _not_an_id(after))
    if newest:
        found = await samples(context, selection, limit=newest, matching=matching)
        yield []
        for newest_first in _portions(found.samples):
            yield [*newest_first]
        return
    async with context.database.connection() as connection:
        resolved = await resolve(connection, selection)
    of = _filter(matching, resolved)
    yield []
    async for records in _pages(context, resolved, after=position, of=of):
        for portion in _portions(records):
            yield _values(portion, resolved)


async def follow(
    context: QueryContext, selection: Selection, *, since_at: int = 0, matching: str = ""
) -> AsyncGenerator[SampleList, None]:
    """Yield samples that pass the filter `matching`, received from `since_at` (0: now) on, and empty portions as
    keepalives. Raises `BadRequest`.
    """
    began_at = context.clock()
    if since_at and began_at - since_at > _MAX_AGE_US:
        raise BadRequest(f"since_at is more than {_MAX_AGE_US // DAY_US} days ago; export older samples instead")
    new = NewBatches()
    async with context.database.connection() as connection:
        await new.begin(connection, since_at or None)
    from_at, sent_at = since_at or began_at, began_at - _KEEPALIVE_US
    while True:
        now_at = context.clock()
        resume_at = max(from_at, now_at - RESUME_US)
        batches, resolved = await _arrived(context, selection, new)
        of = _filter(matching, resolved)
        for group in grouped(batches, samples=_PAGE):
            async with context.database.connection() as connection:
                records = await sample_table.of_batches(connection, resolved.scope, group, of)
            for portion in _portions([record for record in records if record["received_at"] >= since_at]):
                sent_at = now_at
                yield SampleList(samples=tuple(_values(portion, resolved)), resume_at=resume_at)
        if now_at - sent_at >= _KEEPALIVE_US:
            sent_at = now_at
            yield SampleList(resume_at=resume_at)
        if len(batches) < _MOST_BATCHES:
            await asyncio.sleep(1.0)


async def _arrived(
    context: QueryContext, selection: Selection, new: NewBatches
) -> tuple[list[NewBatch], ResolvedSelection]:
    """Return new batches in order, and the selection: a new plan may have new targets that match a pattern."""
    async with context.database.connection() as connection:
        resolved = await resolve_names(connection, selection)
        try:
            batches = await new.read(connection, most=_MOST_BATCHES)
        except DatabaseSetBack as error:
            _log.warning("samples.follow_again", reason=str(error))
            await new.begin(connection)
            return [], resolved
    regions = resolved.scope.regions
    found = [batch for batch in batches if regions is None or batch.region in regions]
    return sorted(found, key=attrgetter("transaction_id", "key")), resolved


async def _pages(
    context: QueryContext, resolved: ResolvedSelection, *, after: Position | None, of: SampleFilter
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
            records = await sample_table.after(connection, part, position, limit=_PAGE, of=of)
        full = len(records) == _PAGE
        position = position_of(records[-1]) if full else Position(round_at=until_at)
        stride_us = max(_LEAST_STRIDE_US, stride_us // 2) if full else 2 * stride_us
        yield records


def _filter(text: str, resolved: ResolvedSelection) -> SampleFilter:
    return sample_filter.parse(text, targets=resolved.names, regions=resolved.known_regions)


def _not_an_id(name: str) -> str:
    return f"{shortened(name, _MAX_SHOWN)!r} is not the id of a sample"


def _values(records: Sequence[Record], resolved: ResolvedSelection) -> list[StoredSample]:
    return [stored_sample(record, target=resolved.names[record["target_id"]]) for record in records]


def _portions(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for start in range(0, len(rows), _PORTION):
        yield rows[start : start + _PORTION]
