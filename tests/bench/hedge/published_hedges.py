"""The hedges that a collector publishes meanwhile: their delays, and the reasons of tables without one."""

import asyncio
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx2

_EVERY_S = 1.0
_FAILS = {"reason": "a member fails", "delay_us": None}


@dataclass(slots=True)
class PublishedHedges:
    """The hedge of each generation of each route of a region, as the collector at `url` shows it."""

    url: str
    region: str
    by_route: dict[str, dict[int, Mapping[str, Any]]] = field(default_factory=dict)

    async def follow(self) -> None:
        """Ask for the tables every second until cancelled: the shortest epoch has five."""
        async with httpx2.AsyncClient() as client:
            while True:
                answer = await client.get(f"{self.url}/v1/routes/{self.region}")
                for table in answer.json()["tables"]:
                    hedge = table["entries"][0]["hedge"] if table["entries"] else None
                    self.by_route.setdefault(table["route"], {})[table["generation"]] = hedge or _FAILS
                await asyncio.sleep(_EVERY_S)

    def summary(self, route: str) -> str:
        """Return how many tables had a hedge, and how many none for which reason; the changes between these; delays."""
        hedges = [hedge for _, hedge in sorted(self.by_route.get(route, {}).items())]
        delays_ms = [hedge["delay_us"] / 1000 for hedge in hedges if hedge["delay_us"] is not None]
        reasons = Counter(re.split("[,:]", hedge["reason"])[0] or "published" for hedge in hedges)
        changes = sum(bool(one["reason"]) != bool(other["reason"]) for one, other in pairwise(hedges))
        delay = f", after {min(delays_ms):.0f} to {max(delays_ms):.0f} ms" if delays_ms else ""
        return f"{dict(reasons)}, {changes} changes{delay}"
