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
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import AsyncConnection, AsyncCursor, Connection
from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.postgres import types
from psycopg.pq import Format

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


def parameters_of(given: Mapping[str, object]) -> dict[str, object]:
    """Return the parameters of a statement: numbers named `at` or `…_at`, alone or in lists, are instants."""
    return {name: _instant(value) if name == "at" or name.endswith("_at") else value for name, value in given.items()}


def _instant(value: object) -> object:
    if isinstance(value, list):
        return list(map(_instant, value))
    return Instant(value) if isinstance(value, int) else value


_HEAD = np.dtype(">i4")
_HEAD_BYTES = 5 * _HEAD.itemsize


class _ColumnLoader(Loader):
    """One column of numbers. Raises `ValueError` for NULLs and for more than one dimension."""

    format = Format.BINARY
    content = ">i8"

    def load(self, data: Buffer) -> NDArray[Any]:
        record = np.dtype([("length", ">i4"), ("value", self.content)])
        kept = np.frombuffer(data, np.uint8)
        dimensions, nulls, *_ = kept[: 3 * _HEAD.itemsize].view(_HEAD)
        if dimensions > 1 or nulls:
            raise ValueError("a column of numbers contains NULL, or has more than one dimension")
        values = kept[_HEAD_BYTES:].view(record)["value"]
        return values.astype(values.dtype.newbyteorder("="))


class _BigintLoader(_ColumnLoader):
    content = ">i8"


class _IntegerLoader(_ColumnLoader):
    content = ">i4"


class _DoubleLoader(_ColumnLoader):
    content = ">f8"


class _InstantsLoader(_ColumnLoader):
    """Microseconds since the Unix epoch."""

    content = ">i8"

    def load(self, data: Buffer) -> NDArray[Any]:
        return super().load(data) + POSTGRES_EPOCH_AT


_LOADERS: dict[str, type[_ColumnLoader]] = {
    "int8": _BigintLoader,
    "int4": _IntegerLoader,
    "float8": _DoubleLoader,
    "timestamptz": _InstantsLoader,
}


def read_columns(cursor: AsyncCursor[Any]) -> None:
    """Decode the arrays of a cursor as numpy arrays, with instants in microseconds since the Unix epoch. Raises
    `ValueError` if one of them contains NULL.
    """
    for name, loader in _LOADERS.items():
        cursor.adapters.register_loader(types[name].array_oid, loader)
