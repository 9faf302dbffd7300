"""The routes of one region, followed in the background."""

import asyncio
import concurrent.futures
import math
import os
import queue
import random
import ssl
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpcore

from isochrone.routing import background, effectiveness, table_file
from isochrone.routing.attempts import DEFAULT_RATIO, Choice, Cooldowns, HedgeBudget, order
from isochrone.routing.background import BackgroundLoop
from isochrone.routing.blocking import BlockingBackend, BlockingConnection, run
from isochrone.routing.connections import KEEPALIVE_S, Backend, Connections
from isochrone.routing.effectiveness import Effectiveness
from isochrone.routing.subscription import CollectorClock, Subscription, log
from isochrone_common.address import UNIX
from isochrone_common.route_consumer import FollowedTables, key_variable
from isochrone_common.trust import Trust, tls_context
from isochrone_wire.routes import RouteEntry, RouteState, RouteTable

DEFAULT_CACHE_FOLDER = Path("~/.cache/isochrone")
_LOOK_AGAIN_S = 20.0

_Watcher = Callable[[RouteTable | None], None]


class Routes:
    """The route tables of `region` at the collector at `url`, such as `https://isochrone.example:4680`.

    A thread follows them from the first use on; requests wait for the first tables for two seconds at most. While the
    collector is away the last tables stay in use until `stale_until_at`, and then the plan's static order. They are
    kept in `cache_folder` (`None`: not kept) for the next start. A route that the plan no longer has is forgotten when
    its table expires.

    `token` is the credential of a reader, `trust` that of its identity file, if the collector has a certificate of its
    own; `url` may also be `unix:` and the path of its socket. `keys` are the providers' keys by the name of their
    credential; without it, the key of `deepseek` is the environment variable `DEEPSEEK_API_KEY`. Members without their
    key are left out. Requests and keys are sent only to `hosts`; `None` trusts the collector with that.

    A member without a credential receives the caller's key only at the address of the caller, or with
    `send_callers_key`. After a 401, 402, 403, 404 or 408 the next member is tried, unless `failover_on_refusals` is
    false.

    A member that has returned no content after `first_token_s` seconds, one number or one for each route, is given up
    while another one may answer; without it, the limit follows from its tail in the table. `deadline_s` is the time of
    all members together until the answer begins; so is the caller's read timeout.

    `hedge_ratio` is the largest share of second requests, 0 for none; requests that have effects, as of tools or by
    what the provider keeps, have one only with `hedge_effects`. `counters` counts what happened since the start, by
    name. With `metrics`, `prometheus_client` exports `isochrone_routing_effective`.
    """

    def __init__(
        self,
        url: str,
        region: str,
        *,
        token: str | None = None,
        keys: Mapping[str, str] | None = None,
        hosts: Collection[str] | None = None,
        cache_folder: str | Path | None = DEFAULT_CACHE_FOLDER,
        hedge_ratio: float = DEFAULT_RATIO,
        hedge_effects: bool = False,
        failover_on_refusals: bool = True,
        send_callers_key: bool = False,
        first_token_s: float | Mapping[str, float] | None = None,
        deadline_s: float = math.inf,
        ssl_context: ssl.SSLContext | None = None,
        proxy: str | None = None,
        trust: Trust | None = None,
        on_event: Callable[[str], None] | None = None,
        metrics: bool = False,
    ) -> None:
        parts = urlsplit(url)
        if not url.startswith(UNIX) and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError(f"{url!r} is no address of a collector: use one like https://isochrone.example:4680")
        self.url = url
        self.region = region
        self.hedge_effects = hedge_effects
        self.failover_on_refusals = failover_on_refusals
        self.first_token_s = first_token_s
        self.deadline_s = deadline_s
        self._budget = HedgeBudget(ratio=hedge_ratio, tokens=1.0 if hedge_ratio else 0.0)
        self.cooldowns = Cooldowns()
        self.counters: Counter[str] = Counter()
        self.background = BackgroundLoop()
        self._token = token
        self._keys = keys
        self._send_callers_key = send_callers_key
        self._warned_s: dict[str, float] = {}
        self._hosts = None if hosts is None else frozenset(hosts)
        self._cache = None if cache_folder is None else self._file_in(Path(cache_folder))
        self._ssl_context = ssl_context
        self._proxy = proxy
        self._trust = trust if trust and trust.tls else None
        self._on_event = on_event
        self._gauge = effectiveness.gauge() if metrics else None
        self._effectiveness: dict[str, Effectiveness] = {}
        self._lock = threading.RLock()
        self._tables = FollowedTables(share=random.random())  # noqa: S311  # no secret
        self._texts: dict[str, str] = {}
        self._clock = CollectorClock()
        self._watchers: list[_Watcher] = []
        self._arrived = threading.Event()
        self._is_loaded = False
        self._all_tables_s = 0.0
        self._following_pid = 0
        self._following: list[concurrent.futures.Future[None]] = []
        self._subscription: Subscription | None = None
        self._next_look_s = 0.0
        self._has_news = asyncio.Event()
        self._background_pools: list[httpcore.AsyncConnectionPool] = []
        self._blocking_pools: set[Connections] = set()
        background.register_for_forks(self, self._lock, Routes._begin_in_child)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop following, end every `watch`, and close the connections of this object and of blocking transports."""
        for work in self._following:
            work.cancel()
        self._following.clear()
        if self.background.is_running:
            for pool in self._background_pools:
                self.background.run(pool.aclose())
        self._background_pools.clear()
        self.background.stop()
        for blocking in list(self._blocking_pools):
            self.close_blocking(blocking)
        self._subscription = None
        self._following_pid = 0
        for watcher in list(self._watchers):
            watcher(None)

    def pick(self, route: str, *, without: Collection[str] = ()) -> Choice | None:
        """An endpoint drawn by weight, except `without`; `None` if no member is left or may take the request."""
        table = self.table(route)
        if table is None:
            return None
        entries = tuple(entry for entry in table.entries if entry.target not in without)
        chosen = self.order(table, entries)
        if not chosen:
            return None
        names = ("target", "provider", "model", "dialect", "base_url", "credential_ref")
        endpoint = {name: getattr(chosen[0], name) for name in names}
        is_static = table.state is RouteState.INSUFFICIENT_DATA
        return Choice(route=table.route, generation=table.generation, is_static=is_static, **endpoint)

    def wait(self, timeout_s: float = 5.0) -> bool:
        """Wait for the first table; return whether there is one."""
        self._start()
        return self._arrived.wait(timeout_s)

    def watch(self) -> Iterator[RouteTable]:
        """Yield the newest table of each route, then every newer one as it arrives, until `close`."""
        arrived: queue.SimpleQueue[RouteTable | None] = queue.SimpleQueue()
        remove = self._add_watcher(arrived.put)
        try:
            while table := arrived.get():
                yield table
        finally:
            remove()

    async def watch_async(self) -> AsyncIterator[RouteTable]:
        """As `watch`."""
        arrived: asyncio.Queue[RouteTable | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def put(table: RouteTable | None) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(arrived.put_nowait, table)

        remove = self._add_watcher(put)
        try:
            while table := await arrived.get():
                yield table
        finally:
            remove()

    def table(self, route: str) -> RouteTable | None:
        """The table to use now, or the static order in its form; `None` if the route is unknown."""
        self._start()
        with self._lock:
            known, now_at = self._tables.routes.get(route), self._clock.now_at()
            if known is None:
                return None
            # The stream does not say if the plan still has the route.
            if known.is_expired(now_at) and self._subscription and time.monotonic() >= self._next_look_s:
                self._next_look_s = time.monotonic() + _LOOK_AGAIN_S
                self.background.submit(self._forget_removed(self._subscription))
            return self._tables.table_at(route, now_at)

    def tables(self) -> tuple[RouteTable, ...]:
        """The tables to use now, by the name of the route, as `table`."""
        self._start()
        with self._lock:
            return self._tables.at(self._clock.now_at())

    async def first_table(
        self, route: str, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> RouteTable | None:
        """As `table`; shortly after the start, wait for the tables that are on their way."""
        table = self.table(route)
        while table is None and time.monotonic() < self._all_tables_s:
            await sleep(0.01)
            table = self.table(route)
        return table

    def order(self, table: RouteTable, entries: tuple[RouteEntry, ...]) -> tuple[RouteEntry, ...]:
        """The members in the order in which a request tries them; those that rest after a 429 are left out."""
        now = time.monotonic()
        with self._lock:
            throttled, failing = self.cooldowns.throttled(now), self.cooldowns.failing(now)
        draw = random.random()  # noqa: S311  # no secret
        return order(entries, unassigned=table.unassigned, draw=draw, throttled=throttled, failing=failing)

    def obstacle(self, entry: RouteEntry, *, sends_callers_key: bool) -> str:
        """Return why no request may be sent to the member, and log it; empty if one may be. `sends_callers_key`: the
        request has a key for another origin, which a member without a key of its own would receive.
        """
        host, name = urlsplit(entry.base_url).hostname, entry.credential_ref
        if self._hosts is not None and host not in self._hosts:
            event, why = "host_refused", f"is at {host}, which is not one of `hosts`"
        elif name and self.key(entry) is None:
            event, why = "key_missing", f"has no key: set {key_variable(name)}, or `keys`"
        elif not name and sends_callers_key and not self._send_callers_key:
            event = "key_withheld"
            why = "has no credential: name one in the plan, or let it have the caller's key with `send_callers_key`"
        else:
            return ""
        self.count(event)
        self.warn(f"{entry.target} {why}")
        return why

    def warn(self, text: str) -> None:
        """Log a warning, each text once a minute."""
        now_s = time.monotonic()
        with self._lock:
            if now_s < self._warned_s.get(text, 0.0):
                return
            self._warned_s[text] = now_s + 60.0
        log.warning("%s", text)

    def key(self, entry: RouteEntry) -> str | None:
        """The key of a member; `None` if it has none."""
        name, keys = entry.credential_ref, self._keys
        key = "" if not name else os.environ.get(key_variable(name)) if keys is None else keys.get(name)
        # A key that was read from a file may end in a line feed, which no header can have.
        return (key or "").strip() or None

    def count(self, event: str) -> None:
        """Count an event."""
        with self._lock:
            self.counters[event] += 1
        if self._on_event is not None:
            self._on_event(event)

    def expect_hedge(self) -> None:
        """Note a request that could be hedged, which adds to the budget of second requests."""
        with self._lock:
            self._budget.add_request()

    def take_hedge(self) -> bool:
        """Take a second request from their budget; return whether there was one."""
        with self._lock:
            return self._budget.take()

    @property
    def effective(self) -> dict[str, float]:
        """The share of the latest requests that followed the weights of the table, by route; see `effectiveness`."""
        with self._lock:
            shares = {route: noted.share for route, noted in self._effectiveness.items()}
        return {route: share for route, share in shares.items() if share is not None}

    def note_usable(self, table: RouteTable, usable: Collection[RouteEntry]) -> None:
        """Note a request that goes by weight to the `usable` ones of the members that speak as they do."""
        now_s = time.monotonic()
        with self._lock:
            resting = {*self.cooldowns.throttled(now_s), *self.cooldowns.failing(now_s)}
        dialects, targets = {entry.dialect for entry in usable}, {entry.target for entry in usable}
        members = (entry for entry in table.entries if entry.dialect in dialects)
        share = effectiveness.followed(members, usable=targets, resting=resting)
        self.note_followed(table.route, share, "a member's key or host is missing, see `Routes.counters`")

    def note_followed(self, route: str, share: float | None, reason: str) -> None:
        """Note a request with the share of the weights that it followed; `None` is not counted. If routing is no longer
        effective, log that with the likely `reason`.
        """
        if share is None:
            return
        with self._lock:
            noted = self._effectiveness.setdefault(route, Effectiveness())
            is_news, mean = noted.add(share), noted.share
        if self._gauge is not None and mean is not None:
            self._gauge.labels(self.region, route).set(mean)
        if is_news:
            text = (
                "routing of %s from %s is not effective: of the latest requests only %.0f %% went where the weights of"
            )
            log.error(f"{text} the table send them; %s", route, self.region, 100 * (mean or 0.0), reason)

    def failed(self, target: str, *, is_throttled: bool = False, retry_after_s: float | None = None) -> None:
        """Note a failure of a member, or a 429."""
        now_s, draw = time.monotonic(), random.random()  # noqa: S311  # no secret
        with self._lock:
            self.cooldowns.fail(target, is_throttled=is_throttled, retry_after_s=retry_after_s, now_s=now_s, draw=draw)

    def succeeded(self, target: str) -> None:
        """Note a response of a member."""
        with self._lock:
            self.cooldowns.succeed(target)

    def shortest_rest_s(self, entries: Collection[RouteEntry]) -> float:
        """The seconds until the first of these members may be asked again after a 429."""
        with self._lock:
            rests = self.cooldowns.throttled(time.monotonic())
        return min((rests[entry.target] for entry in entries if entry.target in rests), default=0.0)

    def _new_collector_pool(self) -> httpcore.AsyncConnectionPool:
        context = tls_context(self._trust) if self._trust else self._ssl_context
        if self.url.startswith(UNIX):
            pool = httpcore.AsyncConnectionPool(uds=self.url.removeprefix(UNIX))
        elif self._proxy:
            pool = httpcore.AsyncHTTPProxy(self._proxy, ssl_context=context)
        else:
            pool = httpcore.AsyncConnectionPool(ssl_context=context)
        self._background_pools.append(pool)
        return pool

    def new_pool(self) -> Connections:
        """Connections for one event loop."""
        return Connections(self._maker(httpcore.AsyncHTTPConnection, httpcore.AsyncHTTPProxy, Backend()))

    def new_blocking_pool(self) -> Connections:
        """Connections for any threads, whose methods block instead of waiting, and which are closed with the routes."""
        make = self._maker(httpcore.HTTPConnection, httpcore.HTTPProxy, BlockingBackend())
        pool = Connections(lambda origin: BlockingConnection(make(origin)), nullcontext)
        self._blocking_pools.add(pool)
        return pool

    def close_blocking(self, pool: Connections) -> None:
        """Close one of `new_blocking_pool`."""
        run(pool.aclose())
        self._blocking_pools.discard(pool)

    def _maker(self, connection: Any, proxy: Any, backend: object) -> Callable[[httpcore.Origin], Any]:  # noqa: ANN401  # classes
        """Return a function that opens a connection to an origin, through the proxy if there is one."""
        options = {"keepalive_expiry": KEEPALIVE_S, "network_backend": backend}

        def make(origin: httpcore.Origin) -> Any:  # noqa: ANN401  # of either kind
            if self._ssl_context is None and origin.scheme == b"https":
                self._ssl_context = httpcore.default_ssl_context()  # takes a hundredth of a second
            more = {"ssl_context": self._ssl_context, **options}
            return proxy(self._proxy, **more).create_connection(origin) if self._proxy else connection(origin, **more)

        return make

    def _start(self) -> None:
        """Follow, unless this process does; a forked one has no threads of its parent."""
        if self._following_pid == os.getpid():
            return
        with self._lock:
            if os.getpid() == self._following_pid:
                return
            self._following_pid = os.getpid()
            if not self._is_loaded:
                self._load()
            self._all_tables_s = time.monotonic() + 2.0
            self._has_news = asyncio.Event()
        self._subscription = Subscription(
            pool=self._new_collector_pool(),
            url="http://localhost" if self.url.startswith(UNIX) else self.url,
            server_name=self._trust.server_name if self._trust else None,
            region=self.region,
            token=self._token,
            on_table=self._receive,
            count=self.count,
            clock=self._clock,
        )
        self._following.append(self.background.submit(self._subscription.run()))
        if self._cache is not None:
            self._following.append(self.background.submit(self._keep(self._cache, self._has_news)))

    async def _forget_removed(self, subscription: Subscription) -> None:
        planned = await subscription.planned_routes()
        if planned is not None:
            with self._lock:
                self._tables.forget_removed(planned, self._clock.now_at())
                self._texts = {name: text for name, text in self._texts.items() if name in self._tables.routes}
            self._has_news.set()

    def _load(self) -> None:
        self._is_loaded = True
        if self._cache is None:
            return
        with suppress(OSError):
            tables, entries = table_file.load(self._cache)
            self._tables.endpoints |= {entry.target: entry for entry in entries}
            for text, table in tables.items():
                self._texts[table.route] = text
                self._tables.receive(table)
            if tables:
                self._arrived.set()

    def _receive(self, table: RouteTable, text: str) -> None:
        with self._lock:
            self._tables.receive(table)
            self._texts[table.route] = text
            watchers = list(self._watchers)
        self.count("tables")
        self._has_news.set()
        if not self._arrived.is_set():
            # The tables of a region arrive together.
            self._all_tables_s = min(self._all_tables_s, time.monotonic() + 0.1)
        self._arrived.set()
        for watcher in watchers:
            watcher(table)

    async def _keep(self, cache: Path, has_news: asyncio.Event) -> None:
        """Write the tables to disk, in a thread: requests on this loop do not wait for the disk."""
        while True:
            await has_news.wait()
            has_news.clear()
            with self._lock:
                texts, endpoints = list(self._texts.values()), list(self._tables.endpoints.values())
            try:
                await asyncio.to_thread(table_file.save, cache, texts, endpoints)
            except OSError:
                self.count("cache_failed")

    def _add_watcher(self, watcher: "_Watcher") -> Callable[[], None]:
        self._start()
        with self._lock:
            for route in self._tables.routes.values():
                watcher(route.newest)
            self._watchers.append(watcher)

        def remove() -> None:
            with suppress(ValueError):  # in a forked process it is not there
                self._watchers.remove(watcher)

        return remove

    def _file_in(self, folder: Path) -> Path | None:
        try:
            return table_file.path_of(folder, self.url, self.region)
        except RuntimeError:  # a user without a home
            self.counters["cache_failed"] += 1
            return None

    def _begin_in_child(self) -> None:
        """Give up what is the parent's: its connections, its waiting threads, and its moment to change weights."""
        self._background_pools.clear()
        self._blocking_pools.clear()
        self._following.clear()
        self._subscription = None
        self._watchers.clear()
        self.background.renew_lock()
        was_set, self._arrived = self._arrived.is_set(), threading.Event()
        if was_set:
            self._arrived.set()
        self._tables.share = random.random()  # noqa: S311  # no secret
