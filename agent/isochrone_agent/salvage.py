"""A new spool out of a damaged one: what reads is taken along, what does not is counted, the old file is kept.

The laws:

1. The damaged file is only read. It is moved aside after the new one is complete on disk; a crash at any point in
   between is made good by `finish`, at the next start.
2. A sealed batch keeps the epoch and the number it had, because the collector may have it already. Whatever was not
   sealed goes on under the new epoch, in which no number was ever used.
3. No sample is taken whose checksum is wrong, and none of those waiting that the old spool had sealed before.
4. The account holds again afterwards: finished = stored + spooled + dropped, with `spool_damaged` for what is gone as
   far as it is known.
"""

import contextlib
import os
import secrets
import shutil
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import structlog

from isochrone_agent import spoolfile
from isochrone_agent.clock import now_at
from isochrone_agent.errors import SpoolDamaged
from isochrone_agent.spoolfile import Transaction
from isochrone_agent.wreck import Counters, Wreck, mend

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


def salvage(path: Path, reason: str) -> None:
    """Replace the damaged spool at `path`, which nobody has open. Raises `OSError` and `sqlite3.Error`."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_SCRATCH) as folder:
        copy, new = Path(folder, "damaged"), Path(folder, "new")
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(_beside(path, suffix), _beside(copy, suffix))
        mend(copy, Path(folder, "empty"))
        with Wreck(copy) as wreck:
            result = _rebuild(wreck, new)
        new.replace(_complete(path))
    kept = _put_in_place(path)
    log.error(
        "spool.salvaged",
        reason=reason,
        salvaged=result.salvaged,
        lost=result.lost,
        lost_is_known=result.lost_is_known,
        damaged_file=str(kept),
    )


def _rebuild(wreck: Wreck, path: Path) -> _Result:
    """The new spool at `path`, complete, closed and on disk."""
    with closing(spoolfile.connect(path)) as db:
        # Nobody needs the half of it; a log would only take as much room again.
        db.execute("pragma journal_mode = delete").fetchall()
        with Transaction(db):
            return _copy(wreck, db)


def _copy(wreck: Wreck, db: sqlite3.Connection) -> _Result:
    counters = wreck.counters()
    known = counters or Counters()
    # Above every number ever given, so that no two samples of this spool's life have the same.
    sealed_to, salvaged = known.last_id, 0
    for row in wreck.sealed():
        db.execute("insert or ignore into sealed values (?, ?, ?, ?, ?, ?, ?)", row)
        sealed_to, salvaged = max(sealed_to, row[0] + row[3]), salvaged + row[3]
    waiting = [body for number, body in sorted(wreck.waiting().items()) if number > known.sealed_to]
    for number, (recorded_at, body) in enumerate(waiting, sealed_to + 1):
        row = (number, recorded_at, spoolfile.sample_checksum(body), body)
        db.execute("insert into waiting values (?, ?, ?, ?)", row)
    for row in wreck.quarantine():
        db.execute("insert or ignore into quarantine values (?, ?, ?, ?, ?)", row)
    salvaged += len(waiting) + spoolfile.value(db, "select count(*) from quarantine")
    lost = _settle(wreck, db, known, salvaged=salvaged, last_id=sealed_to + len(waiting), sealed_to=sealed_to)
    return _Result(salvaged=salvaged, lost=lost, lost_is_known=counters is not None)


def _settle(
    wreck: Wreck, db: sqlite3.Connection, known: Counters, *, salvaged: int, last_id: int, sealed_to: int
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


def _put_in_place(path: Path) -> Path:
    kept = _beside(path, f".damaged-{now_at() // 1_000_000}")
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
    damaged = sorted(file for file in path.parent.glob(f"{path.name}.damaged-*") if not file.name.endswith("-wal"))
    for file in damaged[:-_KEPT_DAMAGED]:
        file.unlink(missing_ok=True)
        _beside(file, "-wal").unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
