"""Rules for consumers of route tables, the same for every client and export.

A consumer checks each table, because a wrong one would send traffic and keys elsewhere; follows the generations with a
cursor; keeps the newest table of each route; and falls back to the plan's static order without a usable table.
"""

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Self

from isochrone_wire.durations import MINUTE_US, SECOND_US
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import Target
from isochrone_wire.routes import RegionTables, RouteEntry, RouteState, RouteTable, is_usable
from isochrone_wire.text import is_http_url
from isochrone_wire.workloads import DIALECTS

_WEIGHT_TOLERANCE = 1e-6


def defect(table: RouteTable) -> str:
    """The reason for which no consumer may act on the table; empty if it may."""
    for entry in table.entries:
        if not is_http_url(entry.base_url):
            return f"{entry.target} has the base URL {entry.base_url[:80]!r}"
        if entry.dialect not in DIALECTS:
            return f"{entry.target} has the unknown dialect {entry.dialect[:80]!r}"
    if not 0 <= table.move_within_us <= 60 * MINUTE_US:
        return f"move_within_us is {table.move_within_us}"
    shares = [*(entry.weight for entry in table.entries), table.unassigned]
    if not all(0 <= share <= 1 for share in shares):
        return f"the weights and the unassigned share are {', '.join(str(share) for share in shares)}"
    return contradiction(table)


def contradiction(table: RouteTable) -> str:
    """The reason for which the entries of a table do not fit together; empty if they do."""
    targets = [entry.target for entry in table.entries]
    if len(set(targets)) < len(targets):
        return "entries: a target has several entries"
    whole = sum(entry.weight for entry in table.entries) + table.unassigned
    if targets and not math.isclose(whole, 1, abs_tol=_WEIGHT_TOLERANCE):
        return f"weights and unassigned add up to {whole}, not to 1"
    return ""


SENTENCE = "no table may be used: the static order of the plan"


def endpoint(target: Target) -> RouteEntry:
    """A target of the plan as a member without measurements."""
    place = {name: getattr(target, name) for name in ("provider", "model", "dialect", "base_url")}
    return RouteEntry(rank=1, weight=0.0, target=target.name, credential_ref=target.credential, **place)


def as_static_order(table: RouteTable, endpoints: Mapping[str, RouteEntry]) -> RouteTable:
    """The table with its static order: all traffic to the first, the others as fallbacks. `endpoints`: by target."""
    known = [endpoints[name] for name in table.static_order if name in endpoints]
    names = ("target", "provider", "model", "dialect", "base_url", "credential_ref")
    entries = tuple(
        RouteEntry(rank=rank, weight=float(rank == 1), **{name: getattr(entry, name) for name in names})
        for rank, entry in enumerate(known, start=1)
    )
    return replace(
        table,
        state=RouteState.INSUFFICIENT_DATA,
        sentence=SENTENCE,
        entries=entries,
        excluded=(),
        race=None,
        unassigned=0.0,
    )


CLEARLY_LATER_US = 10 * SECOND_US


class Relation(Enum):
    """A table in relation to the tables seen before it."""

    NEWER = "newer"
    OLDER = "older"
    OTHER_DATABASE = "other database"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCursor:
    """The highest generation seen, 0 for none, and the latest `built_at`, `None` if its table was never seen."""

    generation: int = 0
    latest_built_at: int | None = None

    def compare(self, table: RouteTable) -> Relation:
        """Compare a table with those seen so far.

        A collector that is asked for tables after a generation returns lower ones only if it never issued that
        generation, so without `latest_built_at` a lower generation means another database.
        """
        if table.generation > self.generation:
            return Relation.NEWER
        if self.latest_built_at is None or table.built_at > self.latest_built_at + CLEARLY_LATER_US:
            return Relation.OTHER_DATABASE
        return Relation.OLDER

    def advance(self, table: RouteTable) -> Self:
        """The cursor after a newer table."""
        return type(self)(
            generation=table.generation, latest_built_at=max(self.latest_built_at or table.built_at, table.built_at)
        )


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
        shown = (self.table_at(route, now_at) for route in sorted(self.routes))
        return tuple(table for table in shown if table is not None)

    def table_at(self, route: str, now_at: int) -> RouteTable | None:
        """The table of one route, as `at` has it."""
        table = self.routes[route].advance(now_at)
        shown = table if is_usable(table, now_at=now_at) else as_static_order(table, self.endpoints)
        return shown if shown.entries else None

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


_HEADER_LINE = re.compile(
    r"^# (?P<route>.+): generation (?P<generation>\d+), (?P<state>\w+), fresh_until (?P<fresh_until_at>\S+), "
    r"stale_until (?P<stale_until_at>\S+), then \w+\.$",
    re.MULTILINE,
)
_NOT_IN_VARIABLES = re.compile(r"[^A-Za-z0-9]+")


def key_variable(credential_ref: str) -> str:
    """The environment variable of a key: `DEEPSEEK_API_KEY` for `deepseek`."""
    return f"{_NOT_IN_VARIABLES.sub('_', credential_ref).strip('_').upper()}_API_KEY"


def priority_groups(table: RouteTable) -> list[tuple[RouteEntry, ...]]:
    """The members in the order of attempts: those with a weight as one group, then each of the others."""
    weighted = tuple(entry for entry in table.entries if entry.weight > 0)
    unweighted: list[tuple[RouteEntry, ...]] = [(entry,) for entry in table.entries if entry.weight <= 0]
    return [weighted, *unweighted] if weighted else unweighted


def table_metadata(tables: RegionTables) -> Iterator[dict[str, str | int]]:
    """Yield the route, the generation and the instants of each table."""
    for table in tables.tables:
        yield {
            "route": table.route,
            "generation": table.generation,
            "state": table.state.value,
            "built_at": rfc3339(table.built_at),
            "fresh_until_at": rfc3339(table.fresh_until_at),
            "stale_until_at": rfc3339(table.stale_until_at),
            "on_expired": table.on_expired,
        }


def read_json_metadata(text: str) -> Iterator[Mapping[str, str]]:
    """The metadata of each table in a JSON document that has it as `isochrone`."""
    yield from json.loads(text)["isochrone"]


def header_lines(tables: RegionTables) -> list[str]:
    """The metadata of the tables as sentences, for the head of a file."""
    return [
        f"Isochrone: routes from {tables.client_region}, generation {tables.generation}.",
        *(
            f"{one['route']}: generation {one['generation']}, {one['state']}, fresh_until {one['fresh_until_at']}, "
            f"stale_until {one['stale_until_at']}, then {one['on_expired']}."
            for one in table_metadata(tables)
        ),
    ]


def read_header_lines(text: str) -> Iterator[Mapping[str, str]]:
    """The metadata of each table in a file whose comments are the `header_lines`."""
    return (found.groupdict() for found in _HEADER_LINE.finditer(text))
