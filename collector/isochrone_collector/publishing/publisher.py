"""Publisher of the route tables in force, for polls and watches; every collector serves the same generations.

The leader hands over each table that it has committed. The other collectors read it from the database after a
notification, and every two seconds in case a notification is lost. While the database is away, a collector serves the
tables that it has, with their original instants.

A watcher gets each generation once, in order. Missed generations come from memory, or from the database if they are
older. A watcher that missed too many, or has none yet, gets the tables in force.

If the database lacks the newest table known here, it was set back, and generations begin again at a lower one. Then the
tables known here stay in force until newer ones replace them, and each watcher gets those in force, once.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from operator import attrgetter

import structlog

from isochrone_collector.errors import CollectorError, DatabaseUnavailable, ResourceExhausted, UnknownName
from isochrone_collector.plans.service import Plans
from isochrone_collector.queries.routes import NO_TABLE
from isochrone_collector.routing import serialization
from isochrone_collector.store import routes as store
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import ChangeKind, RegionTables, RouteTable

_log = structlog.get_logger()

MAX_WATCHERS = 4_000
HEARTBEAT_US = 10 * SECOND_US
_POLL_S = 2.0
_READ_TIMEOUT_S = 3.0
_MAX_REMEMBERED = 2_000
# Enough for watchers that resume after a collector was restarted.
_REMEMBERED_AT_START = 500
_MAX_PARSED_INLINE = 20
# Agents need connections too.
_MAX_CATCHING_UP = 2
_RETRY_US = 5 * SECOND_US
Place = tuple[int, int]
"""How often the database was set back, and a generation since."""
_SWITCHES = frozenset({ChangeKind.SOFT, ChangeKind.FAST, ChangeKind.HARD})


@dataclass(eq=False, kw_only=True)
class Publisher:
    """The newest table of every route and region, and recent ones in order; `on_published` is called after new ones."""

    database: Database
    plans: Plans
    clock: Callable[[], int]
    max_watchers: int = MAX_WATCHERS
    heartbeat_us: int = HEARTBEAT_US
    on_published: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._heartbeat_s = self.heartbeat_us / SECOND_US
        self._newest: dict[tuple[str, str], RouteTable] = {}
        self._recent: deque[RouteTable] = deque()
        # `_recent` has every table after this generation.
        self._recent_after = 0
        self._last: RouteTable | None = None
        self._times_set_back = 0
        self._reading = asyncio.Lock()
        # The client region and the route of each watcher that waits.
        self._waiting: dict[asyncio.Future[None], tuple[str, str]] = {}
        self._woken = asyncio.Event()
        self._catching_up = asyncio.Semaphore(_MAX_CATCHING_UP)
        self._watchers = 0
        self._is_closed = False
        self.switches: Counter[tuple[str, str, str]] = Counter()
        """Changes of the first choice observed by this collector, by client region, route and kind."""
        self.stale_since_at: int | None = None
        """Instant since which the database cannot be read; `None` while it can."""

    @property
    def generation(self) -> int:
        """The newest generation of the database known to this collector."""
        return self._last.generation if self._last else 0

    @property
    def place(self) -> Place:
        """How often the database was set back, and the generation since: no two states of the tables have the same."""
        return self._times_set_back, self.generation

    @property
    def watchers(self) -> int:
        """The number of open watches."""
        return self._watchers

    def wake(self) -> None:
        """Read the database now: there may be a new table."""
        self._woken.set()

    def add(self, committed: list[RouteTable]) -> None:
        """Add tables that this collector has committed, in order; reads earlier ones if it lacks them."""
        if self._reading.locked() or committed[0].generation != self.generation + 1:
            self.wake()
        else:
            self._add(committed)

    def close(self) -> None:
        """End every watch: this collector stops."""
        self._is_closed = True
        for woken in self._waiting:
            _wake(woken)

    async def run(self) -> None:
        """Follow the database; ends only by being cancelled."""
        while True:
            with suppress(CollectorError):
                await self.refresh()
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await self._woken.wait()
            self._woken.clear()

    async def refresh(self) -> None:
        """Read new tables from the database now. Raises `DatabaseUnavailable`."""
        async with self._reading:
            try:
                async with asyncio.timeout(_READ_TIMEOUT_S), self.database.connection() as connection:
                    await self._read(connection)
            except (CollectorError, TimeoutError) as error:
                self.stale_since_at = self.stale_since_at or self.clock()
                raise DatabaseUnavailable(f"the database does not answer: {error}") from error
            self.stale_since_at = None

    def in_force(self) -> list[RouteTable]:
        """Return the newest table of every region, of the routes in the plan in force."""
        plan = self.plans.current
        names = {route.name for route in plan.routes} if plan else set()
        # A scrape of the metrics calls this from another thread.
        return [table for table in list(self._newest.values()) if table.route in names]

    def tables(self, client_region: str, route: str = "") -> RegionTables:
        """Return the tables in force in a region. Raises `UnknownName`, which lists the known names."""
        self._check(client_region, route)
        found = [table for table in self.in_force() if _matches(table, client_region, route)]
        if not found:
            raise UnknownName(f"there is no table of {route!r} in {client_region!r} yet; retry in a moment")
        newest = max(found, key=attrgetter("generation"))
        # The tag of several tables also changes when one that is not the newest is removed.
        etags = " ".join(sorted(table.etag for table in found))
        return RegionTables(
            client_region=client_region,
            generation=min(newest.generation, self.generation),
            etag=etags if len(found) == 1 else serialization.etag(newest.generation, etags),
            answered_at=self.clock(),
            tables=tuple(sorted(found, key=lambda table: table.route)),
            stale_since_at=self.stale_since_at,
        )

    async def watch(self, client_region: str, route: str, *, after: int) -> AsyncGenerator[RouteTable | None, None]:
        """Yield the tables after a generation, in order, as they are published; if `after` is 0, the tables in force
        first. Yield `None` as a heartbeat while there is no table. Empty names mean all regions and all routes. Ends
        when this collector stops.

        Raises `UnknownName`, `ResourceExhausted` and `DatabaseUnavailable`.
        """
        self._check(client_region, route)
        if self._watchers >= self.max_watchers:
            raise ResourceExhausted(
                f"the limit of {self.max_watchers} open watches is reached: retry later, or poll", delay_us=_RETRY_US
            )
        self._watchers += 1
        try:
            found, seen = await self._missed_since(client_region, route, after)
            now_s = asyncio.get_running_loop().time
            sent_at = now_s()
            while True:
                for table in found:
                    yield table
                    sent_at = now_s()
                await self._wait_for_table(client_region, route, seen, until_s=sent_at + self._heartbeat_s)
                if self._is_closed:
                    return
                if now_s() >= sent_at + self._heartbeat_s:
                    yield None
                    sent_at = now_s()
                found, seen = await self._since(client_region, route, seen)
        finally:
            self._watchers -= 1

    async def _wait_for_table(self, client_region: str, route: str, seen: Place, *, until_s: float) -> None:
        """Wait for a generation after `seen`, or the end of this collector, at most until `until_s`."""
        if self.place > seen or self._is_closed:
            return
        # `asyncio.timeout` would cost as much as to send a table.
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        timer = loop.call_at(until_s, _wake, woken)
        self._waiting[woken] = client_region, route
        try:
            await woken
        finally:
            timer.cancel()
            del self._waiting[woken]

    async def _missed_since(self, client_region: str, route: str, after: int) -> tuple[list[RouteTable], Place]:
        """Return the tables that a watcher missed since generation `after`, and the place they reach up to."""
        if after > self.generation:
            # Another collector may have published it before this one read it.
            await self.refresh()
        if after <= 0 or after > self.generation:
            return self._snapshot(client_region, route), self.place
        return await self._since(client_region, route, (self._times_set_back, after))

    async def _since(self, client_region: str, route: str, seen: Place) -> tuple[list[RouteTable], Place]:
        """Return the tables after a place, and the place up to which they are complete.

        The database may be ahead of this collector, and so may a watcher that caught up from it: nothing is repeated.
        """
        times, after = seen
        if times != self._times_set_back:
            return self._snapshot(client_region, route), self.place
        until = max(seen, self.place)
        if after >= self._recent_after:
            fresh = takewhile(lambda table: table.generation > after, reversed(self._recent))
            found = [table for table in fresh if _matches(table, client_region, route)]
            return found[::-1], until
        current = [table for table in self._snapshot(client_region, route) if table.generation > after]
        if not current:
            return [], until
        async with self._catching_up, self.database.connection() as connection:
            rows = await store.after(connection, after, client_region=client_region, route=route)
        if not rows or len(rows) >= store.MAX_CATCH_UP:
            return current, until
        return await _read_from([row.document for row in rows]), max(until, (times, rows[-1].generation))

    def _snapshot(self, client_region: str, route: str) -> list[RouteTable]:
        in_scope = [table for table in self.in_force() if _matches(table, client_region, route)]
        return sorted(in_scope, key=attrgetter("generation"))

    async def _read(self, connection: Connection) -> None:
        if self._last is not None and not await store.has(connection, self._last):
            _log.warning("routes.set_back", generation=self.generation, hint="the database lacks its table")
            self._last, self._recent_after = None, 0
            self._recent.clear()
            self._times_set_back += 1
        old: list[RouteTable] = []
        known_until = self.generation
        if not known_until:
            rows = await store.newest(connection)
            known_until = max(max((row.generation for row in rows), default=0) - _REMEMBERED_AT_START, 0)
            self._recent_after = known_until
            old = await _read_from([row.document for row in rows if row.generation <= known_until])
        newer = await store.after(connection, known_until)
        fresh = await _read_from([row.document for row in newer])
        self._put_in_force(old)
        self._add(fresh)
        if len(newer) >= store.MAX_CATCH_UP:
            self.wake()

    def _add(self, fresh: list[RouteTable]) -> None:
        counts_switches = self._last is not None
        self._put_in_force(fresh)
        for table in fresh:
            if counts_switches and table.change in _SWITCHES:
                self.switches[table.client_region, table.route, table.change.value] += 1
            self._recent.append(table)
            self._last = table
            if len(self._recent) > _MAX_REMEMBERED:
                self._recent_after = self._recent.popleft().generation
        if fresh:
            for woken, scope in self._waiting.items():
                if any(_matches(table, *scope) for table in fresh):
                    _wake(woken)
            self.on_published()

    def _put_in_force(self, tables: Iterable[RouteTable]) -> None:
        """Replace tables by later ones; their generations may be lower, after the database was set back."""
        for table in tables:
            key = table.client_region, table.route
            known = self._newest.get(key)
            if known is None or table.generation > known.generation or table.built_at > known.built_at:
                self._newest[key] = table

    def _check(self, client_region: str, route: str) -> None:
        in_scope = self.in_force()
        if not in_scope and (client_region or route):
            raise UnknownName(NO_TABLE)
        regions, routes = {table.client_region for table in in_scope}, {table.route for table in in_scope}
        if client_region and client_region not in regions:
            raise UnknownName.among("client region", client_region, regions)
        if route and route not in routes:
            raise UnknownName.among("route", route, routes)


async def _read_from(documents: list[str]) -> list[RouteTable]:
    """Parse tables; many of them in another thread, so that the event loop is not held up."""
    if len(documents) <= _MAX_PARSED_INLINE:
        return [serialization.load(RouteTable, document) for document in documents]
    return await asyncio.to_thread(lambda: [serialization.load(RouteTable, document) for document in documents])


def _wake(woken: "asyncio.Future[None]") -> None:
    if not woken.done():
        woken.set_result(None)


def _matches(table: RouteTable, client_region: str, route: str) -> bool:
    return client_region in ("", table.client_region) and route in ("", table.route)
