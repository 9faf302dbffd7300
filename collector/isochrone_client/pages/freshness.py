"""Freshness of route tables."""

from enum import StrEnum

from isochrone_client.formats import age
from isochrone_wire.routes import RouteTable


class Freshness(StrEnum):
    """`FRESH`: use the table. `AGING`: use it, but it no longer switches. `EXPIRED`: do what `on_expired` states."""

    FRESH = "fresh"
    AGING = "aging"
    EXPIRED = "expired"


def freshness(table: RouteTable, *, now_at: int) -> Freshness:
    """The freshness of the table at `now_at` (microseconds since the epoch)."""
    if now_at >= table.stale_until_at:
        return Freshness.EXPIRED
    return Freshness.FRESH if now_at < table.fresh_until_at else Freshness.AGING


def freshness_text(table: RouteTable, *, now_at: int) -> str:
    """`fresh for 38 s`, `aging, usable for 2 min` or `expired 5 min ago: use the static order`."""
    state = freshness(table, now_at=now_at)
    if state is Freshness.FRESH:
        return f"fresh for {age(now_at, now_at=table.fresh_until_at)}"
    if state is Freshness.AGING:
        return f"aging, usable for {age(now_at, now_at=table.stale_until_at)}"
    return f"expired {age(table.stale_until_at, now_at=now_at)} ago: use the static order"
