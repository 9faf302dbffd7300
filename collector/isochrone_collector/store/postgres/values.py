"""Values of PostgreSQL as numbers: instants without floats, and columns of numbers.

PostgreSQL's binary timestamptz is a count of microseconds as well, but from another epoch, so the conversion is one
addition.

Columns of numbers come as binary arrays, each decoded at once. A row per number makes reading slow: 360 000 probes as
arrays in one row per target take a quarter of the time that COPY takes with a row per probe, and next to no processor
time in the collector.

The format (`array_send` in PostgreSQL's source): the number of dimensions, a flag for NULLs, the type of the elements
and for each dimension its size and first index, in four bytes each; then each element as its length in four bytes and
its big-endian content. So an array of numbers without NULLs is one array of records.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum, StrEnum
from functools import cache, partial
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray
from psycopg import AsyncConnection, AsyncCursor, Connection
from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.postgres import types
from psycopg.pq import Format
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

POSTGRES_EPOCH_AT = 946_684_800_000_000
_int64 = struct.Struct("!q")


class Instant(int):
    """A query parameter that is an instant, in microseconds since the Unix epoch."""

    __slots__ = ()


class _InstantDumper(Dumper):
    format = Format.BINARY
    oid = types["timestamptz"].oid

    def dump(self, obj: int) -> bytes:
        return _int64.pack(obj - POSTGRES_EPOCH_AT)


class _InstantLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        (since_2000,) = _int64.unpack(data)
        return int(since_2000) + POSTGRES_EPOCH_AT


def register(connection: AsyncConnection[Any] | Connection[Any]) -> None:
    """Represent every binary timestamptz of a connection as an integer: in parameters, in COPY and in results."""
    connection.adapters.register_dumper(Instant, _InstantDumper)
    connection.adapters.register_loader("timestamptz", _InstantLoader)


# Checked first, because a commit has thousands of these, and abstract classes are slow to check.
_PLAIN = frozenset({str, float, bytes, bool, type(None), Jsonb})


def parameters_of(given: Mapping[str, object]) -> dict[str, object]:
    """Return the parameters of a statement: numbers named `at` or `…_at`, alone or in lists, are instants; mappings and
    their lists are JSON, tuples are arrays, sets are sorted arrays, and members of enums are their values.
    """
    return {name: _parameter(value, is_instant=name == "at" or name.endswith("_at")) for name, value in given.items()}


def _parameter(value: object, *, is_instant: bool) -> object:
    if type(value) is int:
        return Instant(value) if is_instant else value
    if type(value) in _PLAIN:
        return value
    if isinstance(value, list | tuple | AbstractSet):
        listed = sorted(value) if isinstance(value, AbstractSet) else value
        return [_parameter(one, is_instant=is_instant) for one in listed]
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Mapping):
        return Jsonb(dict(value))
    return value


def columns_of(rows: Iterable[object], *names: str) -> dict[str, list[object]]:
    """Return some attributes of all rows as parameters: a list for each."""
    listed = list(rows)
    return {name: [getattr(row, name) for row in listed] for name in names}


def fields_of(row: "DataclassInstance") -> dict[str, Any]:
    """Return the fields of a row as parameters, or to make a value of another class with them."""
    return {one.name: getattr(row, one.name) for one in fields(row)}


@cache
def conversions(row: type[Any]) -> Mapping[str, Callable[[Any], object]]:
    """Return how columns become fields: members of enums, tuples of arrays, and values of JSON objects."""
    found: dict[str, Callable[[Any], object]] = {}
    for name, hint in get_type_hints(row).items():
        base, (item, *_) = get_origin(hint) or hint, get_args(hint) or (None,)
        if base is tuple and isinstance(item, type) and is_dataclass(item):
            found[name] = partial(_values, item)
        elif isinstance(base, type) and issubclass(base, Enum | tuple):
            found[name] = base
    return found


def _values(kind: Callable[..., object], objects: Iterable[Mapping[str, Any]]) -> tuple[object, ...]:
    return tuple(kind(**one) for one in objects)


_HEAD = np.dtype(">i4")
_HEAD_BYTES = 5 * _HEAD.itemsize


_INSTANTS = types["timestamptz"].array_oid
_CONTENTS = {
    _INSTANTS: ">i8",
    types["int8"].array_oid: ">i8",
    types["int4"].array_oid: ">i4",
    types["float8"].array_oid: ">f8",
}


class _ColumnLoader(Loader):
    """One column of numbers. Raises `ValueError` for NULLs and for more than one dimension."""

    format = Format.BINARY

    def load(self, data: Buffer) -> NDArray[Any]:
        record = np.dtype([("length", ">i4"), ("value", _CONTENTS[self.oid])])
        kept = np.frombuffer(data, np.uint8)
        dimensions, nulls, *_ = kept[: 3 * _HEAD.itemsize].view(_HEAD)
        if dimensions > 1 or nulls:
            raise ValueError("a column of numbers contains NULL, or has more than one dimension")
        values = kept[_HEAD_BYTES:].view(record)["value"]
        found = values.astype(values.dtype.newbyteorder("="))
        return found + POSTGRES_EPOCH_AT if self.oid == _INSTANTS else found


def read_columns(cursor: AsyncCursor[Any]) -> None:
    """Decode arrays as numpy arrays, instants in microseconds since the epoch. Raises `ValueError` for NULL."""
    for oid in _CONTENTS:
        cursor.adapters.register_loader(oid, _ColumnLoader)
