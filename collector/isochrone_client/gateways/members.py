"""What every gateway needs to know of a table's members."""

import re
from collections.abc import Iterator

from isochrone_wire.json_format import rfc3339
from isochrone_wire.routes import RegionTables, RouteEntry, RouteTable

_NOT_IN_VARIABLES = re.compile(r"[^A-Za-z0-9]+")


def variable_of(credential_ref: str) -> str:
    """The environment variable that a key of this name is looked for in: `deepseek` is in `DEEPSEEK_API_KEY`."""
    return f"{_NOT_IN_VARIABLES.sub('_', credential_ref).strip('_').upper()}_API_KEY"


def groups(table: RouteTable) -> list[tuple[RouteEntry, ...]]:
    """The members in the order in which they are to be tried: those that carry traffic together, then one by one."""
    carrying = tuple(entry for entry in table.entries if entry.weight > 0)
    waiting: list[tuple[RouteEntry, ...]] = [(entry,) for entry in table.entries if entry.weight <= 0]
    return [carrying, *waiting] if carrying else waiting


def stamps(tables: RegionTables) -> Iterator[dict[str, str | int]]:
    """Of which generation each route's table is, and how long it may be used."""
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


def opening(tables: RegionTables) -> list[str]:
    """The same in sentences, for the head of a file."""
    return [
        f"Isochrone: routes from {tables.client_region}, generation {tables.generation}.",
        *(
            f"{one['route']}: generation {one['generation']}, {one['state']}, fresh_until {one['fresh_until_at']}, "
            f"stale_until {one['stale_until_at']}, then {one['on_expired']}."
            for one in stamps(tables)
        ),
    ]
