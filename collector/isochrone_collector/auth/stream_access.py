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
    """Return the result of `work`; cancel it when `recheck`, called every two seconds, raises that access has ended.
    Access to open calls, without `recheck`, does not end.
    """
    if recheck is None:
        return await work
    task = asyncio.ensure_future(work)
    # Its own task, because a thousand streams wait all the time: a timeout for `task` would cost twice as much.
    checks = asyncio.ensure_future(_check_until_done(task, recheck))
    try:
        await asyncio.wait({task, checks}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            checks.result()
        return task.result()
    finally:
        task.cancel()
        checks.cancel()
        await asyncio.gather(task, checks, return_exceptions=True)
        # Their errors refer to this frame, which would keep the call until garbage is collected.
        del task, checks


async def _check_until_done(work: "asyncio.Future[Any]", recheck: Callable[[], Awaitable[object]]) -> None:
    """Raise as soon as `recheck` says that access has ended, and return once the work is done."""
    # Not until it is cancelled: a check that is cancelled may end with another error.
    while not work.done():
        await asyncio.sleep(RECHECK_S)
        await still_valid(recheck)


async def still_valid(recheck: Callable[[], Awaitable[object]]) -> None:
    """Raise if access has ended. While it cannot be checked, it continues."""
    try:
        await recheck()
    except (DatabaseUnavailable, TooMany):
        return
