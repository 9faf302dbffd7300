"""The effectiveness of routing: the share of the requests that follow the weights of their tables.

A gateway may ignore the order that it is given, and a client may have no key for a member: tables change then, and
traffic does not. Only the first attempt of a request counts, and none while a member with weight rests after a failure.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from isochrone_wire.routes import RouteEntry

if TYPE_CHECKING:
    from prometheus_client import Gauge

_LEAST, _AGAIN = 0.9, 0.95
"""Routing is not effective below the first share, as for the alert of deploy/prometheus, until it reaches the other."""
_ENOUGH, _LATEST = 20, 100


def followed(members: Iterable[RouteEntry], *, usable: Collection[str], resting: Collection[str]) -> float | None:
    """The share of the members' weight that a request can follow if it goes by weight to the `usable` ones; `None`
    while one with weight is `resting`. Without any weight it follows the ranks, which is what the table wants.
    """
    weights = {entry.target: entry.weight for entry in members if entry.weight > 0}
    if not weights.keys().isdisjoint(resting):
        return None
    return sum(weights[target] for target in weights if target in usable) / sum(weights.values()) if weights else 1.0


@dataclass(slots=True)
class Effectiveness:
    """The mean over the latest requests of a route, about a hundred."""

    _mean: float = 1.0
    _count: int = 0
    _is_effective: bool = True

    @property
    def share(self) -> float | None:
        """`None` before twenty requests."""
        return None if self._count < _ENOUGH else self._mean

    def add(self, followed: float) -> bool:
        """Note a request, with the share of the weights that it followed. Return whether it is the one after which
        routing is no longer effective.
        """
        was_effective, self._count = self._is_effective, self._count + 1
        self._mean += (followed - self._mean) / min(self._count, _LATEST)
        self._is_effective = self._count < _ENOUGH or self._mean >= (_LEAST if was_effective else _AGAIN)
        return was_effective and not self._is_effective


@cache
def gauge() -> "Gauge":
    """The metric of this process, in the registry of `prometheus_client`; with several processes, the newest value."""
    from prometheus_client import Gauge  # noqa: PLC0415  # only where metrics are asked for

    return Gauge(
        "isochrone_routing_effective",
        "Share of the latest requests that went where the weights of the table send them.",
        ("client_region", "route"),
        multiprocess_mode="mostrecent",
    )
