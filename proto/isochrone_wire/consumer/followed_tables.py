"""The tables of a region that a gateway uses at an instant, by the rules for consumers of docs/routing.md.

A table with other weights is applied after this consumer's share of the time over which all consumers change; a table
that may not be used gives way to the static order.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from isochrone_wire.consumer.static_order import as_static_order
from isochrone_wire.routes import RouteEntry, RouteTable, is_usable


@dataclass(slots=True)
class FollowedRoute:
    """The newest table of a route, and the one in use; `apply_at` is when the newest takes its place."""

    newest: RouteTable
    in_use: RouteTable
    apply_at: int | None = None

    def receive(self, table: RouteTable, *, share: float) -> None:
        """Note a newer table. One that arrives while another waits does not prolong the wait."""
        self.newest = table
        if _weights(table) == _weights(self.in_use):
            self.in_use, self.apply_at = table, None
        elif self.apply_at is None:
            self.apply_at = table.built_at + round(share * table.move_within_us)

    def is_expired(self, now_at: int) -> bool:
        """Return whether the newest table may not be used any more."""
        return now_at >= self.newest.stale_until_at

    def advance(self, now_at: int) -> RouteTable:
        """The table in use at that instant."""
        if self.apply_at is not None and now_at >= self.apply_at:
            self.in_use, self.apply_at = self.newest, None
        return self.in_use


@dataclass(slots=True)
class FollowedTables:
    """The routes of a region by name. `share` (0 to 1) is this consumer's place among all; `endpoints` is by target."""

    share: float
    routes: dict[str, FollowedRoute] = field(default_factory=dict)
    endpoints: dict[str, RouteEntry] = field(default_factory=dict)

    def receive(self, table: RouteTable) -> None:
        """Note a table, as the newest of its route; the first one of a route is in use at once."""
        self.endpoints |= {entry.target: entry for entry in table.entries}
        known = self.routes.get(table.route)
        if known is None:
            self.routes[table.route] = FollowedRoute(table, table)
        elif known.newest != table:
            known.receive(table, share=self.share)

    def keep_only(self, routes: Iterable[str]) -> None:
        """Forget every other route: the plan no longer has it."""
        kept = set(routes)
        self.routes = {name: route for name, route in self.routes.items() if name in kept}

    def forget_removed(self, planned: Collection[str], now_at: int) -> None:
        """Forget the routes that the plan no longer has, `planned` being those it has, once their tables expire."""
        self.keep_only(name for name, route in self.routes.items() if name in planned or not route.is_expired(now_at))

    def at(self, now_at: int) -> tuple[RouteTable, ...]:
        """The tables to follow at that instant, by route: usable ones, and static orders, if they have a member."""
        tables = (route.advance(now_at) for _, route in sorted(self.routes.items()))
        shown = (one if is_usable(one, now_at=now_at) else as_static_order(one, self.endpoints) for one in tables)
        return tuple(table for table in shown if table.entries)

    def next_change_at(self, now_at: int) -> int | None:
        """The next instant at which `at` changes without a new table."""
        instants = (at for route in self.routes.values() for at in (route.apply_at, route.in_use.stale_until_at))
        return min((at for at in instants if at is not None and at > now_at), default=None)


def routing_of(tables: Iterable[RouteTable]) -> Mapping[str, object]:
    """The behaviour of a gateway by the tables, by route, without the numbers that each new round changes."""
    return {
        table.route: tuple(
            (entry.target, entry.rank, entry.weight, entry.model, entry.dialect, entry.base_url, entry.credential_ref)
            + ((entry.hedge.target, entry.hedge.delay_us is None) if entry.hedge else ())
            for entry in table.entries
        )
        for table in tables
    }


def _weights(table: RouteTable) -> dict[str, float]:
    return {entry.target: entry.weight for entry in table.entries}
