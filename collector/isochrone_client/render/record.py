"""Rows as JSON records: the wire's fields with their names and units (`isochrone_wire.json_format`).

A row is one object in JSON, nested as on the wire. CSV has the same object flattened: a nested field is a column such
as `ttft_p50_us.low`. Unknown values are null, and so are numbers that JSON cannot express.
"""

import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from isochrone_wire.json_format import to_json_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One column of CSV: its header, and the path of its value in a row's record."""

    header: str
    path: tuple[str, ...]

    def value(self, record: Mapping[str, Any]) -> object:
        """The value at the path; `None` if an object on the path is unknown."""
        part: Any = record
        for name in self.path:
            part = part[name] if part is not None else None
        return part


def row_record(row: object, *, inline: tuple[str, ...] = ()) -> dict[str, Any]:
    """The row as plain data; the fields of the objects named in `inline` become fields of the row."""
    record: dict[str, Any] = to_json_value(row)
    for name in inline:
        record |= record.pop(name)
    return record


def wire_fields(
    cls: type, *, inline: tuple[str, ...] = (), also: tuple[str, ...] = (), units: Mapping[str, str] | None = None
) -> tuple[Field, ...]:
    """The columns for rows of `cls`, with `inline` as in `row_record`; `also` names additional fields of the record.

    `units` holds the units of fields whose names have none; they are appended to the header.
    """
    paths = [path[1:] if path[0] in inline else path for path in _leaves(cls)]
    named = [*paths, *((name,) for name in also)]
    return tuple(Field(header=_header(path, units or {}), path=path) for path in named)


def _leaves(cls: type) -> Iterator[tuple[str, ...]]:
    hints = typing.get_type_hints(cls)
    for part in fields(cls):
        nested = _nested_class(hints[part.name])
        inner = _leaves(nested) if nested else [()]
        yield from ((part.name, *path) for path in inner)


def _nested_class(hint: object) -> type | None:
    """The dataclass of a field that holds one value or none; a field with several values is one cell in CSV."""
    several = typing.get_origin(hint) in (tuple, list)
    candidates = () if several else (hint, *typing.get_args(hint))
    return next((part for part in candidates if isinstance(part, type) and is_dataclass(part)), None)


def _header(path: tuple[str, ...], units: Mapping[str, str]) -> str:
    name = ".".join(path)
    return f"{name}_{units[name]}" if name in units else name
