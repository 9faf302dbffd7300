"""Recovery of a damaged spool: a new spool takes over what can be read; the rest is counted, and the old file kept.

The laws:

1. The damaged file is only read, its log by `read_log`, because SQLite would drop everything after an invalid frame.
   It is renamed after the new file is complete on disk. After a crash in between, `finish_salvage` completes the
   replacement at the next start.
2. A sealed batch keeps its epoch and number, because the collector may have stored it already. Samples that were not
   sealed continue under the new epoch, in which no number has been used.
3. A sample with a wrong checksum is not taken over, nor is a waiting sample that the old spool had sealed already.
4. If the disk has no room for a copy, `make_room` is called and the damaged file is read in place. If there is still
   not enough room, only its counters, plan and spend are taken over. The damaged file is kept in every case.
5. Afterwards finished = stored + spooled + dropped holds again. Lost samples count as dropped for `spool_damaged`. If
   the old counters cannot be read, their number is only a lower bound.

`DamagedDatabase` reads a copy table by table and row by row, and skips what it cannot read. The copy gets the first
page of an empty spool, in which all tables begin at the same pages, so that a file without a header can be read too.

The format of the write-ahead log is SQLite's (https://www.sqlite.org/fileformat2.html, "The Write-Ahead Log"): a header
of 32 bytes, then frames of 24 bytes and a page each. Every frame repeats the salts of the header and has a checksum
over all frames up to it. SQLite reads a log up to the first invalid frame, because a crash leaves such a log. But a
transaction is on disk before the next one begins. So if a transaction is committed after the invalid frame, the disk
damaged the log.
"""

import contextlib
import os
import shutil
import sqlite3
import struct
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from isochrone_agent.clock import now_at
from isochrone_agent.errors import SpoolDamaged
from isochrone_agent.spool import database
from isochrone_agent.spool.database import PAGE_BYTES, transaction
from isochrone_common.files import sync_folder

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24

