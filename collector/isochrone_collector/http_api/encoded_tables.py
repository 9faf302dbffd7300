"""Tables as bytes, each encoded once however many ask for it."""

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from isochrone_wire.json_format import to_json_value
from isochrone_wire.routes import RegionTables, RouteTable

_MAX_ENTRIES = 512
_VOLATILE = ("answered_at", "stale_since_at")


def encode(value: object) -> bytes:
    """A value of the wire as JSON on one line: instants are RFC 3339 text."""
    return json.dumps(to_json_value(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def encode_line(value: object) -> bytes:
    """The same as a whole answer, with the end of the line, so that a shell shows one below the other."""
    return encode(value) + b"\n"


class EncodedTables:
    """The newest encodings, by the tags of what is in them."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, bytes] = OrderedDict()

    def region(self, region: RegionTables) -> bytes:
        """The tables of a region as JSON, without what is of the moment they are asked for: the same tables are the
        same bytes, and headers tell the time and whether the database is away.
        """
        key = (region.client_region, *(table.etag for table in region.tables))
        return self._once(key, lambda: encode_line(_without_volatile(region)))

    def event(self, table: RouteTable) -> bytes:
        """A table as a server-sent event, whose id is the generation."""
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
