"""Route tables as they change, without end: no generation is lost or repeated when the collector restarts."""

import random
import time
from collections.abc import Callable, Iterator

from isochrone_client.client import ObservatoryClient
from isochrone_client.errors import CollectorError, RefusedError, SlowError, UnreachableError
from isochrone_common.route_consumer import Relation, TableCursor
from isochrone_wire.routes import RouteTable

_FIRST_RETRY_SECONDS = 1.0
_MAX_DOUBLINGS = 3
# A collector that has just started may not have its tables yet, or may be limiting requests.
_RETRIABLE = (UnreachableError, SlowError, RefusedError, CollectorError)


class TableStream:
    """The tables of one collector's regions and routes (empty names: all).

    `after` is the last generation seen before; 0 starts with all tables in force. `report` receives a sentence when the
    collector is lost, is back, or serves another database. With `has_begun`, the collector has answered before, and is
    waited for from the start.
    """

    def __init__(
        self,
        client: ObservatoryClient,
        *,
        client_region: str = "",
        route: str = "",
        after: int = 0,
        has_begun: bool = False,
        report: Callable[[str], None],
    ) -> None:
        self._client = client
        self._client_region = client_region
        self._route = route
        self._cursor = TableCursor(generation=after)
        self._report = report
        self._failures = 0
        self._has_begun = has_begun
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
        """Retry at once and without a report after the first failure: collectors close connections that grow old. Then
        wait for half a second to a second, and twice as long after each further failure, up to eight seconds.
        """
        self._failures += 1
        if self._failures == 2:  # noqa: PLR2004  # the first failure that is reported
            since = f" after generation {self._cursor.generation}" if self._cursor.generation else ""
            self._report(f"{why}; continuing{since} when it is back")
        if self._failures > 1:
            doublings = min(self._failures - 2, _MAX_DOUBLINGS)
            time.sleep(_FIRST_RETRY_SECONDS * 2**doublings * random.uniform(0.5, 1))  # noqa: S311  # no secret

    def _succeed(self) -> None:
        if self._failures > 1:
            self._report(f"the collector is back; continuing after generation {self._cursor.generation}")
        self._failures = 0
        self._has_begun = True
