"""Cache of encoded tables: each is encoded once for all requests."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from isochrone_wire.json_format import to_json_value
from isochrone_wire.queries.json_text import json_text
from isochrone_wire.routes import RegionTables, RouteTable

_MAX_ENTRIES = 512
_VOLATILE = ("answered_at", "stale_since_at")


def encode(value: object) -> bytes:
    """Encode a wire value as JSON on one line; instants are RFC 3339 text."""
    return json_text(value).encode()


def encode_line(value: object) -> bytes:
    """Encode a value as a response body, with a final newline for terminals."""
    return encode(value) + b"\n"


class EncodedTables:
    """The newest encodings, by the entity tags of their tables."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, bytes] = OrderedDict()

    def region(self, region: RegionTables) -> bytes:
        """Encode the tables of a region, without the fields that change between requests: equal tables give equal
        bytes. Headers report the time and the state of the database.
        """
        key = (region.client_region, *(table.etag for table in region.tables))
        return self._once(key, lambda: encode_line(_without_volatile(region)))

    def event(self, table: RouteTable) -> bytes:
        """Encode a table as a server-sent event; its id is the generation."""
        return self._once(("event", table.etag), lambda: _event(table))

    def _once(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        if key not in self._entries:
            self._entries[key] = make()
            if len(self._entries) > _MAX_ENTRIES:
                self._entries.popitem(last=False)
        return self._entries[key]


def _without_volatile(region: RegionTables) -> dict[str, Any]:
    plain: dict[str, Any] = to_json_value(region)
    return {name: value for name, value in plain.items() if name not in _VOLATILE}


def _event(table: RouteTable) -> bytes:
    return b"id: %d\nevent: table\ndata: %s\n\n" % (table.generation, encode(table))
