"""The baseline of ingest: psycopg's binary COPY of prepared rows, one transaction per batch, on one connection."""

import time
from types import TracebackType
from typing import Self

import psycopg
from psycopg import sql

from bench import push_payloads
from bench.push_payloads import BATCH_SAMPLES
from isochrone_collector.store.batches import Origin
from isochrone_collector.store.postgres import values
from isochrone_collector.store.samples import COLUMNS

VANTAGE_ID = 1
LOG_FILES = 256


class RawCopy:
    """Copies batches into `sample` of a migrated database."""

    def __init__(self, conninfo: str, targets: list[int]) -> None:
        self._connection = psycopg.connect(conninfo, autocommit=True)
        values.register(self._connection)
        for name in ("fsync", "synchronous_commit"):
            if self._connection.execute(f"SHOW {name}").fetchone() != ("on",):
                raise SystemExit(f"{name} is off: results would not be comparable")
        now_at = time.time_ns() // 1000
        self._made_at = now_at
        self._bodies = push_payloads.bodies(targets, now_at=now_at, seed=99)
        self._origin = Origin(vantage_id=VANTAGE_ID, region="us-east-2", epoch=1, seq=0, received_at=now_at)
        self._seq = 0
        names = sql.SQL(", ").join(map(sql.Identifier, COLUMNS))
        self._statement = sql.SQL("COPY sample ({}) FROM STDIN (FORMAT BINARY)").format(names)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def recycle_wal(self) -> None:
        """Cycle the server through its write-ahead log once, like a server that has run for a day.

        A new server fills each file of 16 MB with zeros before its first use, during some commit; later it recycles
        files.
        """
        for _ in range(LOG_FILES):
            self._connection.execute("SELECT pg_logical_emit_message(false, 'bench', 'new file')")
            self._connection.execute("SELECT pg_switch_wal()")
        self.checkpoint()

    def checkpoint(self) -> None:
        """Write everything that is only in the log so far."""
        self._connection.execute("CHECKPOINT")

    def rows_per_second(self, batches: int) -> float:
        """Copy `batches` batches. The time to prepare the rows is excluded."""
        spent = 0.0
        for _ in range(batches):
            self._seq += 1
            now_at = time.time_ns() // 1000
            samples, by_us = (
                self._bodies[push_payloads.current_body(now_at)],
                push_payloads.shift_us(self._made_at, now_at),
            )
            prepared = push_payloads.rows(samples, self._origin, self._seq, by_us=by_us)
            begun = time.monotonic()
            with self._connection.cursor() as cursor, cursor.copy(self._statement) as copy:
                copy.set_types(list(COLUMNS.values()))
                for row in prepared:
                    copy.write_row(row)
            spent += time.monotonic() - begun
        return batches * BATCH_SAMPLES / spent
