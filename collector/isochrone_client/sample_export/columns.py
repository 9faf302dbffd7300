"""The columns of exported samples: the fields of the JSON document, with its names. Pure."""

import typing
from dataclasses import dataclass, fields
from enum import Enum
from operator import attrgetter
from typing import Any

from isochrone_wire.fleet import StoredSample
from isochrone_wire.model import Quality, RateLimit, Sample

_DERIVED: dict[str, type] = {"connect_us": int, "ttft_cold_us": int, "tpot_us": float}
_INSTANT = "_at"


class Instant(int):
    """The kind of a column of instants, in microseconds since the epoch, UTC."""


class Strings(tuple[str, ...]):
    """The kind of a column of lists of strings."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: the path of its value in a `StoredSample`, and the kind of the value: `int`, `float`, `str`,
    `Instant`, `Strings`, or a dataclass, whose fields become the fields of a struct.
    """

    name: str
    path: str
    kind: type

    def values(self, rows: tuple[StoredSample, ...]) -> list[Any]:
        """The column's values in `rows`; `None` if a value is unknown."""
        return [_plain(value) for value in map(attrgetter(self.path), rows)]


def columns() -> tuple[Column, ...]:
    """All columns, in the order of the JSON document."""
    own = [column for column in _of(StoredSample, "") if column.kind is not Sample]
    derived = [Column(name=name, path=f"sample.{name}", kind=kind) for name, kind in _DERIVED.items()]
    return (*own, *_of(Sample, "sample."), *derived)


def parts(cls: type) -> dict[str, type]:
    """The name and kind of each field of a dataclass."""
    return {column.name: column.kind for column in _of(cls, "")}


def _of(cls: type, prefix: str) -> list[Column]:
    hints = typing.get_type_hints(cls)
    return [
        Column(name=part.name, path=prefix + part.name, kind=_kind(part.name, hints[part.name])) for part in fields(cls)
    ]


def _kind(name: str, hint: Any) -> type:  # noqa: ANN401  # a type hint has no narrower type
    cls: type = next((part for part in typing.get_args(hint) if part is not type(None)), hint)
    if cls is Quality:
        return Strings
    if issubclass(cls, Enum):
        return str
    return Instant if name.endswith(_INSTANT) and cls is int else cls


def _plain(value: Any) -> Any:  # noqa: ANN401  # any field's
    if isinstance(value, Quality):
        return list(value.labels)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, RateLimit):
        return {part.name: getattr(value, part.name) for part in fields(value)}
    return value