_MAGIC = 0x377F0682
# The last bit of the magic number is the byte order of the checksum's words.
_MAGIC_BIG = _MAGIC | 1
_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One page. `pages`: the size of the database if the frame commits, else 0. `is_intact`: the checksum is right."""

    page: int
    pages: int
    content: bytes
    is_intact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteAheadLog:
    """The frames of a log up to the last one that commits. SQLite reads only the first `valid_frames` of them."""

    frames: tuple[Frame, ...]
    valid_frames: int
    has_header: bool

    @property
    def lost_commits(self) -> int:
        """Number of transactions that SQLite would drop."""
        return sum(frame.pages > 0 for frame in self.frames[self.valid_frames :])

    @property
    def is_damaged(self) -> bool:
        """True if SQLite would drop more than the last transaction. A crash can have cut off only that one."""
        return self.lost_commits > (1 if self.has_header else 0)

    @property
    def committed(self) -> tuple[Frame, ...]:
        """The frames of all committed transactions, including the invalid frames of a damaged log."""
        return self.frames if self.is_damaged else self.frames[: self.valid_frames]


def read_log(content: bytes, page_bytes: int) -> WriteAheadLog:
    """Parse the log of a database with pages of `page_bytes`. Never raises, whatever the content is."""
    if len(content) < HEADER_BYTES:
        return WriteAheadLog(frames=(), valid_frames=0, has_header=False)
    magic, _, found_bytes, *stated = struct.unpack_from(">3I12x2I", content)
    has_header = magic in (_MAGIC, _MAGIC_BIG) and found_bytes == page_bytes
    has_header = has_header and _checksum(content[:24], (0, 0), _order(content)) == tuple(stated)
    frames = _until_last_commit(list(_frames(content, page_bytes, has_header=has_header)))
    bad = next((index for index, frame in enumerate(frames) if not frame.is_intact), len(frames))
    valid = len(_until_last_commit(frames[:bad])) if has_header else 0
    return WriteAheadLog(frames=tuple(frames), valid_frames=valid, has_header=has_header)


def _frames(content: bytes, page_bytes: int, *, has_header: bool) -> Iterator[Frame]:
    """All complete frames. Frames left from before the log was restarted are not intact and commit nothing."""
    frame_bytes = FRAME_HEADER_BYTES + page_bytes
    order = _order(content)
    salts_at = 16 if has_header else HEADER_BYTES + 8
    salts = content[salts_at : salts_at + 8]
    stated = struct.unpack_from(">2I", content, 24)
    for begin in range(HEADER_BYTES, len(content) - frame_bytes + 1, frame_bytes):
        page, pages = struct.unpack_from(">2I", content, begin)
        ours = content[begin + 8 : begin + 16] == salts
        body = content[begin + FRAME_HEADER_BYTES : begin + frame_bytes]
        expected = _checksum(content[begin : begin + 8] + body, stated, order) if ours else None
        stated = struct.unpack_from(">2I", content, begin + 16)
        yield Frame(page=page, pages=pages if ours else 0, content=body, is_intact=expected == stated)


def _until_last_commit(frames: list[Frame]) -> list[Frame]:
    last = max((index for index, frame in enumerate(frames) if frame.pages), default=-1)
    return frames[: last + 1]


def _order(content: bytes) -> str:
    return ">" if struct.unpack_from(">I", content)[0] == _MAGIC_BIG else "<"


def _checksum(content: bytes, seed: tuple[int, ...], order: str) -> tuple[int, int]:
    first, second = seed
    words = iter(struct.unpack(f"{order}{len(content) // 4}I", content))
    for one, other in zip(words, words, strict=True):
        first = (first + one + second) & _MASK
        second = (second + other + first) & _MASK
    return first, second


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
    """Give `copy` the first page of an empty spool, made at `empty`. Raises `OSError` and `sqlite3.Error`."""
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
    """A copy with its first page replaced, or, `read_only`, the damaged file. Rows that cannot be read are skipped."""

    def __init__(self, copy: Path, *, read_only: bool = False) -> None:
        self._db = database.connect_read_only(copy) if read_only else sqlite3.connect(copy, isolation_level=None)
        # Without it, one bad entry in the schema makes all tables unreadable.
        with contextlib.suppress(sqlite3.DatabaseError):
            self._db.execute("pragma writable_schema = on")

    def close(self) -> None:
        """Close the file."""
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
        for row in self.rows("sealed"):
            with contextlib.suppress(SpoolDamaged):
                batch = database.read_sealed(row)
                if (batch.epoch, batch.seq) not in seen:
                    seen.add((batch.epoch, batch.seq))
                    yield row

    def waiting(self) -> dict[int, tuple[int, bytes]]:
        """Unsealed samples by id: the time of recording and the body."""
        found = dict[int, tuple[int, bytes]]()
        for number, recorded_at, checksum, body in self.rows("waiting"):
            with contextlib.suppress(SpoolDamaged):
                found[number] = (recorded_at, database.read_sample(checksum, body))
        return found

    def plan(self) -> bytes | None:
        """The stored plan, encoded."""
        with contextlib.suppress(sqlite3.DatabaseError):
            body = database.value(self._db, "select body from plan")
            return body if isinstance(body, bytes) else None
        return None

    def rows(self, table: str) -> Iterator[tuple[Any, ...]]:
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


DAMAGED = "spool_damaged"

_MAX_DAMAGED_FILES = 3
_SCRATCH_PREFIX = ".salvage-"

log = structlog.get_logger()


# The numbers of samples that were `salvaged` and `lost`; more may be lost unless `lost_is_known`.
_Result = dict[str, int]
_Copy = Callable[[DamagedDatabase, sqlite3.Connection], _Result]


def is_damage(error: BaseException) -> bool:
    """Return whether an error of the spool means that its file is damaged."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    damaged = code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or code == sqlite3.SQLITE_IOERR_SHORT_READ
    return damaged or isinstance(error, SpoolDamaged)


def finish_salvage(path: Path) -> None:
    """Complete an earlier `salvage` that a crash interrupted after the new file was complete. Raises `OSError`."""
    for left_behind in path.parent.glob(f"{_SCRATCH_PREFIX}*"):
        shutil.rmtree(left_behind, ignore_errors=True)
    if _salvaged_path(path).exists():
        _replace_damaged(path)


