"""The stream of a region's tables from a collector, without end; and the collector's clock, by which tables expire.

The clock is read from the `Date` header of the responses.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import quote

import httpcore

from isochrone.routing.documents import TableError, read_planned, read_table, require_region
from isochrone_common.route_consumer import Relation, TableCursor
from isochrone_common.sse import SseDecoder
from isochrone_wire.durations import SECOND_US
from isochrone_wire.routes import RouteTable

# The header has whole seconds.
_TOLERANCE_US = 2 * SECOND_US
_TIMEOUT = {"connect": 5.0, "write": 5.0, "pool": 5.0, "read": 25.0}
_OK = 200
_MOST_REFUSAL_BYTES = 500
log = logging.getLogger("isochrone.routing")
OnTable = Callable[[RouteTable, str], None]
Count = Callable[[str], None]


def _wall_us() -> int:
    return time.time_ns() // 1000


def _steady_us() -> int:
    """A clock that counts while the machine is suspended, too; on macOS it is the one that stops on Linux."""
    clock = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
    return (time.monotonic_ns() if clock is None else time.clock_gettime_ns(clock)) // 1000


@dataclass(slots=True)
class CollectorClock:
    """The collector's clock: its last `Date` header and a steady clock since; without one, this machine's clock."""

    _ahead_us: int | None = None

    def now_at(self) -> int:
        """The instant, in microseconds since the epoch."""
        return _wall_us() if self._ahead_us is None else _steady_us() + self._ahead_us

    def set(self, date: str) -> None:
        """Set the clock by a `Date` header that has just arrived."""
        wall_us = _wall_us()
        self._ahead_us = wall_us + lead_us(date, now_at=wall_us) - _steady_us()


def lead_us(date: str, *, now_at: int) -> int:
    """The lead of the clock that wrote a `Date` header over this one, in microseconds; zero below two seconds."""
    try:
        lead = round(parsedate_to_datetime(date).timestamp() * SECOND_US) - now_at
    except (ValueError, OverflowError):
        return 0
    return lead if abs(lead) > _TOLERANCE_US else 0


class RefusedError(Exception):
    """The collector refused the stream."""


@dataclass(eq=False, repr=False, kw_only=True)
class Subscription:
    """The tables of `region` at the collector at `url`. `on_table` receives each newer table with its JSON, `count`
    the name of each event for the counters, and `clock` the collector's instants.
    """

    pool: httpcore.AsyncConnectionPool
    url: str
    region: str
    token: str | None
    on_table: OnTable
    count: Count
    clock: CollectorClock
    server_name: str | None = None

    def __post_init__(self) -> None:
        self._extensions = {"timeout": _TIMEOUT} | ({"sni_hostname": self.server_name} if self.server_name else {})
        self._overview_url = f"{self.url.rstrip('/')}/v1/routes"
        self._url = f"{self._overview_url}/{quote(self.region, safe='')}/watch"
        self._access = [("authorization", f"Bearer {self.token}")] if self.token else []
        self._cursor = TableCursor()
        self._failures, self._is_reported = 0, False

    async def run(self) -> None:
        """Receive until cancelled; reconnect after a random time that grows with each failure."""
        while True:
            try:
                await self._receive()
            except RefusedError as error:
                self.count("refused")
                self._report(f"the collector refused {self._url}: {error}")
            except Exception as error:  # noqa: BLE001  # whatever a stream does, the next one is opened
                self.count("disconnected")
                self._report(f"no stream of {self._url}: {type(error).__name__} {error}")
            self._failures += 1
            await asyncio.sleep(min(30.0, 2.0 ** (self._failures - 1)) * random.uniform(0.5, 1.5))  # noqa: S311  # no secret

    async def planned_routes(self) -> frozenset[str] | None:
        """Return the routes of the plan in force; `None` if the collector cannot be asked, or has no plan."""
        headers = [("accept", "application/json"), *self._access]
        try:
            response = await self.pool.request("GET", self._overview_url, headers=headers, extensions=self._extensions)
            return read_planned(response.content) if response.status == _OK else None
        except Exception as error:  # noqa: BLE001  # whatever happens, it is asked again
            log.debug("no plan from %s: %s %s", self._overview_url, type(error).__name__, error)
            return None

    def _report(self, text: str) -> None:
        """Log the first of the failures in a row. The end of a stream, as when a collector stops, is none."""
        log.log(logging.DEBUG if self._is_reported else logging.WARNING, "%s; the last tables stay in use", text)
        self._is_reported = True

    async def _receive(self) -> None:
        resume = [("last-event-id", str(self._cursor.generation))] if self._cursor.generation else []
        headers = [("accept", "text/event-stream"), *self._access, *resume]
        async with self.pool.stream("GET", self._url, headers=headers, extensions=self._extensions) as response:
            if date := next((value for name, value in response.headers if name.lower() == b"date"), None):
                self.clock.set(date.decode("latin-1"))
            if response.status != _OK:
                raise RefusedError(f"{response.status} {await _beginning(response)}")
            decoder = SseDecoder()
            async for data in response.aiter_stream():
                for event in decoder.receive(data):
                    if self._take(event.data) is Relation.OTHER_DATABASE:
                        self._cursor = TableCursor()
                        return
                self._failures, self._is_reported = 0, False

    def _take(self, data: bytes) -> Relation:
        try:
            table = read_table(data)
            require_region(table, self.region)
        except TableError as error:
            self.count("tables_ignored")
            log.warning("ignored what %s sent: %s", self._url, str(error)[:_MOST_REFUSAL_BYTES])
            return Relation.OLDER
        relation = self._cursor.compare(table)
        if relation is Relation.NEWER:
            self._cursor = self._cursor.advance(table)
            self.on_table(table, data.decode())
        return relation


async def _beginning(response: httpcore.Response) -> str:
    """The first data of a refusal, which lists the existing names."""
    async for data in response.aiter_stream():
        return data[:_MOST_REFUSAL_BYTES].decode(errors="replace").strip()
    return ""
