"""Conversion of instants between Python's integer microseconds and PostgreSQL's `timestamptz`, without floats.

PostgreSQL's binary timestamptz is also a count of microseconds, but from another epoch, so the conversion is one
addition.
"""

import struct
from typing import Any

from psycopg import AsyncConnection, Connection
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