def check_log(path: Path) -> None:
    """Check the write-ahead log before SQLite opens it, because SQLite silently drops all frames after an invalid one.

    Raises `SpoolDamaged` if SQLite would drop transactions that were on disk, and `OSError`. If it would drop only the
    last transaction, a crash of the machine may have cut it off, or the disk damaged it. Then the log is copied, if
    there is room, and truncated to the frames that SQLite reads.
    """
    wal = _with_suffix(path, "-wal")
    contents = _read_log(path)
    if not contents.lost_commits:
        return
    log.error("spool.log_damaged", path=str(wal), transactions=contents.lost_commits, lost_is_known=False)
    if contents.is_damaged:
        raise SpoolDamaged(f"{contents.lost_commits} transactions follow an invalid frame of the write-ahead log")
    with contextlib.suppress(OSError):
        shutil.copyfile(wal, _with_suffix(_damaged_path(path), "-wal"))
    # Otherwise the end of it would be found again after a shorter transaction is written over its beginning.
    os.truncate(wal, HEADER_BYTES + contents.valid_frames * (FRAME_HEADER_BYTES + PAGE_BYTES))
    _delete_oldest(path)


def salvage(path: Path, reason: str, *, make_room: Callable[[], None]) -> None:
    """Replace the damaged spool at `path`, which must be closed. Raises `OSError`, `sqlite3.Error`: then unchanged."""
    result: _Result | None = None
    for attempt in (_salvage_copy, partial(_salvage_in_place, copy=_copy_readable)):
        try:
            result = attempt(path)
            break
        except (OSError, sqlite3.Error) as error:
            log.warning("spool.salvage_failed", path=str(path), reason=str(error))
            make_room()
    result = result or _salvage_in_place(path, copy=_copy_counters)
    damaged_file = _replace_damaged(path)
    log.error("spool.salvaged", reason=reason, damaged_file=str(damaged_file), **result)


def _salvage_copy(path: Path) -> _Result:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_SCRATCH_PREFIX) as scratch:
        folder = Path(scratch)
        copy = folder / "damaged"
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(path, copy)
        _apply_log(_read_log(path), copy)
        replace_first_page(copy, folder / "empty")
        with closing(DamagedDatabase(copy)) as damaged:
            return _rebuild(damaged, path, folder, _copy_readable)


def _salvage_in_place(path: Path, *, copy: _Copy) -> _Result:
    is_intact = not _read_log(path).lost_commits
    scratch = tempfile.TemporaryDirectory(dir=path.parent, prefix=_SCRATCH_PREFIX)
    with scratch as folder, closing(DamagedDatabase(path, read_only=True)) as damaged:
        # Without the end of the log, samples may look unsealed that were delivered already.
        result = _rebuild(damaged, path, Path(folder), copy if is_intact else _copy_counters)
    return result | {"lost_is_known": result["lost_is_known"] and is_intact}


def _read_log(path: Path) -> WriteAheadLog:
    try:
        content = _with_suffix(path, "-wal").read_bytes()
    except FileNotFoundError:
        content = b""
    return read_log(content, PAGE_BYTES)


def _apply_log(contents: WriteAheadLog, copy: Path) -> None:
    """Write the pages of a log into a copy of its file, zeros for an invalid one: the older may be delivered."""
    frames = contents.committed
    if not frames:
        return
    pages = frames[-1].pages
    with copy.open("r+b" if copy.exists() else "w+b") as file:
        for frame in frames:
            if 0 < frame.page <= pages:
                file.seek((frame.page - 1) * PAGE_BYTES)
                file.write(frame.content if frame.is_intact else bytes(PAGE_BYTES))
        file.truncate(pages * PAGE_BYTES)


def _rebuild(damaged: DamagedDatabase, path: Path, folder: Path, copy: _Copy) -> _Result:
    """Write the new spool for `path` with what `copy` takes over; on return it is complete on disk and closed."""
    new = folder / "new"
    with closing(database.connect(new)) as db:
        # A half-written file is useless, and a write-ahead log would take the same room again.
        db.execute("pragma journal_mode = delete").fetchall()
        with transaction(db):
            result = copy(damaged, db)
    new.replace(_salvaged_path(path))
    return result


