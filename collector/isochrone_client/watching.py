"""Route tables as they change, for as long as somebody looks: across restarts of the collector no generation is lost,
and none comes twice.
"""

import time
from collections.abc import Callable, Iterator

from isochrone_client.client import ObservatoryClient
from isochrone_client.errors import CollectorError, RefusedError, SlowError, UnreachableError
from isochrone_wire.routes import RouteTable

_RETRY_SECONDS = 1.0
# A collector that has just started may not know its tables yet, or be asked by too many at once.
_AWAY = (UnreachableError, SlowError, RefusedError, CollectorError)


class Watching:
    """Watches the tables of regions and routes (none named: all) at one collector; `tell` hears when that goes away and
    is back. `after` is the last generation seen before, 0 to begin with all that are in force.
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
        self._after = after
        self._tell = tell
        self._failures = 0

    def tables(self) -> Iterator[RouteTable]:
        """Each table once, in the order of generations, without end.

        Raises `ClientError` where the collector is not there at the beginning, or refuses.
        """
        begun = False
        while True:
            try:
                for table in self._watched():
                    begun = True
                    yield from self._untold(table)
                self._fail("the stream of tables ended")
            except _AWAY as error:
                if not begun:
                    raise
                self._fail(str(error))

    def _watched(self) -> Iterator[RouteTable | None]:
        return self._client.watch_tables(self._client_region, self._route, after=self._after)

    def _untold(self, table: RouteTable | None) -> Iterator[RouteTable]:
        self._succeed()
        if table is not None and table.generation > self._after:
            self._after = table.generation
            yield table

    def _fail(self, why: str) -> None:
        """A connection also ends for its age, so the first failure is taken up at once and without a word."""
        self._failures += 1
        if self._failures == 2:  # noqa: PLR2004  # the first that is told
            since = f" after generation {self._after}" if self._after else ""
            self._tell(f"{why}; going on{since} when it is back")
        if self._failures > 1:
            time.sleep(_RETRY_SECONDS)

    def _succeed(self) -> None:
        if self._failures > 1:
            self._tell(f"the collector is back; going on after generation {self._after}")
        self._failures = 0
