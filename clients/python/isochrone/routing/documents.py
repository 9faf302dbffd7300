"""Route tables from their JSON form. A document that is wrong in any field on which a client acts is an error.

Fields that only people read (other quantiles, evidence, prices) are not read.
"""

import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from isochrone_common.route_consumer import contradiction
from isochrone_wire.answers import Quantile, Window
from isochrone_wire.durations import MINUTE_US, SECOND_US
from isochrone_wire.model import Slo
from isochrone_wire.routes import SCHEMA, Hedge, Provenance, RouteEntry, RouteState, RouteTable

_NOT_READ = {
    "slo": Slo(),
    "window": Window(from_at=0, until_at=0),
    "provenance": Provenance(plan_version=0, code_version="", inputs_sha256=""),
}


class RoutingError(Exception):
    """Root of the errors of routing."""


class TableError(RoutingError):
    """A document that is not a route table, or one on which clients must not act; the client ignores it."""


def read_table(text: str | bytes) -> RouteTable:
    """Read one table. Raises `TableError`, which names the field."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TableError(f"not JSON: {error}") from error
    if isinstance(document, dict) and document.get("schema") != SCHEMA:
        raise TableError(f"schema is {document.get('schema')!r}, not {SCHEMA!r}")
    found: Any = {**_read(document, "the table", _TABLE), **_NOT_READ}
    table = RouteTable(**found | {"entries": tuple(map(read_entry, found["entries"]))})
    if why := contradiction(table):
        raise TableError(why)
    return table


def read_planned(text: str | bytes) -> frozenset[str]:
    """Read the routes of the plan from the overview of a collector. Raises `TableError`, also if it has no plan."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TableError(f"not JSON: {error}") from error
    return frozenset(_read(document, "the overview", {"plan_version": _positive, "routes": _texts})["routes"])


def require_region(table: RouteTable, region: str) -> None:
    """Raise `TableError` for a table of another region."""
    if table.client_region != region:
        raise TableError(f"client_region is {table.client_region!r}, not {region!r}")


def read_entry(document: object) -> RouteEntry:
    """Read a member: where it is, its share, its hedge and its tail. Raises `TableError`."""
    whole = _UNMEASURED | document if isinstance(document, dict) else document
    return RouteEntry(**_read(whole, "an entry", _ENTRY))


def _read(document: object, what: str, readers: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """Return the fields that have a reader. Raises `TableError`, which names the field."""
    if not isinstance(document, dict):
        raise TableError(f"{what} is no object")
    found = {}
    for name, read in readers.items():
        if name not in document:
            raise TableError(f"{name} is missing")
        try:
            found[name] = read(document[name])
        except (ValueError, TypeError, OverflowError) as error:
            raise TableError(f"{name} is {str(document[name])[:80]!r}") from error
    return found


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _texts(value: object) -> tuple[str, ...]:
    return tuple(_text(one) for one in _list(value))


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError
    return value


def _integer(value: object) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool) or value != int(value):
        raise ValueError
    return int(value)


def _positive(value: object) -> int:
    if (number := _integer(value)) < 1:
        raise ValueError
    return number


def _up_to(limit: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if not 0 <= (number := _integer(value)) <= limit:
            raise ValueError
        return number

    return read


def _share(value: object) -> float:
    if (number := _measure(value)) > 1:
        raise ValueError
    return number


def _measure(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise ValueError
    return float(value)


def _quantile(value: object) -> Quantile:
    if not isinstance(value, dict):
        raise TypeError
    high = value.get("high")
    return Quantile(value=_measure(value.get("value")), high=None if high is None else _measure(high))


def _instant(value: object) -> int:
    instant = datetime.fromisoformat(_text(value))
    if instant.tzinfo is None:
        raise ValueError
    return round(instant.timestamp() * SECOND_US)


def _http_url(value: object) -> str:
    parts = urlsplit(text := _text(value))
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.port == 0:
        raise ValueError
    parts.netloc.encode("idna")  # in which form requests have it
    return text


def _optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


_TABLE: Mapping[str, Callable[[Any], Any]] = {
    "generation": _positive,
    "etag": _text,
    "client_region": _text,
    "route": _text,
    "built_at": _instant,
    "fresh_until_at": _instant,
    "stale_until_at": _instant,
    "state": RouteState,
    "entries": _list,
    "static_order": _texts,
    "unassigned": _share,
    "move_within_us": _up_to(60 * MINUTE_US),
}
_ENTRY: Mapping[str, Callable[[Any], Any]] = {
    "rank": _positive,
    "weight": _share,
    "target": _text,
    "provider": _text,
    "model": _text,
    "dialect": _text,
    "base_url": _http_url,
    "credential_ref": _optional(_text),
    "hedge": _optional(lambda value: Hedge(**_read(value, "hedge", _HEDGE))),
    "ttft_p95_us": _optional(_quantile),
    "tokens_per_second_p50": _optional(_quantile),
}
_UNMEASURED = dict.fromkeys(("hedge", "ttft_p95_us", "tokens_per_second_p50"))
_HEDGE: Mapping[str, Callable[[Any], Any]] = {"target": _text, "delay_us": _optional(_up_to(60 * SECOND_US))}
