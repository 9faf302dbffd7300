"""Reading a damaged spool: on a copy, table by table, row by row, stepping over what does not read.

The copy gets the first page of an empty spool, where all tables begin at the same pages; so a file whose beginning is
gone reads as well as any. Nothing is believed that has a wrong checksum.
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

_FAR = 1 << 62
# What a disk made of a counter may be any number; this many samples nobody has.
_ABSURD = 1 << 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What a spool knows of its life: numbers of samples, and the highest ids sealed and given."""

    sealed_to: int = 0
    finished: int = 0
    stored: int = 0
    last_id: int = 0


def mend(copy: Path, empty: Path) -> None:
    """Make whole pages of the file `copy`, as many as its header says, behind a first page that knows the tables; that
    one is taken from `empty`, which is made. Raises `OSError` and `sqlite3.Error`.
    """
    database.connect(empty).close()
    head = bytearray(empty.read_bytes()[:PAGE_BYTES])
    with copy.open("r+b" if copy.exists() else "w+b") as file:
        size = file.seek(0, 2)
        pages = max(-(-size // PAGE_BYTES), 1)
        file.truncate(pages * PAGE_BYTES)
        # The number of pages, believed because the number at 92 is the one at 24; and no list of free pages.
        struct.pack_into(">III", head, 28, pages, 0, 0)
        head[92:96] = head[24:28]
        file.seek(0)
        file.write(head)


class DamagedDatabase:
    """A mended copy, or the file itself `read_only`, open for reading; use `with`. What cannot be read is not there,
    and nothing raises.
    """

    def __init__(self, copy: Path, *, read_only: bool = False) -> None:
        self._db = database.connect_read_only(copy) if read_only else sqlite3.connect(copy, isolation_level=None)
        # Without it one table that is mentioned wrongly makes all of them unreadable.
        with contextlib.suppress(sqlite3.DatabaseError):
            self._db.execute("pragma writable_schema = on")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_failure: object) -> None:
        self._db.close()

    def counters(self) -> Counters | None:
        """The counters, unless they cannot be."""
        with contextlib.suppress(sqlite3.DatabaseError):
            row = self._db.execute("select sealed_to, finished, stored, last_id from spool").fetchone()
            if row and all(isinstance(count, int) and 0 <= count < _ABSURD for count in row):
                found = Counters(sealed_to=row[0], finished=row[1], stored=row[2], last_id=row[3])
                return found if found.sealed_to <= found.last_id and found.stored <= found.finished else None
        return None

    def sealed(self) -> Iterator[tuple[Any, ...]]:
        """Rows of sealed batches, each epoch and number once."""
        seen = set[tuple[int, int]]()
        for row in self._rows("sealed"):
            with contextlib.suppress(SpoolDamaged):
                batch = database.read_sealed(row)
                if (batch.epoch, batch.seq) not in seen:
                    seen.add((batch.epoch, batch.seq))
                    yield row

    def waiting(self) -> dict[int, tuple[int, bytes]]:
        """When each unsealed sample was recorded, and its body, by id."""
        found = dict[int, tuple[int, bytes]]()
        for number, recorded_at, checksum, body in self._rows("waiting"):
            with contextlib.suppress(SpoolDamaged):
                found[number] = (recorded_at, database.read_sample(checksum, body))
        return found

    def quarantine(self) -> Iterator[tuple[Any, ...]]:
        """Rows of the quarantine."""
        for row in self._rows("quarantine"):
            with contextlib.suppress(SpoolDamaged):
                database.read_sample(row[3], row[4])
                yield row

    def dropped(self) -> dict[str, int]:
        """Samples given up so far, by reason."""
        rows = [row[1:] for row in self._rows("dropped")]
        return {r: n for r, n in rows if isinstance(r, str) and isinstance(n, int) and 0 < n < _ABSURD}

    def spend(self) -> list[tuple[Any, ...]]:
        """Rows of what was spent."""
        return [row[1:] for row in self._rows("spend") if None not in row]

    def plan(self) -> bytes | None:
        """The plan that was kept."""
        with contextlib.suppress(sqlite3.DatabaseError):
            body = database.value(self._db, "select body from plan")
            return body if isinstance(body, bytes) else None
        return None

    def _rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """Rows in the order of their numbers, which come first in each."""
        columns = "*" if table in ("waiting", "sealed", "quarantine") else "rowid, *"
        query = f"select {columns} from {table} where rowid > ? order by rowid"  # noqa: S608  # our own names
        after = -1
        while True:
            try:
                for row in self._db.execute(query, (after,)):
                    after = max(after, row[0])
                    yield row
            except sqlite3.DatabaseError:
                beyond = self._beyond(query, after)
                if beyond is None:
                    return
                after = beyond
            else:
                return

    def _beyond(self, query: str, after: int) -> int | None:
        """The lowest number, as far as halving finds it, behind which rows read again; `None` when none do."""
        step = 1
        while not self._reads(query, after + step):
            step *= 2
            if after + step > _FAR:
                return None
        low, high = after + step // 2, after + step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._reads(query, middle) else (middle, high)
        return high

    def _reads(self, query: str, after: int) -> bool:
        try:
            self._db.execute(f"{query} limit 1", (after,)).fetchone()
        except sqlite3.DatabaseError:
            return False
        return True
