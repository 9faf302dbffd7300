"""Answers shared by callers who ask the same at nearly the same time: the query runs once for all of them.

This is for callers that accept an answer of some age and state it (`Cache-Control: max-age=60`), and open pages. All
others get an answer of their own. However slow a query is, sharing leaves it a twentieth of the time.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from starlette.datastructures import Headers

Answer = TypeVar("Answer")

MIN_SHARED_S = 1.0
"""How long an answer is shared at least, in seconds, if its callers accept that."""

PAGE_AGE_S = 60.0
"""The age of an answer that pages accept, in seconds."""

_SHARED_SHARE = 20
_MAX_ENTRIES = 256
_MAX_AGE = re.compile(r"(?:^|[\s,])max-age=([0-9]{1,6})(?:$|[\s,])")


@dataclass(slots=True)
class _Entry(Generic[Answer]):
    """A query that was begun at a time of the loop, and how long it took; `None` while it runs."""

    task: "asyncio.Task[Answer]"
    began_s: float
    took_s: float | None = None

    def age_s(self, now_s: float) -> float:
        """Return the age of the answer, in seconds; that of a query that runs is 0."""
        return 0.0 if self.took_s is None else now_s - self.began_s

    @property
    def lasts_s(self) -> float:
        """How long the answer is shared, in seconds."""
        return max(MIN_SHARED_S, _SHARED_SHARE * (self.took_s or 0.0))


class SharedAnswers(Generic[Answer]):
    """The newest answers by their questions."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, _Entry[Answer]] = OrderedDict()

    async def get(
        self, key: Hashable, make: Callable[[], Awaitable[Answer]], *, max_age_s: float
    ) -> tuple[Answer, float]:
        """Return the answer to a question, and its age in seconds, at most `max_age_s`. Raises as `make`."""
        if not max_age_s:
            return await make(), 0.0
        now_s = asyncio.get_running_loop().time()
        entry = self._entries.get(key)
        if entry is None or entry.age_s(now_s) > min(max_age_s, entry.lasts_s):
            entry = self._begin(key, make, now_s)
        # The query goes on for the others if this caller disconnects.
        answer = await asyncio.shield(entry.task)
        return answer, max(0.0, now_s - entry.began_s)

    def _begin(self, key: Hashable, make: Callable[[], Awaitable[Answer]], now_s: float) -> _Entry[Answer]:
        entry = _Entry(asyncio.ensure_future(_made(make)), now_s)
        self._entries[key] = entry
        self._entries.move_to_end(key)
        if len(self._entries) > _MAX_ENTRIES:
            self._entries.popitem(last=False)

        def end(task: "asyncio.Task[Answer]") -> None:
            entry.took_s = asyncio.get_running_loop().time() - entry.began_s
            if (task.cancelled() or task.exception() is not None) and self._entries.get(key) is entry:
                del self._entries[key]

        entry.task.add_done_callback(end)
        return entry


async def _made(make: Callable[[], Awaitable[Answer]]) -> Answer:
    return await make()


def max_age_s(headers: Headers) -> float:
    """Return the age that a request accepts, in seconds, by its Cache-Control header; 0 without one. A page's requests
    that a browser sends before the page's own script have none, and accept what those of the script do.
    """
    found = _MAX_AGE.search(headers.get("cache-control", ""))
    if found:
        return float(found[1])
    is_of_page = headers.get("sec-fetch-site") == "same-origin" and "cache-control" not in headers
    return PAGE_AGE_S if is_of_page else 0.0
