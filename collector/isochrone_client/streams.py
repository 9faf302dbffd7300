"""Streams that survive broken connections: new samples as they are stored, exports of samples, and route tables.

An export continues behind the last sample received. A collector that resumes a stream of new samples at an instant
sends every sample of that instant or later, because it does not know which of them arrived. The client therefore keeps
the id of each sample it received since and drops the repeats, so that no sample is lost or repeated. Nor is a
generation of a route table, when the collector restarts.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from isochrone_client.client import ReadClient
from isochrone_client.errors import CollectorError, RefusedError, SlowError, UnreachableError
from isochrone_common.route_consumer import Relation, TableCursor
from isochrone_wire.answers import Selection
from isochrone_wire.fleet import SampleList, StoredSample
from isochrone_wire.routes import RouteTable

_RETRY_SECONDS = 1.0
_EXPORT_ATTEMPTS = 30
_AWAY = (UnreachableError, SlowError)
# A collector that has just started may not have its tables yet, or may be limiting requests.
_NOT_READY = (*_AWAY, RefusedError, CollectorError)


@dataclass(slots=True, kw_only=True)
class _Outage:
    """The failures in a row of one stream; `report` receives a sentence when the collector is lost and when it is back.

    The first failure is not reported, and repeated at once: collectors close connections that grow old. Later ones wait
    for half a second to a second, and twice as long after each further failure, as often as `doublings`.
    """

    report: Callable[[str], None]
    doublings: int
    _failures: int = 0

    def fail(self, why: str, *, after: str = "") -> None:
        """Note a failure, and wait; the stream continues `after` a place."""
        self._failures += 1
        if self._failures == 2:  # noqa: PLR2004  # the first failure that is reported
            self.report(f"{why}; continuing{after} when it is back")
        if self._failures > 1:
            doublings = min(self._failures - 2, self.doublings)
            time.sleep(_RETRY_SECONDS * 2**doublings * random.uniform(0.5, 1))  # noqa: S311  # no secret

    def end(self, *, after: str = "") -> None:
        """Note that the stream has continued."""
        if self._failures > 1:
            self.report(f"the collector is back{f'; continuing{after}' if after else ''}")
        self._failures = 0


class SampleStream:
    """The samples of a selection that pass the filter `matching`. `report` receives a sentence when the collector is
    lost, and when it is back.
    """

    def __init__(
        self, client: ReadClient, selection: Selection, *, report: Callable[[str], None], matching: str = ""
    ) -> None:
        self._client = client
        self._selection, self._matching = selection, matching
        self._outage = _Outage(report=report, doublings=0)
        # The instant of receipt of each sample that the collector may send again, by the sample's id.
        self._seen: dict[str, int] = {}
        self._resume_at = 0

    def samples(self, *, limit: int) -> Iterator[tuple[StoredSample, ...]]:
        """Yield up to `limit` of the newest samples, possibly none, then new samples in batches, without end.

        Raises `ClientError` if the collector refuses the request or cannot be reached at the start.
        """
        batches = self._client.follow_samples(self._selection, matching=self._matching)
        # The stream starts here. Samples stored before `list_samples` answers are found by both calls.
        self._resume_at = next(batches, SampleList()).resume_at
        newest = self._client.list_samples(self._selection, limit=limit, matching=self._matching)
        yield self._new(newest, self._resume_at)
        while True:
            try:
                for batch in batches:
                    self._outage.end()
                    if new := self._new(batch.samples, batch.resume_at):
                        yield new
                self._outage.fail("the stream of samples ended")
            except _AWAY as error:
                self._outage.fail(str(error))
            batches = self._client.follow_samples(self._selection, since_at=self._resume_at, matching=self._matching)

    def _new(self, samples: Iterable[StoredSample], resume_at: int) -> tuple[StoredSample, ...]:
        """Return the samples that were not received before; the stream would resume at `resume_at`."""
        new = tuple(row for row in samples if row.id not in self._seen)
        self._seen |= {row.id: row.received_at for row in new}
        self._seen = {name: at for name, at in self._seen.items() if at >= resume_at}
        self._resume_at = resume_at
        return new


def export_samples(
    client: ReadClient, selection: Selection, *, report: Callable[[str], None], matching: str = ""
) -> Iterator[tuple[StoredSample, ...]]:
    """Yield each sample of the selection that passes the filter `matching`, once. After a broken connection, resume
    behind the last sample received.

    `report` receives a sentence about each break. Raises `ClientError` if the collector cannot be reached at the start
    or does not come back.
    """
    last, failures = "", 0
    while True:
        try:
            for samples in client.export_samples(selection, after=last, matching=matching):
                last, failures = samples[-1].id, 0
                yield samples
        except _AWAY as error:
            failures += 1
            if not last or failures > _EXPORT_ATTEMPTS:
                raise
            if failures == 1:
                report(f"{error}; continuing when it is back")
            time.sleep(_RETRY_SECONDS)
        else:
            return


@dataclass(slots=True, kw_only=True)
class TableStream:
    """The tables of one collector's regions and routes (empty names: all) as they change.

    `after` is the last generation seen before; 0 starts with all tables in force. `report` receives a sentence when the
    collector is lost, is back, or serves another database. With `has_begun`, the collector has answered before, and is
    waited for from the start.
    """

    client: ReadClient
    client_region: str = ""
    route: str = ""
    after: int = 0
    has_begun: bool = False
    report: Callable[[str], None]
    _cursor: TableCursor = field(init=False)
    _outage: _Outage = field(init=False)
    _is_waiting: bool = False

    def __post_init__(self) -> None:
        self._cursor = TableCursor(generation=self.after)
        self._outage = _Outage(report=self.report, doublings=3)

    def tables(self) -> Iterator[RouteTable]:
        """Yield each table once, by generation, without end; on another database, first all tables in force there.

        Raises `ClientError` if the collector refuses the request or cannot be reached at the start.
        """
        while True:
            try:
                yield from self._new_tables()
            except _NOT_READY as error:
                if not self.has_begun:
                    raise
                self._outage.fail(str(error), after=self._place)

    @property
    def _place(self) -> str:
        return f" after generation {self._cursor.generation}" if self._cursor.generation else ""

    def _new_tables(self) -> Iterator[RouteTable]:
        """Yield the new tables of one call, until the call ends or has to be repeated from the start."""
        for table in self.client.watch_tables(self.client_region, self.route, after=self._cursor.generation):
            self._outage.end(after=self._place)
            self.has_begun = True
            if table is None:
                continue
            relation, seen = self._cursor.compare(table), self._cursor.generation
            if relation is Relation.OTHER_DATABASE:
                why = f"this collector never issued generation {seen}"
                if self._cursor.latest_built_at is not None:
                    why = f"generation {table.generation} is newer than {seen}: this is another database"
                self.report(f"{why}; starting with all tables in force")
                self._cursor, self._is_waiting = TableCursor(), False
                return
            if relation is Relation.NEWER:
                self._cursor, self._is_waiting = self._cursor.advance(table), False
                yield table
            elif not self._is_waiting:
                current = f"the collector is at generation {table.generation}"
                self.report(f"{current}; waiting for generations after {seen}")
                self._is_waiting = True
        self._outage.fail("the stream of tables ended", after=self._place)
