"""Wall instants between Python and PostgreSQL: integer microseconds here, `timestamptz` there, no floats between.

PostgreSQL's binary timestamptz is a count of microseconds too, from another epoch, so that the translation is one
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
    """A parameter of a query that is a wall instant, in microseconds since the Unix epoch."""

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


def teach(connection: AsyncConnection[Any] | Connection[Any]) -> None:
    """Let every binary timestamptz of this connection be an integer, in parameters, in COPY and in results."""
    connection.adapters.register_dumper(Instant, _InstantDumper)
    connection.adapters.register_loader("timestamptz", _InstantLoader)
