"""Rows as JSON records: the wire's fields under the wire's names and in its units (`isochrone_wire.json_format`).

JSON gets a row as one object, nested as on the wire. CSV gets the same object spread out: a part of a part has a column
of its own, `ttft_p50_us.low`. What is unknown is null, and so is a number that JSON cannot write.
"""

import math
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from isochrone_wire.json_format import to_json_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One column of CSV: its header, and where in a row's record its value stands."""

    header: str
    path: tuple[str, ...]

    def value(self, record: Mapping[str, Any]) -> object:
        """What stands there; `None` where a part on the way is unknown."""
        part: Any = record
        for name in self.path:
            part = part[name] if part is not None else None
        return part


def row_record(row: object, *, inline: tuple[str, ...] = ()) -> dict[str, Any]:
    """The row as plain data; the parts named in `inline` give up their name and stand in it themselves."""
    record: dict[str, Any] = _finite(to_json_value(row))
    for name in inline:
        record |= record.pop(name)
    return record


def wire_fields(
    cls: type, *, inline: tuple[str, ...] = (), also: tuple[str, ...] = (), units: Mapping[str, str] | None = None
) -> tuple[Field, ...]:
    """The columns for rows of `cls`. `inline` as in `row_record`; `also` names what a record has besides its fields.

    `units` gives the unit of a field whose name does not say it, for the header to do so.
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
    """The value class that a field holds one of, or perhaps one; of several, CSV makes one cell."""
    several = typing.get_origin(hint) in (tuple, list)
    candidates = () if several else (hint, *typing.get_args(hint))
    return next((part for part in candidates if isinstance(part, type) and is_dataclass(part)), None)


def _header(path: tuple[str, ...], units: Mapping[str, str]) -> str:
    name = ".".join(path)
    return f"{name}_{units[name]}" if name in units else name


def _finite(value: Any) -> Any:  # noqa: ANN401  # plain data, nested
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
