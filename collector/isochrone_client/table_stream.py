"""Route tables as they change, for as long as somebody looks: across restarts of the collector no generation is lost,
and none comes twice. On another database they begin anew.
"""

import time
from collections.abc import Callable, Iterator

from isochrone_client.client import ObservatoryClient
from isochrone_client.errors import CollectorError, RefusedError, SlowError, UnreachableError
from isochrone_client.table_cursor import Cursor, Place
from isochrone_wire.routes import RouteTable

_RETRY_SECONDS = 1.0
# A collector that has just started may not know its tables yet, or be asked by too many at once.
_AWAY = (UnreachableError, SlowError, RefusedError, CollectorError)


class Watching:
    """Watches the tables of regions and routes (none named: all) at one collector; `tell` hears when that goes away, is
    back, or shows another database. `after` is the last generation seen before, 0 to begin with all that are in force.
    """

    def __init__(
        self,
        client: ObservatoryClient,
        *,
        client_region: str = "",
        route: str = "",
        after: int = 0,
        tell: Callable[[str], None],
    ) -> None:
        self._client = client
        self._client_region = client_region
        self._route = route
        self._told = Cursor(generation=after)
        self._tell = tell
        self._failures = 0
        self._has_begun = False
        self._is_waiting = False

    def tables(self) -> Iterator[RouteTable]:
        """Each table once, in the order of generations, without end; where the collector never gave those that were
        told, all that are in force there first.

        Raises `ClientError` where the collector is not there at the beginning, or refuses.
        """
        while True:
            try:
                yield from self._untold()
            except _AWAY as error:
                if not self._has_begun:
                    raise
                self._fail(str(error))

    def _untold(self) -> Iterator[RouteTable]:
        """What one stream brings, until it ends or is to be asked for anew."""
        for table in self._client.watch_tables(self._client_region, self._route, after=self._told.generation):
            self._succeed()
            if table is None:
                continue
            place = self._told.place(table)
            if place is Place.ELSEWHERE:
                self._begin_anew(table)
                return
            if place is Place.LATER:
                self._told, self._is_waiting = self._told.including(table), False
                yield table
            else:
                self._wait_for_later(table)
        self._fail("the stream of tables ended")

    def _begin_anew(self, table: RouteTable) -> None:
        why = f"generation {self._told.generation} was never given here"
        if self._told.latest_built_at is not None:
            why = f"generation {table.generation} is newer than {self._told.generation}: this is another database"
        self._tell(f"{why}; beginning with all that are in force")
        self._told, self._is_waiting = Cursor(), False

    def _wait_for_later(self, table: RouteTable) -> None:
        if not self._is_waiting:
            at, after = table.generation, self._told.generation
            self._tell(f"the collector is at generation {at}; waiting for those after {after}")
        self._is_waiting = True

    def _fail(self, why: str) -> None:
        """A connection also ends for its age, so the first failure is taken up at once and without a word."""
        self._failures += 1
        if self._failures == 2:  # noqa: PLR2004  # the first that is told
            since = f" after generation {self._told.generation}" if self._told.generation else ""
            self._tell(f"{why}; going on{since} when it is back")
        if self._failures > 1:
            time.sleep(_RETRY_SECONDS)

    def _succeed(self) -> None:
        if self._failures > 1:
            self._tell(f"the collector is back; going on after generation {self._told.generation}")
        self._failures = 0
        self._has_begun = True
