"""The tables that are in force, for whoever asks or waits; the same generations on every collector.

A collector that leads and one that follows learn of a table in the same way: from the database, told by a bell and,
should that go unheard, by looking every two seconds. Without its database a collector goes on serving what it has, with
the instants of then.

A watcher gets each generation once, in order. What it missed comes from memory, or from the database when that was long
ago; whoever missed too much, or saw nothing yet, gets what is in force.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from itertools import takewhile

from isochrone_collector.errors import CollectorError, DatabaseUnavailable, TooMany, UnknownName
from isochrone_collector.plans.service import Plans
from isochrone_collector.routing import canonical_form
from isochrone_collector.store import routes as store
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import ChangeKind, RegionTables, RouteTable

MAX_WATCHERS = 4_000
HEARTBEAT_US = 10 * SECOND_US
_LOOK_S = 2.0
_PATIENCE_S = 3.0
_REMEMBERED = 2_000
# Enough for those who come back when a collector was started again.
_REMEMBERED_AT_FIRST = 500
_FEW = 20
# Agents need connections too.
_CATCHING_UP = 2
_BUSY_US = 5 * SECOND_US
_SWITCHES = frozenset({ChangeKind.SOFT, ChangeKind.FAST, ChangeKind.HARD})


class Publisher:
    """Keeps the newest table of every route and region, and the last ones in the order of their generations."""

    def __init__(
        self,
        *,
        database: Database,
        plans: Plans,
        clock: Callable[[], int],
        max_watchers: int = MAX_WATCHERS,
        heartbeat_us: int = HEARTBEAT_US,
    ) -> None:
        self._database = database
        self._plans = plans
        self._clock = clock
        self._max_watchers = max_watchers
        self._heartbeat_s = heartbeat_us / SECOND_US
        self._newest: dict[tuple[str, str], RouteTable] = {}
        self._recent: deque[RouteTable] = deque()
        # `_recent` has every table after this generation.
        self._recent_after = 0
        self._generation = 0
        self._reading = asyncio.Lock()
        self._news = asyncio.Event()
        self._look = asyncio.Event()
        self._catching_up = asyncio.Semaphore(_CATCHING_UP)
        self._watchers = 0
        self._is_closed = False
        self.switches: Counter[tuple[str, str, str]] = Counter()
        """Changes of the first choice that were seen here, by client region, route and kind."""
        self.stale_since_at: int | None = None
        """Since when the database could not be asked; `None` while it can."""

    @property
    def generation(self) -> int:
        """The newest generation known here."""
        return self._generation

    @property
    def watchers(self) -> int:
        """How many wait at the moment."""
        return self._watchers

    def look(self) -> None:
        """There may be a new table."""
        self._look.set()

    def close(self) -> None:
        """Let every watch end: this collector stops."""
        self._is_closed = True
        self._news.set()

    async def run(self) -> None:
        """Follow the database; ends only by being cancelled."""
        while True:
            with suppress(CollectorError):
                await self.refresh()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._look.wait()
            self._look.clear()

    async def refresh(self) -> None:
        """Look for new tables now. Raises `DatabaseUnavailable`."""
        async with self._reading:
            try:
                async with asyncio.timeout(_PATIENCE_S), self._database.connection() as connection:
                    await self._read(connection)
            except (CollectorError, TimeoutError) as error:
                self.stale_since_at = self.stale_since_at or self._clock()
                raise DatabaseUnavailable(f"no word from the database: {error}") from error
            self.stale_since_at = None

    def in_force(self) -> list[RouteTable]:
        """The newest table of every region, of the routes in the plan in force."""
        plan = self._plans.current
        names = {route.name for route in plan.routes} if plan else set()
        # A scrape asks from another thread.
        return [table for table in list(self._newest.values()) if table.route in names]

    def tables(self, client_region: str, route: str = "") -> RegionTables:
        """What is in force in a region. Raises `UnknownName` with what is known."""
        self._check(client_region, route)
        found = [table for table in self.in_force() if _matches(table, client_region, route)]
        if not found:
            raise UnknownName(f"there is no table of {route!r} in {client_region!r} yet; ask again in a moment")
        newest = max(found, key=_generation_of)
        return RegionTables(
            client_region=client_region,
            generation=newest.generation,
            etag=_etag_of(found, newest),
            answered_at=self._clock(),
            tables=tuple(sorted(found, key=lambda table: table.route)),
            stale_since_at=self.stale_since_at,
        )

    async def watch(self, client_region: str, route: str, *, after: int) -> AsyncGenerator[RouteTable | None, None]:
        """Tables after a generation as they come, in order, at first all that are in force when `after` is 0; `None`
        now and then when nothing comes. Empty names are all regions, all routes. Ends when this collector stops.

        Raises `UnknownName`, `TooMany` and `DatabaseUnavailable`.
        """
        self._check(client_region, route)
        if self._watchers >= self._max_watchers:
            raise TooMany(f"{self._max_watchers} watch already; ask again later, or poll", delay_us=_BUSY_US)
        self._watchers += 1
        try:
            async with aclosing(self._followed(client_region, route, after)) as following:
                async for news in following:
                    yield news
        finally:
            self._watchers -= 1

    async def _followed(self, client_region: str, route: str, after: int) -> AsyncGenerator[RouteTable | None, None]:
        found, seen = await self._missed(client_region, route, after)
        told_at = self._now_s()
        while True:
            for table in found:
                yield table
                told_at = self._now_s()
            is_news = await self._news_after(seen, until_s=told_at + self._heartbeat_s)
            if self._is_closed:
                return
            if not is_news:
                yield None
                told_at = self._now_s()
            found, seen = await self._since(client_region, route, seen)

    async def _news_after(self, seen: int, *, until_s: float) -> bool:
        """Wait until there is a generation after `seen`, at most until then; whether there is."""
        if self._generation <= seen and not self._is_closed:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until_s):
                    await self._news.wait()
        return self._generation > seen and self._now_s() < until_s

    async def _missed(self, client_region: str, route: str, after: int) -> tuple[list[RouteTable], int]:
        """What whoever saw `after` last has missed, and up to where that is."""
        if after > self._generation:
            # Perhaps another collector told it sooner than this one learned of it.
            await self.refresh()
        if after <= 0 or after > self._generation:
            return self._snapshot(client_region, route), self._generation
        return await self._since(client_region, route, after)

    async def _since(self, client_region: str, route: str, after: int) -> tuple[list[RouteTable], int]:
        """The tables after a generation that was seen, and up to where that is all.

        The database may be ahead of what is known here, and so may whoever caught up from it: nothing is told again.
        """
        until = max(after, self._generation)
        if after >= self._recent_after:
            fresh = takewhile(lambda table: table.generation > after, reversed(self._recent))
            found = [table for table in fresh if _matches(table, client_region, route)]
            return found[::-1], until
        current = [table for table in self._snapshot(client_region, route) if table.generation > after]
        if not current:
            return [], until
        async with self._catching_up, self._database.connection() as connection:
            rows = await store.after(connection, after, client_region=client_region, route=route)
        if not rows or len(rows) >= store.MAX_CATCH_UP:
            return current, until
        return await _read_from([row.document for row in rows]), max(until, rows[-1].generation)

    def _snapshot(self, client_region: str, route: str) -> list[RouteTable]:
        inside = [table for table in self.in_force() if _matches(table, client_region, route)]
        return sorted(inside, key=_generation_of)

    async def _read(self, connection: Connection) -> None:
        at_first: list[RouteTable] = []
        known_until = self._generation
        if not known_until:
            rows = await store.newest(connection)
            known_until = max(max((row.generation for row in rows), default=0) - _REMEMBERED_AT_FIRST, 0)
            self._recent_after = known_until
            at_first = await _read_from([row.document for row in rows if row.generation <= known_until])
        later = await store.after(connection, known_until)
        fresh = await _read_from([row.document for row in later])
        self._newest |= {(table.client_region, table.route): table for table in at_first}
        self._take(fresh)
        if len(later) >= store.MAX_CATCH_UP:
            self.look()

    def _take(self, fresh: list[RouteTable]) -> None:
        is_news = self._generation > 0
        for table in fresh:
            if is_news and table.change in _SWITCHES:
                self.switches[table.client_region, table.route, table.change.value] += 1
            self._newest[table.client_region, table.route] = table
            self._recent.append(table)
            self._generation = table.generation
            if len(self._recent) > _REMEMBERED:
                self._recent_after = self._recent.popleft().generation
        if fresh:
            self._news.set()
            self._news = asyncio.Event()

    def _check(self, client_region: str, route: str) -> None:
        inside = self.in_force()
        regions, routes = {table.client_region for table in inside}, {table.route for table in inside}
        if client_region and client_region not in regions:
            raise UnknownName.among("client region", client_region, regions)
        if route and route not in routes:
            raise UnknownName.among("route", route, routes)

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()


async def _read_from(documents: list[str]) -> list[RouteTable]:
    """Tables from their documents; many of them in another thread, so that nobody waits for them."""
    if len(documents) <= _FEW:
        return [canonical_form.load(RouteTable, document) for document in documents]
    return await asyncio.to_thread(lambda: [canonical_form.load(RouteTable, document) for document in documents])


def _generation_of(table: RouteTable) -> int:
    return table.generation


def _etag_of(tables: list[RouteTable], newest: RouteTable) -> str:
    """A table's own tag, and of several one that also changes when another of them goes."""
    if len(tables) == 1:
        return newest.etag
    return canonical_form.etag(newest.generation, " ".join(sorted(table.etag for table in tables)))


def _matches(table: RouteTable, client_region: str, route: str) -> bool:
    return client_region in ("", table.client_region) and route in ("", table.route)
