"""Limits on calls in progress, so that one caller can neither fill the memory nor delay the others."""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from ipaddress import IPv6Address, ip_address
from urllib.parse import unquote

import structlog

from isochrone_collector.clock import now_at
from isochrone_collector.errors import DatabaseUnavailable, DeadlineExceeded, ResourceExhausted
from isochrone_collector.recent_values import RecentValues
from isochrone_wire.model import SECOND_US

_WAIT_S = 10.0
# The time limit for the arrival of a request without a credential, and that while others wait for a slot.
_ARRIVAL_S, _HURRIED_S = 5.0, 0.25
# The least delay before a caller without a credential that calls too often is refused, the refusals per second, and the
# calls that may wait for one, with 30 kB each.
_PAUSE_S, _REFUSED_PER_S, _PAUSED_CALLS = 1.0, 200.0, 4_000
# When too many calls wait, the refused ones are to retry at this rate, within this time: half as fast as a core answers
# pushes, and for all connections that there may be.
_RETRIES_PER_S, _RETRY_WITHIN_S = 200.0, 30.0
# A holder of an IPv6 address has a whole network of them.
_IPV6_NETWORK_BITS = 64
_LOGGED_PER_S, _LOGGED_AT_ONCE = 1.0, 50.0
_AT_ONCE = "too many calls at once; try again in a moment"

_log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class LeakyBucket:
    """A rate limit: `burst` events at once, and `per_second` in the long run. A clock that goes back drains nothing."""

    per_second: float
    burst: float
    level: float = 0.0
    seen_at: int = 0

    def take(self, now_at: int) -> bool:
        """Return whether one more event is allowed at that instant (microseconds), and count it if so."""
        self.level = max(0.0, self.level - max(0, now_at - self.seen_at) * self.per_second / SECOND_US)
        self.seen_at = now_at
        if self.level + 1 > self.burst:
            return False
        self.level += 1
        return True


class BucketPerKey:
    """A `LeakyBucket` per key, for the `keys` most recent ones."""

    def __init__(self, *, per_second: float, burst: float, keys: int = 10_000) -> None:
        self._new = partial(LeakyBucket, per_second=per_second, burst=burst)
        self._buckets = RecentValues[LeakyBucket](keys)

    def take(self, key: str, now_at: int) -> bool:
        """Return whether one more event of that key is allowed at that instant (microseconds), and count it if so."""
        return self._buckets.get(key, self._new).take(now_at)


class Turns:
    """Delays that spread simultaneous callers over time at an even rate."""

    def __init__(self) -> None:
        # The loop's time of the last turn.
        self._last = 0.0

    def next_s(self, *, per_second: float, first_s: float, most_s: float) -> float:
        """Return the time until the next turn, between `first_s` and `most_s` seconds."""
        now = asyncio.get_running_loop().time()
        self._last = min(max(self._last + 1 / per_second, now + first_s), now + most_s)
        return self._last - now


class CallSlots:
    """At most `each` calls of a key and `total` calls at once. Up to `queue` more calls of a key wait for 10 s, and up
    to `waiting` of all keys for the total, in the order of their arrival. Calls beyond that are refused at once, each
    with a different delay for its retry.
    """

    def __init__(self, *, total: int, each: int, queue: int = 256, waiting: float = math.inf) -> None:
        self._each, self._queue, self._max_waiting = each, queue, waiting
        self._total = asyncio.Semaphore(total)
        self._calls: Counter[str] = Counter()
        self._semaphores: dict[str, asyncio.Semaphore] = {}
        self._waiting = 0
        self._retries = Turns()

    @asynccontextmanager
    async def hold(self, key: str | None) -> AsyncIterator[None]:
        """Hold a slot within the block; `None` needs none. Raises `ResourceExhausted`."""
        if key is None:
            yield
            return
        if self._calls[key] >= self._each + self._queue:
            raise ResourceExhausted(_AT_ONCE)
        self._calls[key] += 1
        own = self._semaphores.setdefault(key, asyncio.Semaphore(self._each))
        try:
            await _acquire(own)
            try:
                async with self._slot_of_total():
                    yield
            finally:
                own.release()
        finally:
            self._calls[key] -= 1
            if not self._calls[key]:
                del self._calls[key], self._semaphores[key]

    @asynccontextmanager
    async def _slot_of_total(self) -> AsyncIterator[None]:
        if self._waiting >= self._max_waiting:
            delay_s = self._retries.next_s(per_second=_RETRIES_PER_S, first_s=1.0, most_s=_RETRY_WITHIN_S)
            raise ResourceExhausted("too many calls wait; try again later", delay_us=round(delay_s * SECOND_US))
        self._waiting += 1
        try:
            await _acquire(self._total)
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._total.release()


