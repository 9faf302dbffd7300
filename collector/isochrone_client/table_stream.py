"""Route tables as they change, without end: no generation is lost or repeated when the collector restarts.

Generations count per database. A collector that lags behind shows lower generations too, but none of them was built
later than all tables seen so far. A lower generation that was built clearly later therefore belongs to another
database, and the stream starts over with it. Build times come from the clocks of different collectors, so "clearly
later" means 10 s after the latest of all tables seen, not after the last one.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Self

from isochrone_client.client import ObservatoryClient
from isochrone_client.errors import CollectorError, RefusedError, SlowError, UnreachableError
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RouteTable

CLEARLY_LATER_US = 10 * SECOND_US
_RETRY_SECONDS = 1.0
# A collector that has just started may not have its tables yet, or may be limiting requests.
_RETRIABLE = (UnreachableError, SlowError, RefusedError, CollectorError)


class Relation(Enum):
    """A table in relation to the tables seen before it."""

    NEWER = "newer"
    OLDER = "older"
    OTHER_DATABASE = "other database"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCursor:
    """The highest generation seen (0: none) and the latest instant at which a table that was seen was built, in
    microseconds since the epoch. The instant is `None` if the generation was given from outside and its table was never
    seen.
    """

    generation: int = 0
    latest_built_at: int | None = None

    def compare(self, table: RouteTable) -> Relation:
        """Compare a table with those seen so far.

        A collector that is asked for tables after a generation returns lower ones only if it never issued that
        generation, so without `latest_built_at` a lower generation means another database.
        """
        if table.generation > self.generation:
            return Relation.NEWER
        if self.latest_built_at is None or table.built_at > self.latest_built_at + CLEARLY_LATER_US:
            return Relation.OTHER_DATABASE
        return Relation.OLDER

    def advance(self, table: RouteTable) -> Self:
        """The cursor after a newer table."""
        return type(self)(
            generation=table.generation, latest_built_at=max(self.latest_built_at or table.built_at, table.built_at)
        )


class TableStream:
    """The tables of one collector's regions and routes (empty names: all).

    `after` is the last generation seen before; 0 starts with all tables in force. `report` receives a sentence when the
    collector is lost, is back, or serves another database.
    """

    def __init__(
        self,
        client: ObservatoryClient,
        *,
        client_region: str = "",
        route: str = "",
        after: int = 0,
        report: Callable[[str], None],
    ) -> None:
        self._client = client
        self._client_region = client_region
        self._route = route
        self._cursor = TableCursor(generation=after)
        self._report = report
        self._failures = 0
        self._has_begun = False
        self._is_waiting = False

    def tables(self) -> Iterator[RouteTable]:
        """Yield each table once, by generation, without end; on another database, first all tables in force there.

        Raises `ClientError` if the collector refuses the request or cannot be reached at the start.
        """
        while True:
            try:
                yield from self._new_tables()
            except _RETRIABLE as error:
                if not self._has_begun:
                    raise
                self._fail(str(error))

    def _new_tables(self) -> Iterator[RouteTable]:
        """The new tables of one call, until the call ends or has to be repeated from the start."""
        for table in self._client.watch_tables(self._client_region, self._route, after=self._cursor.generation):
            self._succeed()
            if table is None:
                continue
            relation = self._cursor.compare(table)
            if relation is Relation.OTHER_DATABASE:
                self._start_over(table)
                return
            if relation is Relation.NEWER:
                self._cursor, self._is_waiting = self._cursor.advance(table), False
                yield table
            else:
                self._wait_for_newer(table)
        self._fail("the stream of tables ended")

    def _start_over(self, table: RouteTable) -> None:
        why = f"this collector never issued generation {self._cursor.generation}"
        if self._cursor.latest_built_at is not None:
            why = f"generation {table.generation} is newer than {self._cursor.generation}: this is another database"
        self._report(f"{why}; starting with all tables in force")
        self._cursor, self._is_waiting = TableCursor(), False

    def _wait_for_newer(self, table: RouteTable) -> None:
        if not self._is_waiting:
            current, seen = table.generation, self._cursor.generation
            self._report(f"the collector is at generation {current}; waiting for generations after {seen}")
        self._is_waiting = True

    def _fail(self, why: str) -> None:
        """Retry at once and without a report after the first failure: collectors close connections that grow old."""
        self._failures += 1
        if self._failures == 2:  # noqa: PLR2004  # the first failure that is reported
            since = f" after generation {self._cursor.generation}" if self._cursor.generation else ""
            self._report(f"{why}; continuing{since} when it is back")
        if self._failures > 1:
            time.sleep(_RETRY_SECONDS)

    def _succeed(self) -> None:
        if self._failures > 1:
            self._report(f"the collector is back; continuing after generation {self._cursor.generation}")
        self._failures = 0
        self._has_begun = True
