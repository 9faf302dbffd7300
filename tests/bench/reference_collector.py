"""The references of push latency: a bare gRPC server that commits each push in one transaction, and one that only
answers.

They share the machine, TLS and the pushing processes with the collector, but have no credentials, ledger, checks,
summaries, indexes or jobs: a push of n samples is inflated and parsed, n prepared rows are copied into a plain table
with the columns of `sample`, and the commit is acknowledged. A collector cannot be much faster than that. The echo
server has no database either: it parses a push, and answers.

usage: python -m bench.reference_collector started by other benchmarks, with one line of JSON on stdin
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import psycopg

from bench import pusher
from bench.processes import Dialog, RunningServer, next_line, reply
from isochrone_collector.server.certificates import SERVER_NAME, Certificates
from isochrone_collector.settings import Tls
from isochrone_collector.store.batches import Origin
from isochrone_collector.store.postgres import values
from isochrone_collector.store.samples import COLUMNS
from isochrone_common.channel import SERVER_OPTIONS
from isochrone_common.trust import PLAIN, Trust
from isochrone_wire.v1 import fleet_pb2, fleet_pb2_grpc

CONNECTIONS = 4
ORIGIN = Origin(vantage_id=1, region="us-east-2", epoch=1, seq=1, received_at=1)
TABLE = "reference_sample"
# gRPC itself inflates pushes here; the collector does it after it has checked the caller.
OPTIONS = [option for option in SERVER_OPTIONS if option != ("grpc.per_message_decompression", 0)]


class Committer:
    """Copies prepared rows, in the binary format of COPY, over a few connections."""

    def __init__(self, connections: Sequence[psycopg.AsyncConnection]) -> None:
        self._idle: asyncio.Queue[psycopg.AsyncConnection] = asyncio.Queue()
        for connection in connections:
            self._idle.put_nowait(connection)
        self._prepared: dict[int, bytes] = {}

    async def commit(self, rows: int) -> None:
        connection = await self._idle.get()
        try:
            if rows not in self._prepared:
                self._prepared[rows] = await _prepare(connection, rows)
            async with connection.cursor() as cursor, cursor.copy(f"COPY {TABLE} FROM STDIN (FORMAT BINARY)") as copy:
                await copy.write(self._prepared[rows])
        finally:
            self._idle.put_nowait(connection)


async def _prepare(connection: psycopg.AsyncConnection, rows: int) -> bytes:
    statement = f"COPY (SELECT * FROM {TABLE} LIMIT {rows}) TO STDOUT (FORMAT BINARY)"
    async with connection.cursor() as cursor, cursor.copy(statement) as copy:
        return b"".join([bytes(part) async for part in copy])


class BareFleet(fleet_pb2_grpc.FleetServicer):
    """Commits as many rows as a push has samples, or none without a `committer`; has an empty plan."""

    def __init__(self, committer: Committer | None) -> None:
        self._committer = committer

    async def Push(self, request: fleet_pb2.Batch, _context: object) -> Any:  # noqa: N802  # gRPC's
        received_at = time.time_ns() // 1000
        if self._committer is not None:
            await self._committer.commit(len(request.samples))
        server_at = time.time_ns() // 1000
        return fleet_pb2.Receipt(stored=len(request.samples), received_at=received_at, server_at=server_at)

    async def FetchPlan(self, _request: fleet_pb2.FetchPlanRequest, _context: object) -> Any:  # noqa: N802  # gRPC's
        return fleet_pb2.FetchPlanResponse()


def create_table(conninfo: str) -> None:
    """Create the table, with one batch of realistic rows, in a migrated database."""
    batch = pusher.bodies([1], now_at=pusher.EVERY_US, seed=1)[0]
    names = ", ".join(COLUMNS)
    with psycopg.connect(conninfo) as connection:
        # A cursor takes the adapters that its connection has when it is made.
        values.register(connection)
        connection.execute(f"CREATE TABLE {TABLE} (LIKE sample)")
        with connection.cursor() as cursor, cursor.copy(f"COPY {TABLE} ({names}) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(list(COLUMNS.values()))
            for row in pusher.rows(batch, ORIGIN, 1):
                copy.write_row(row)


async def _committer(conninfo: str) -> Committer:
    return Committer([await psycopg.AsyncConnection.connect(conninfo, autocommit=True) for _ in range(CONNECTIONS)])


async def serve(conninfo: str | None, key: str | None, certificate: str | None) -> None:
    """Serve until the process is stopped; print the address when ready."""
    server = grpc.aio.server(options=OPTIONS)
    fleet = BareFleet(await _committer(conninfo) if conninfo else None)  # type: ignore[abstract]  # agents join no bench
    fleet_pb2_grpc.add_FleetServicer_to_server(fleet, server)
    if key is None or certificate is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        pair = (key.encode(), certificate.encode())
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    await server.start()
    reply({"listen": f"127.0.0.1:{port}"})
    await server.wait_for_termination()


@contextmanager
def reference_collector(conninfo: str | None, folder: Path, *, tls: bool) -> Iterator[RunningServer]:
    """Run the server in its own process: the echo server without a `conninfo`."""
    if conninfo is not None:
        create_table(conninfo)
    config: dict[str, str | None] = {"conninfo": conninfo, "key": None, "certificate": None}
    trust = PLAIN
    if tls:
        pair = Certificates(Tls(), data_dir=folder, host="127.0.0.1").current
        trust = Trust(roots=pair.certificate, server_name=pair.name or SERVER_NAME)
        config |= {"key": pair.key.decode(), "certificate": pair.certificate}
    with Dialog("bench.reference_collector", config) as dialog:
        yield RunningServer(process=dialog.process, reported=dialog.receive(), trust=trust)


if __name__ == "__main__":
    asyncio.run(serve(**next_line()))
