"""`isochrone routes export --check`: whether an exported file is kept up to date, for monitoring. Asks no collector."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

from isochrone_client.errors import FileError, StaticOrderError
from isochrone_client.formats import age
from isochrone_client.gateways import metadata_reader
from isochrone_wire.durations import SECOND_US
from isochrone_wire.routes import RouteState

_IS_FOLLOWED = "is `isochrone routes export --follow` running?"


def check(path: Path, kind: str, *, now_at: int) -> str:
    """A sentence about the tables of the file.

    Raises `FileError` if the file is missing, has other content or an expired table, and `StaticOrderError` if a
    route has its static order.
    """
    tables = _read(path, kind)
    static = _names(table for table in tables if table["state"] == RouteState.INSUFFICIENT_DATA.value)
    if static:
        raise StaticOrderError(
            f"{path} has the static order of {static}", hint="is the collector reachable? see `isochrone routes`"
        )
    stale_at = min(_microseconds(table["stale_until_at"]) for table in tables)
    if now_at >= stale_at:
        expired = _names(table for table in tables if _microseconds(table["stale_until_at"]) <= now_at)
        raise FileError(f"{path} expired {age(stale_at, now_at=now_at)} ago: {expired}", hint=_IS_FOLLOWED)
    newest = max(int(table["generation"]) for table in tables)
    return f"{path} has generation {newest}, usable for {age(now_at, now_at=stale_at)}"


def _read(path: Path, kind: str) -> list[Mapping[str, str]]:
    try:
        tables = list(metadata_reader(kind)(path.read_text()))
        if tables and all(_microseconds(table["stale_until_at"]) and int(table["generation"]) for table in tables):
            return tables
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}", hint=_IS_FOLLOWED) from error
    except (ValueError, KeyError, TypeError) as error:
        raise _not_an_export(path, kind) from error
    raise _not_an_export(path, kind)


def _not_an_export(path: Path, kind: str) -> FileError:
    return FileError(f"{path} is no {kind} export with tables", hint=_IS_FOLLOWED)


def _microseconds(instant: str) -> int:
    return round(datetime.fromisoformat(instant).timestamp() * SECOND_US)


def _names(tables: Iterable[Mapping[str, str]]) -> str:
    return ", ".join(sorted({table["route"] for table in tables}))
