"""A new spool out of a damaged one: what reads is taken along, what does not is counted, the old file is kept.

The laws:

1. The damaged file is only read, its log by `isochrone_agent.spool.wal`: SQLite would drop all behind a bad frame.
   It is moved aside after the new one is complete on disk; a crash in between is made good by `finish`, at the
   next start.
2. A sealed batch keeps the epoch and the number it had, because the collector may have it already. Whatever was not
   sealed goes on under the new epoch, in which no number was ever used.
3. No sample is taken whose checksum is wrong, and none of those waiting that the old spool had sealed before.
4. Where the disk has no room for a copy, the room that `make_room` gives is taken, then the damaged file is read where
   it lies, and then only its counters, its plan and what was spent are taken along; it stays aside in any case.
5. The account holds again afterwards: finished = stored + spooled + dropped, with `spool_damaged` for what is gone as
   far as it is known.
"""

import contextlib
import os
import secrets
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import structlog

from isochrone_agent.clock import now_at
from isochrone_agent.errors import SpoolDamaged
from isochrone_agent.spool import database
from isochrone_agent.spool.damaged_database import Counters, DamagedDatabase, mend
from isochrone_agent.spool.database import PAGE_BYTES, Transaction
from isochrone_agent.spool.wal import FRAME_HEADER_BYTES, HEADER_BYTES, Log, read_log

DAMAGED = "spool_damaged"

_KEPT_DAMAGED = 3
_SCRATCH = ".salvage-"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """How many samples were taken along and how many are known to be lost; the latter is all there were only when the
    counters could be read.
    """

    salvaged: int
    lost: int
    lost_is_known: bool


_Copying = Callable[[DamagedDatabase, sqlite3.Connection], _Result]


