"""A reader for a damaged spool that works on a copy, table by table and row by row, and skips what it cannot read.

The copy gets the first page of an empty spool, in which all tables begin at the same pages, so that a file without a
header can be read too. Rows with a wrong checksum are skipped.
"""

import contextlib
import sqlite3
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from isochrone_agent.errors import SpoolDamaged
from isochrone_agent.spool import database
from isochrone_agent.spool.database import PAGE_BYTES

_MAX_ID = 1 << 62
# A larger counter is damaged: no spool ever held that many samples.
_MAX_PLAUSIBLE = 1 << 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The counters of a spool: numbers of samples, the highest id sealed and the highest id assigned."""

    sealed_to: int = 0
    finished: int = 0
    stored: int = 0
    last_id: int = 0


def replace_first_page(copy: Path, empty: Path) -> None:
    """Replace the first page of the file `copy` by that of an empty spool, which is created at `empty`, and fill up the
    last page. Raises `OSError` and `sqlite3.Error`.
    """
    database.connect(empty).close()
    head = bytearray(empty.read_bytes()[:PAGE_BYTES])
    with copy.open("r+b" if copy.exists() else "w+b") as file:
        size = file.seek(0, 2)
        pages = max(-(-size // PAGE_BYTES), 1)
        file.truncate(pages * PAGE_BYTES)
        # The number of pages, which SQLite uses if the number at 92 equals that at 24, and an empty list of free pages.
        struct.pack_into(">III", head, 28, pages, 0, 0)
        head[92:96] = head[24:28]
        file.seek(0)
        file.write(head)


class DamagedDatabase:
    """A copy with its first page replaced, or the damaged file itself if `read_only`; use `with`.

    Reading never raises: rows that cannot be read are skipped.
    """

    def __init__(self, copy: Path, *, read_only: bool = False) -> None:
        self._db = database.connect_read_only(copy) if read_only else sqlite3.connect(copy, isolation_level=None)
        # Without it, one bad entry in the schema makes all tables unreadable.
        with contextlib.suppress(sqlite3.DatabaseError):
            self._db.execute("pragma writable_schema = on")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_failure: object) -> None:
        self._db.close()

    def counters(self) -> Counters | None:
        """The counters, or `None` if they cannot be read or contradict each other."""
        with contextlib.suppress(sqlite3.DatabaseError):
            row = self._db.execute("select sealed_to, finished, stored, last_id from spool").fetchone()
            if row and all(isinstance(count, int) and 0 <= count < _MAX_PLAUSIBLE for count in row):
                found = Counters(sealed_to=row[0], finished=row[1], stored=row[2], last_id=row[3])
                return found if found.sealed_to <= found.last_id and found.stored <= found.finished else None
        return None

    def sealed(self) -> Iterator[tuple[Any, ...]]:
        """Rows of sealed batches, each (epoch, seq) once."""
        seen = set[tuple[int, int]]()
        for row in self._rows("sealed"):
            with contextlib.suppress(SpoolDamaged):
                batch = database.read_sealed(row)
                if (batch.epoch, batch.seq) not in seen:
                    seen.add((batch.epoch, batch.seq))
                    yield row

    def waiting(self) -> dict[int, tuple[int, bytes]]:
        """Unsealed samples by id: the time of recording and the body."""
        found = dict[int, tuple[int, bytes]]()
        for number, recorded_at, checksum, body in self._rows("waiting"):
            with contextlib.suppress(SpoolDamaged):
                found[number] = (recorded_at, database.read_sample(checksum, body))
        return found

    def quarantine(self) -> Iterator[tuple[Any, ...]]:
        """Rows of the quarantine table."""
        for row in self._rows("quarantine"):
            with contextlib.suppress(SpoolDamaged):
                database.read_sample(row[3], row[4])
                yield row

    def dropped(self) -> dict[str, int]:
        """Number of samples dropped so far, by reason."""
        rows = [row[1:] for row in self._rows("dropped")]
        return {r: n for r, n in rows if isinstance(r, str) and isinstance(n, int) and 0 < n < _MAX_PLAUSIBLE}

    def spend(self) -> list[tuple[Any, ...]]:
        """Rows of the spend table."""
        return [row[1:] for row in self._rows("spend") if None not in row]

    def plan(self) -> bytes | None:
        """The stored plan, encoded."""
        with contextlib.suppress(sqlite3.DatabaseError):
            body = database.value(self._db, "select body from plan")
            return body if isinstance(body, bytes) else None
        return None

    def _rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """Rows in the order of their ids. The id is the first column of each row."""
        columns = "*" if table in ("waiting", "sealed", "quarantine") else "rowid, *"
        query = f"select {columns} from {table} where rowid > ? order by rowid"  # noqa: S608  # our own names
        after = -1
        while True:
            try:
                for row in self._db.execute(query, (after,)):
                    after = max(after, row[0])
                    yield row
            except sqlite3.DatabaseError:
                next_readable = self._next_readable(query, after)
                if next_readable is None:
                    return
                after = next_readable
            else:
                return

    def _next_readable(self, query: str, after: int) -> int | None:
        """The lowest id found by bisection after which rows can be read again; `None` if there is none."""
        step = 1
        while not self._is_readable(query, after + step):
            step *= 2
            if after + step > _MAX_ID:
                return None
        low, high = after + step // 2, after + step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._is_readable(query, middle) else (middle, high)
        return high

    def _is_readable(self, query: str, after: int) -> bool:
        try:
            self._db.execute(f"{query} limit 1", (after,)).fetchone()
        except sqlite3.DatabaseError:
            return False
        return True