def _copy_readable(damaged: DamagedDatabase, db: sqlite3.Connection) -> _Result:
    counters = damaged.counters()
    known = counters or Counters()
    # Above every id ever assigned, so that no id of this spool is used twice.
    sealed_to, salvaged = known.last_id, 0
    for row in damaged.sealed():
        db.execute("insert or ignore into sealed values (?, ?, ?, ?, ?, ?, ?)", row)
        sealed_to, salvaged = max(sealed_to, row[0] + row[3]), salvaged + row[3]
    waiting = [body for number, body in sorted(damaged.waiting().items()) if number > known.sealed_to]
    for number, (recorded_at, body) in enumerate(waiting, sealed_to + 1):
        row = (number, recorded_at, database.sample_checksum(body), body)
        db.execute("insert into waiting values (?, ?, ?, ?)", row)
    for row in damaged.rows("quarantine"):
        with contextlib.suppress(SpoolDamaged):
            database.read_sample(row[3], row[4])
            db.execute("insert or ignore into quarantine values (?, ?, ?, ?, ?)", row)
    salvaged += len(waiting) + database.value(db, "select count(*) from quarantine")
    lost = _write_counters(damaged, db, known, salvaged=salvaged, last_id=sealed_to + len(waiting), sealed_to=sealed_to)
    return {"salvaged": salvaged, "lost": lost, "lost_is_known": counters is not None}


def _copy_counters(damaged: DamagedDatabase, db: sqlite3.Connection) -> _Result:
    counters = damaged.counters()
    known = counters or Counters()
    lost = _write_counters(damaged, db, known, salvaged=0, last_id=known.last_id, sealed_to=known.last_id)
    return {"salvaged": 0, "lost": lost, "lost_is_known": counters is not None}


def _write_counters(
    damaged: DamagedDatabase, db: sqlite3.Connection, known: Counters, *, salvaged: int, last_id: int, sealed_to: int
) -> int:
    """Write the counters so that the account holds, the spend and the plan; return the number of lost samples."""
    counts = [row[1:] for row in damaged.rows("dropped")]
    dropped = Counter({r: n for r, n in counts if isinstance(r, str) and isinstance(n, int) and 0 < n < _MAX_PLAUSIBLE})
    lost = max(known.finished - known.stored - dropped.total() - salvaged, 0)
    dropped[DAMAGED] += lost
    db.executemany("insert into dropped values (?, ?)", (+dropped).items())
    finished = known.stored + salvaged + dropped.total()
    db.execute("delete from spool")
    # All stored samples were stored under earlier epochs.
    row = (database.new_epoch(), 1, last_id, sealed_to, finished, known.stored, known.stored)
    db.execute("insert into spool values (?, ?, ?, ?, ?, ?, ?)", row)
    spends = (row[1:] for row in damaged.rows("spend") if None not in row)
    db.executemany("insert or ignore into spend values (?, ?, ?, ?, ?)", spends)
    if (plan := damaged.plan()) is not None:
        db.execute("insert into plan values (1, ?)", (plan,))
    return lost


def _with_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _salvaged_path(path: Path) -> Path:
    return _with_suffix(path, ".salvaged")


def _damaged_path(path: Path) -> Path:
    return _with_suffix(path, f".damaged-{now_at() // 1_000_000}")


def _replace_damaged(path: Path) -> Path:
    damaged_file = _damaged_path(path)
    for suffix in ("-wal", ""):
        with contextlib.suppress(FileNotFoundError):
            _with_suffix(path, suffix).replace(_with_suffix(damaged_file, suffix))
    _with_suffix(path, "-shm").unlink(missing_ok=True)
    _salvaged_path(path).replace(path)
    sync_folder(path.parent)
    _delete_oldest(path)
    return damaged_file


def _delete_oldest(path: Path) -> None:
    """Keep the newest `_MAX_DAMAGED_FILES`: a disk that damages spools repeatedly must not fill up with them."""
    names = {file.name.removesuffix("-wal") for file in path.parent.glob(f"{path.name}.damaged-*")}
    for file in sorted(map(path.with_name, names))[:-_MAX_DAMAGED_FILES]:
        file.unlink(missing_ok=True)
        _with_suffix(file, "-wal").unlink(missing_ok=True)