class ArrivalSlots(CallSlots):
    """Slots for requests that are being received, 5 s each, and 0.25 s while others wait for a slot: a request that is
    sent at once, as clients do, gets through while many callers send theirs slowly.
    """

    def __init__(self, *, total: int, each: int) -> None:
        super().__init__(total=total, each=each)
        # The deadlines of the requests with a slot, and the loop's time at which each got it.
        self._begun: dict[asyncio.Timeout, float] = {}

    @asynccontextmanager
    async def _slot_of_total(self) -> AsyncIterator[None]:
        """Hold a slot within the block, which waits for the request. Raises `DeadlineExceeded` as well."""
        for deadline, begun in self._begun.items() if self._total.locked() else ():
            if not deadline.expired():
                deadline.reschedule(begun + _HURRIED_S)
        try:
            async with (
                super()._slot_of_total(),
                asyncio.timeout(_HURRIED_S if self._waiting else _ARRIVAL_S) as deadline,
            ):
                self._begun[deadline] = asyncio.get_running_loop().time()
                try:
                    yield
                finally:
                    del self._begun[deadline]
        except TimeoutError:
            raise DeadlineExceeded("the request did not arrive in time") from None


class RefusalPause:
    """The delay before callers without a valid credential that call too often are refused. gRPC itself refuses calls
    beyond the streams of a connection, at a fraction of the cost, so such a caller does not keep the collector busy.
    """

    def __init__(self) -> None:
        self._calls = 0
        self._turns = Turns()

    async def wait(self) -> None:
        """Wait for a second, longer if there are more than 200 refusals per second, not at all if 4 000 calls wait."""
        if self._calls >= _PAUSED_CALLS:
            return
        self._calls += 1
        try:
            # Calls that were cancelled do not delay others indefinitely.
            most_s = _PAUSE_S + _PAUSED_CALLS / _REFUSED_PER_S
            await asyncio.sleep(self._turns.next_s(per_second=_REFUSED_PER_S, first_s=_PAUSE_S, most_s=most_s))
        finally:
            self._calls -= 1


@dataclass(eq=False, kw_only=True)
class StreamCounts:
    """A limit of `each` streams of a key at once; more are refused."""

    each: int

    def __post_init__(self) -> None:
        self._open: Counter[str] = Counter()

    @contextmanager
    def hold(self, key: str | None) -> Iterator[None]:
        """Count a stream within the block; `None` is not limited. Raises `ResourceExhausted`."""
        if key is None:
            yield
            return
        if self._open[key] >= self.each:
            limit = f"the limit of {self.each} open streams of one caller is reached"
            raise ResourceExhausted(f"{limit}; close one, or retry later")
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            self._open += Counter()  # forgets keys without a stream


def host_of(peer: str) -> str:
    """Return the address of a gRPC peer such as `ipv4:192.0.2.1:4711`, without its port; of a socket what its name has
    after an `@`, which is the client's address behind a front, or `unix`.
    """
    family, _, rest = unquote(peer).partition(":")
    if family in ("ipv4", "ipv6"):
        return rest.rpartition(":")[0].strip("[]")
    _, is_fronted, client = rest.rpartition("@")
    return client if is_fronted else family


def address_key(peer: str) -> str:
    """Return the key of a gRPC peer that has no credential: its address, or its network for IPv6."""
    return network_of(host_of(peer))


@lru_cache(maxsize=4_096)
def network_of(host: str) -> str:
    """Return an IPv4 address as it is, and the /64 network of an IPv6 address; other texts as they are."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    shift = address.max_prefixlen - _IPV6_NETWORK_BITS
    return f"{IPv6Address(int(address) >> shift << shift)}/{_IPV6_NETWORK_BITS}"


async def _acquire(semaphore: asyncio.Semaphore) -> None:
    """Acquire a semaphore. Raises `ResourceExhausted` after 10 s."""
    try:
        # There is no timer if no wait is needed.
        async with asyncio.timeout(_WAIT_S if semaphore.locked() else None):
            await semaphore.acquire()
    except TimeoutError:
        raise ResourceExhausted(_AT_ONCE) from None


class RefusalLog:
    """Logs at most one `event` per second after a burst of 50. `clock` returns microseconds since the epoch."""

    def __init__(self, event: str = "request.refused", *, clock: Callable[[], int] = now_at) -> None:
        self._event, self._clock = event, clock
        self._bucket = LeakyBucket(per_second=_LOGGED_PER_S, burst=_LOGGED_AT_ONCE)
        self._left_out = 0

    def write(self, **fields: str) -> None:
        """Log an event, or count it for the next line."""
        if not self._bucket.take(self._clock()):
            self._left_out += 1
            return
        left_out, self._left_out = self._left_out, 0
        _log.warning(self._event, **fields, **({"left_out": left_out} if left_out else {}))


REFUSALS = RefusalLog()
"""The log of this process, for gRPC and HTTP."""

_UNAVAILABLE = RefusalLog("database.unavailable")


@contextmanager
def without_details() -> Iterator[None]:
    """Replace errors of the database by one without its text, for callers without a credential; log the text."""
    try:
        yield
    except DatabaseUnavailable as error:
        _UNAVAILABLE.write(reason=str(error))
        raise DatabaseUnavailable("the database is unavailable at the moment; try again later") from error
