"""Route tables in the terms of gateways: their members, and the metadata of tables. Pure."""

import json
import re
from collections.abc import Iterator, Mapping

from isochrone_wire.json_format import rfc3339
from isochrone_wire.routes import RegionTables, RouteEntry, RouteTable

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
    """The same metadata as sentences, for the head of a file."""
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
