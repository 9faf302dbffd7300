"""Limits on calls in progress, so that one caller can neither fill the memory nor keep the others waiting."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from urllib.parse import unquote

from isochrone_collector.errors import TooMany

_WAIT_S = 10.0
# A holder of an IPv6 address has a whole network of them.
_IPV6_NETWORK_BITS = 64


@dataclass(slots=True)
class _Key:
    semaphore: asyncio.Semaphore
    calls: int = field(default=0)


class CallSlots:
    """At most `each` calls of a key and `total` calls at once. Up to `queue` more calls of a key wait for 10 s."""

    def __init__(self, *, total: int, each: int, queue: int = 256) -> None:
        self._each = each
        self._queue = queue
        self._total = asyncio.Semaphore(total)
        self._keys: dict[str, _Key] = {}

    @asynccontextmanager
    async def hold(self, key: str | None) -> AsyncIterator[None]:
        """Hold a slot within the block; `None` needs none. Raises `TooMany`."""
        if key is None:
            yield
            return
        own = self._keys.setdefault(key, _Key(asyncio.Semaphore(self._each)))
        if own.calls >= self._each + self._queue:
            raise TooMany("too many calls at once; try again in a moment")
        own.calls += 1
        try:
            await _acquired(own.semaphore)
            try:
                await _acquired(self._total)
                try:
                    yield
                finally:
                    self._total.release()
            finally:
                own.semaphore.release()
        finally:
            own.calls -= 1
            if not own.calls:
                del self._keys[key]


class StreamCounts:
    """At most `each` streams of a key at once; more are refused."""

    def __init__(self, *, each: int) -> None:
        self._each = each
        self._open: Counter[str] = Counter()

    @contextmanager
    def hold(self, key: str | None) -> Iterator[None]:
        """Count a stream within the block; `None` is not limited. Raises `TooMany`."""
        if key is None:
            yield
            return
        if self._open[key] >= self._each:
            raise TooMany(f"the limit of {self._each} open streams of one caller is reached; close one, or retry later")
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            self._open += Counter()  # forgets keys without a stream


def address_key(peer: str) -> str:
    """Return the key of a gRPC peer, such as `ipv4:192.0.2.1:4711`, that has no credential: its address without the
    port, or its network for IPv6.
    """
    family, _, rest = unquote(peer).partition(":")
    host = rest.rpartition(":")[0].strip("[]")
    return network_of(host) if family in ("ipv4", "ipv6") else family


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


async def _acquired(semaphore: asyncio.Semaphore) -> None:
    try:
        async with asyncio.timeout(_WAIT_S):
            await semaphore.acquire()
    except TimeoutError:
        raise TooMany("too many calls at once; try again in a moment") from None