def is_damage(error: BaseException) -> bool:
    """Whether an error of the spool means that its file is not what was written."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    damaged = code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or code == sqlite3.SQLITE_IOERR_SHORT_READ
    return damaged or isinstance(error, SpoolDamaged)


def finish(path: Path) -> None:
    """Put a new spool in its place, if a crash kept an earlier `salvage` from doing so. Raises `OSError`."""
    for left_behind in path.parent.glob(f"{_SCRATCH}*"):
        shutil.rmtree(left_behind, ignore_errors=True)
    if _complete(path).exists():
        _put_in_place(path)


def check_log(path: Path) -> None:
    """Look at the write-ahead log before SQLite does: it drops what is behind a bad frame, and says nothing.

    Raises `SpoolDamaged` when transactions were on disk that it would drop. Where it is the last one only, that may be
    what a crash of the machine cut off, or damage: a copy of the log is kept beside it, if there is room, and it is cut
    to what SQLite believes. Raises `OSError`.
    """
    wal = _beside(path, "-wal")
    found = _read_log(path)
    if not found.dropped_commits:
        return
    log.error("spool.log_damaged", path=str(wal), transactions=found.dropped_commits, lost_is_known=False)
    if found.is_damaged:
        raise SpoolDamaged(f"{found.dropped_commits} transactions lie behind a bad frame of the log")
    with contextlib.suppress(OSError):
        shutil.copyfile(wal, _beside(_aside(path), "-wal"))
    # Else a shorter transaction, written over the bad one, would leave the end of it to be found again.
    os.truncate(wal, HEADER_BYTES + found.believed * (FRAME_HEADER_BYTES + PAGE_BYTES))
    _forget_oldest(path)


def salvage(path: Path, reason: str, *, make_room: Callable[[], None]) -> None:
    """Replace the damaged spool at `path`, which nobody has open; with less in it when the disk has no room for more.
    Raises `OSError` and `sqlite3.Error` when not even an empty one can be made; the damaged one is where it was then.
    """
    result = _first_that_succeeds(path, make_room)
    kept = _put_in_place(path)
    log.error(
        "spool.salvaged",
        reason=reason,
        salvaged=result.salvaged,
        lost=result.lost,
        lost_is_known=result.lost_is_known,
        damaged_file=str(kept),
    )


def _first_that_succeeds(path: Path, make_room: Callable[[], None]) -> _Result:
    for salvaged in (_salvage_copy, partial(_salvage_in_place, copy=_copy)):
        try:
            return salvaged(path)
        except (OSError, sqlite3.Error) as error:
            log.warning("spool.salvage_failed", path=str(path), reason=str(error))
            make_room()
    return _salvage_in_place(path, copy=_abandon)


def _salvage_copy(path: Path) -> _Result:
    with _scratch(path) as folder:
        copy = folder / "damaged"
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(path, copy)
        _fold(_read_log(path), copy)
        mend(copy, folder / "empty")
        with DamagedDatabase(copy) as wreck:
            return _rebuild(wreck, path, folder, _copy)


def _salvage_in_place(path: Path, *, copy: _Copying) -> _Result:
    is_whole = not _read_log(path).dropped_commits
    with _scratch(path) as folder, DamagedDatabase(path, read_only=True) as wreck:
        # What SQLite reads without the end of the log may be delivered already, under other numbers.
        result = _rebuild(wreck, path, folder, copy if is_whole else _abandon)
    return replace(result, lost_is_known=result.lost_is_known and is_whole)


@contextlib.contextmanager
def _scratch(path: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_SCRATCH) as folder:
        yield Path(folder)


def _read_log(path: Path) -> Log:
    try:
        content = _beside(path, "-wal").read_bytes()
    except FileNotFoundError:
        content = b""
    return read_log(content, PAGE_BYTES)


def _fold(found: Log, copy: Path) -> None:
    """Write the pages of a log into a copy of its file, and nothing in the place of one that is garbled: an older state
    of it would bring back what was delivered.
    """
    frames = found.rightful
    if not frames:
        return
    pages = frames[-1].pages
    with copy.open("r+b" if copy.exists() else "w+b") as file:
        for frame in frames:
            if 0 < frame.page <= pages:
                file.seek((frame.page - 1) * PAGE_BYTES)
                file.write(frame.content if frame.is_whole else bytes(PAGE_BYTES))
        file.truncate(pages * PAGE_BYTES)


def _rebuild(wreck: DamagedDatabase, path: Path, folder: Path, copy: _Copying) -> _Result:
    """The new spool for `path`, complete, closed and on disk, with what `copy` brings."""
    new = folder / "new"
    with closing(database.connect(new)) as db:
        # Nobody needs the half of it; a log would only take as much room again.
        db.execute("pragma journal_mode = delete").fetchall()
        with Transaction(db):
            result = copy(wreck, db)
    new.replace(_complete(path))
    return result


def _copy(wreck: DamagedDatabase, db: sqlite3.Connection) -> _Result:
    counters = wreck.counters()
    known = counters or Counters()
    # Above every number ever given, so that no two samples of this spool's life have the same.
    sealed_to, salvaged = known.last_id, 0
    for row in wreck.sealed():
        db.execute("insert or ignore into sealed values (?, ?, ?, ?, ?, ?, ?)", row)
        sealed_to, salvaged = max(sealed_to, row[0] + row[3]), salvaged + row[3]
    waiting = [body for number, body in sorted(wreck.waiting().items()) if number > known.sealed_to]
    for number, (recorded_at, body) in enumerate(waiting, sealed_to + 1):
        row = (number, recorded_at, database.sample_checksum(body), body)
        db.execute("insert into waiting values (?, ?, ?, ?)", row)
    for row in wreck.quarantine():
        db.execute("insert or ignore into quarantine values (?, ?, ?, ?, ?)", row)
    salvaged += len(waiting) + database.value(db, "select count(*) from quarantine")
    lost = _settle(wreck, db, known, salvaged=salvaged, last_id=sealed_to + len(waiting), sealed_to=sealed_to)
    return _Result(salvaged=salvaged, lost=lost, lost_is_known=counters is not None)


def _abandon(wreck: DamagedDatabase, db: sqlite3.Connection) -> _Result:
    counters = wreck.counters()
    known = counters or Counters()
    lost = _settle(wreck, db, known, salvaged=0, last_id=known.last_id, sealed_to=known.last_id)
    return _Result(salvaged=0, lost=lost, lost_is_known=counters is not None)


def _settle(
    wreck: DamagedDatabase, db: sqlite3.Connection, known: Counters, *, salvaged: int, last_id: int, sealed_to: int
) -> int:
    """Write the counters so that the account holds; returns how many samples are lost as far as is known."""
    dropped = Counter(wreck.dropped())
    lost = max(known.finished - known.stored - dropped.total() - salvaged, 0)
    dropped[DAMAGED] += lost
    db.executemany("insert into dropped values (?, ?)", (+dropped).items())
    finished = known.stored + salvaged + dropped.total()
    db.execute("delete from spool")
    # Whatever was stored was stored under epochs that are over now.
    row = (secrets.randbits(62) + 1, 1, last_id, sealed_to, finished, known.stored, known.stored)
    db.execute("insert into spool values (?, ?, ?, ?, ?, ?, ?)", row)
    db.executemany("insert or ignore into spend values (?, ?, ?, ?, ?)", wreck.spend())
    if (plan := wreck.plan()) is not None:
        db.execute("insert into plan values (1, ?)", (plan,))
    return lost


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _complete(path: Path) -> Path:
    return _beside(path, ".salvaged")


def _aside(path: Path) -> Path:
    return _beside(path, f".damaged-{now_at() // 1_000_000}")


def _put_in_place(path: Path) -> Path:
    kept = _aside(path)
    for suffix in ("-wal", ""):
        with contextlib.suppress(FileNotFoundError):
            _beside(path, suffix).replace(_beside(kept, suffix))
    _beside(path, "-shm").unlink(missing_ok=True)
    _complete(path).replace(path)
    _sync_folder(path.parent)
    _forget_oldest(path)
    return kept


def _forget_oldest(path: Path) -> None:
    """A disk that goes on damaging spools must not be filled with them."""
    names = {file.name.removesuffix("-wal") for file in path.parent.glob(f"{path.name}.damaged-*")}
    for file in sorted(map(path.with_name, names))[:-_KEPT_DAMAGED]:
        file.unlink(missing_ok=True)
        _beside(file, "-wal").unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
