"""DNS lookups with the system's resolver, in threads of their own.

A lookup blocks its thread, and the default pool of the event loop has only six threads on two cores: eight probes would
wait for each other, and their DNS times would include that wait. This pool creates threads on demand, at most
`MAX_THREADS`, for which the agent's unit has room; a larger burst waits for them. The time of a lookup is measured in
its thread, so it includes neither loop lag nor a wait for a thread.
"""

import asyncio
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

from isochrone_agent.url import is_address

MAX_THREADS = 64


class NoThread(OSError):  # noqa: N818  # reads as what happened
    """The machine has no thread for a lookup, which says nothing about the provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The first address of a host, in the form that sockets use. `dns_us` is `None` if no lookup was needed."""

    family: int
    address: Any
    dns_us: int | None


async def resolve(host: str, port: int, *, family: int) -> Resolved:
    """Return the first address of the given family. Raises `OSError` with the resolver's message if there is none, and
    `NoThread`.
    """
    if is_address(host):
        return _look_up(host, port, family, socket.AI_NUMERICHOST)
    try:
        looked_up = asyncio.get_running_loop().run_in_executor(_pool(), _look_up, host, port, family, 0)
    except RuntimeError as error:
        raise NoThread(f"no thread for the name lookup: {error}") from error
    return await looked_up


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="resolver")


def _look_up(host: str, port: int, family: int, flags: int) -> Resolved:
    started_ns = time.monotonic_ns()
    try:
        found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=flags)
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, f"{host!r} is not a valid host name") from error
    took_us = (time.monotonic_ns() - started_ns) // 1000
    return Resolved(family=found[0][0], address=found[0][4], dns_us=None if flags else took_us)
