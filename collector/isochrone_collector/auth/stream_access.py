"""Access of streams and long polls, checked again while they run."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from isochrone_collector.errors import DatabaseUnavailable, TooMany

RECHECK_S = 2.0
"""Interval at which the credential of a stream is checked again, in seconds."""

MAX_WATCHES = 2_000
"""Maximum number of watches of route tables of one caller, over gRPC and over HTTP."""

_Result = TypeVar("_Result")


async def while_valid(work: Coroutine[Any, Any, _Result], recheck: Callable[[], Awaitable[object]] | None) -> _Result:
    """Return the result of `work`; cancel it when `recheck`, called every two seconds, raises that access has ended."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=RECHECK_S)
            if not task.done() and recheck is not None:
                await still_valid(recheck)
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def still_valid(recheck: Callable[[], Awaitable[object]]) -> None:
    """Raise if access has ended. While it cannot be checked, it continues."""
    try:
        await recheck()
    except (DatabaseUnavailable, TooMany):
        return
