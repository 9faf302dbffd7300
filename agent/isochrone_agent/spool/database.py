"""The SQLite database of a spool: tables, the encoding of samples and batches, the spend table, and how to open it.

The laws:

1. Samples get ascending ids in the order they are recorded; the id of a sealed batch is that of its first sample. A
   waiting sample has a higher id than every sample ever sealed (`sealed_to`).
2. The body of a sealed batch, decompressed, is what a push carries: the encoded field `samples` of a Batch.
3. Everything that is delivered from the file has a checksum that also covers its identity, because SQLite has none: a
   damaged page must not become a measurement.
4. A budget charges the maximum cost of a request before it is sent and corrects the charge with the sample. So requests
   that were in flight when the agent was killed stay charged.
"""

import bz2
import contextlib
import errno
import fcntl
import os
import pwd
import secrets
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isochrone_agent.clock import now_at
from isochrone_agent.errors import SpoolDamaged, SpoolError
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import Account, Spend
from isochrone_wire.v1 import fleet_pb2

FORMAT = 1
PAGE_BYTES = 4096

# Few, so that the log stays much smaller than the disk reserve.
_CHECKPOINT_PAGES = 100
# The header, and the pointer map of incremental vacuum.
_EMPTY_DATABASE_PAGES = 2
# Rows of one provider and one day each; about a megabyte.
_MAX_SPENDS = 10_000
# An agent that is killed repeatedly may begin several before the collector hears of one.
_HISTORY_EPOCHS = 16

SCHEMA = """
create table spool (
    epoch integer not null, next_seq integer not null, last_id integer not null, sealed_to integer not null,
    finished integer not null, stored integer not null, earlier integer not null
);
create table waiting (
    id integer primary key, recorded_at integer not null, checksum integer not null, body blob not null
);
create table sealed (
    id integer primary key, epoch integer not null, seq integer not null, samples integer not null,
    oldest_at integer not null, checksum integer not null, body blob not null
);
create table quarantine (
    id integer primary key, recorded_at integer not null, reason text not null, checksum integer not null,
    body blob not null
);
create table dropped (reason text primary key, samples integer not null);
create table spend (
    day_at integer not null, provider text not null, usd real not null, tokens integer not null,
    requests integer not null, primary key (day_at, provider)
);
create table plan (only_one integer primary key check (only_one = 1), body blob not null);
create table epoch_history (place integer primary key, epoch integer not null);
create table replay (
    place integer primary key, id integer not null, epoch integer not null, seq integer not null,
    samples integer not null, oldest_at integer not null, kept_at integer not null, dropped text not null,
    checksum integer not null, body blob not null
);
create unique index replay_number on replay (epoch, seq);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedBatch:
    """Samples pushed together under one number of one epoch. `content` is the encoded field `samples` of the push."""

    id: int
    epoch: int
    seq: int
    samples: int
    oldest_at: int
    content: bytes = field(repr=False)

    @property
    def bodies(self) -> list[bytes]:
        """The encoded samples, one by one."""
        return list(fleet_pb2.EncodedSamples.FromString(self.content).samples)


def connect(path: Path) -> sqlite3.Connection:
    """Open the file for writing; create it if missing. Raises `sqlite3.Error`, `SpoolDamaged` and `SpoolError`."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
    try:
        # The first two only have an effect on a new file.
        db.execute(f"pragma page_size = {PAGE_BYTES}")
        db.execute("pragma auto_vacuum = incremental")
        db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = full")
        db.execute(f"pragma wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        _check(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _check(db: sqlite3.Connection, path: Path) -> None:
    verdict = value(db, "pragma quick_check(1)")
    if verdict != "ok":
        raise SpoolDamaged(f"SQLite reports: {verdict}")
    if value(db, "select count(*) from sqlite_schema") == 0:
        if value(db, "pragma page_count") > _EMPTY_DATABASE_PAGES:
            raise SpoolDamaged("the file is not empty but has no tables")
        with transaction(db):
            for statement in SCHEMA.split(";"):
                db.execute(statement)
            db.execute("insert into spool values (?, 1, 0, 0, 0, 0, 0)", (new_epoch(),))
            db.execute(f"pragma user_version = {FORMAT}")
    elif (found := value(db, "pragma user_version")) != FORMAT:
        raise SpoolError(
            f"the spool {path} was written by another version of the agent (format {found}, not {FORMAT})",
            hint="deliver it with that version first, or move it away",
        )


def new_epoch() -> int:
    """Draw a random epoch."""
    return secrets.randbits(62) + 1


def is_full(error: BaseException) -> bool:
    """Return whether an error of the spool means that its disk is full."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    return code & 0xFF == sqlite3.SQLITE_FULL or getattr(error, "errno", None) == errno.ENOSPC


def open_error(path: Path, error: OSError | sqlite3.Error) -> SpoolError:
    """Translate an error on opening the spool into a sentence and a hint."""
    hint = "check that the folder is on a local disk, writable, with space left; see --data-dir"
    if is_full(error):
        return SpoolError(f"the spool {path} cannot be opened: its disk is full", hint="free space on that disk")
    return SpoolError(f"the spool {path} cannot be opened: {error}", hint=hint)


def connect_read_only(path: Path) -> sqlite3.Connection:
    """Open the file for reading, also while an agent writes it. Raises `sqlite3.Error`."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=5)


def value(db: sqlite3.Connection, query: str, parameters: Sequence[Any] = ()) -> Any:  # noqa: ANN401  # a column's value
    """The first column of the first row; `None` without one."""
    row = db.execute(query, parameters).fetchone()
    return row[0] if row else None


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """A transaction: `begin immediate` … `commit`, or `rollback` when the block or the commit fails."""
    db.execute("begin immediate")
    try:
        yield
        db.execute("commit")
    finally:
        # A full disk may have rolled it back already.
        if db.in_transaction:
            db.execute("rollback")


def sample_checksum(body: bytes) -> int:
    """The checksum of a waiting or quarantined sample."""
    return zlib.crc32(body)


def batch_checksum(*, epoch: int, seq: int, samples: int, packed: bytes) -> int:
    """The checksum of a sealed batch."""
    return zlib.crc32(packed, zlib.crc32(f"{epoch}/{seq}/{samples}".encode()))


def read_sealed(row: tuple[Any, ...]) -> SealedBatch:
    """Decode a row of `sealed`, all columns in order. Raises `SpoolDamaged`."""
    number, epoch, seq, samples, oldest_at, checksum, packed = row
    try:
        if batch_checksum(epoch=epoch, seq=seq, samples=samples, packed=packed) != checksum:
            raise SpoolDamaged(f"batch {seq} has a wrong checksum")
        content = bz2.decompress(packed)
    except (TypeError, OSError, ValueError) as error:
        raise SpoolDamaged(f"batch {seq} cannot be read: {error}") from error
    return SealedBatch(id=number, epoch=epoch, seq=seq, samples=samples, oldest_at=oldest_at, content=content)


def read_sample(checksum: object, body: object) -> bytes:
    """Check the body of a waiting or quarantined sample and return it. Raises `SpoolDamaged`."""
    if not isinstance(body, bytes) or sample_checksum(body) != checksum:
        raise SpoolDamaged("a sample has a wrong checksum")
    return body


def write_epoch_history(db: sqlite3.Connection, epoch: int, earlier: Sequence[int]) -> tuple[int, ...]:
    """Put an epoch before `earlier` ones, by default those in the file; return the newest ones, newest first."""
    known = earlier or [row[0] for row in db.execute("select epoch from epoch_history order by place").fetchall()]
    # The epoch is among them if this is repeated after a failure.
    history = (epoch, *(one for one in known if one != epoch))[:_HISTORY_EPOCHS]
    db.execute("delete from epoch_history")
    db.executemany("insert into epoch_history values (?, ?)", enumerate(history))
    return history


def add_spends(db: sqlite3.Connection, spends: Iterable[Spend]) -> None:
    """Add `spends`, negative ones to undo a reservation, inside a transaction of the caller."""
    # Never below zero: salvage may have lost the row that is corrected, and sums of floats are not exact.
    for spend in spends:
        db.execute(
            "insert into spend values (?, ?, max(0.0, ?), max(0, ?), max(0, ?)) "
            "on conflict (day_at, provider) do update "
            "set usd = max(0.0, usd + ?), tokens = max(0, tokens + ?), requests = max(0, requests + ?)",
            (spend.day_at, spend.provider, *(spend.usd, spend.tokens, spend.requests) * 2),
        )
    # By their number, because a row dated ahead by a wrong clock must end no other day.
    db.execute("delete from spend where rowid <= (select max(rowid) from spend) - ?", (_MAX_SPENDS,))


def read_spend(db: sqlite3.Connection, day_at: int) -> tuple[Spend, ...]:
    """The cost so far of the day (UTC) that began at `day_at`, by provider, including reservations."""
    query = "select provider, usd, tokens, requests from spend where day_at = ? order by provider"
    return tuple(
        Spend(provider=provider, day_at=day_at, usd=usd, tokens=tokens, requests=requests)
        for provider, usd, tokens, requests in db.execute(query, (day_at,)).fetchall()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolStats:
    """Numbers of samples; `earlier` of the stored ones under earlier epochs. `oldest_at` is 0 if none waits."""

    waiting: int
    oldest_at: int
    quarantined: int
    finished: int
    stored: int
    earlier: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def account(self) -> Account:
        """The account of all samples."""
        spooled = self.waiting + self.quarantined
        return Account(finished=self.finished, stored=self.stored, spooled=spooled, dropped=self.dropped)


def read_stats(db: sqlite3.Connection) -> SpoolStats:
    """Read the statistics at one instant. Raises `sqlite3.Error`."""
    db.execute("begin")
    try:
        unsealed, unsealed_at = db.execute("select count(*), min(recorded_at) from waiting").fetchone()
        sealed, sealed_at = db.execute("select coalesce(sum(samples), 0), min(oldest_at) from sealed").fetchone()
        finished, stored, earlier = db.execute("select finished, stored, earlier from spool").fetchone()
        return SpoolStats(
            waiting=unsealed + sealed,
            oldest_at=min((at for at in (unsealed_at, sealed_at) if at is not None), default=0),
            quarantined=value(db, "select count(*) from quarantine"),
            finished=finished,
            stored=stored,
            earlier=earlier,
            dropped=dict(db.execute("select reason, samples from dropped order by reason").fetchall()),
        )
    finally:
        db.execute("rollback")


RESERVE_BYTES = 2_000_000
# The reserve is taken only while this many times its size is free, so that a disk just freed is not filled again.
_MIN_FREE_RESERVES = 4


class LockFile:
    """An exclusive lock on the spool at `path`, held until `release` or the end of the process. Raises `SpoolError`."""

    def __init__(self, path: Path) -> None:
        _check_owner(path)
        # Never removed: a process that had opened the removed file would hold a lock that no other process sees.
        self._file = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._file, 200, 0).decode(errors="replace").strip()
            os.close(self._file)
            hint = "stop it, or give this agent another folder with --data-dir"
            raise SpoolError(f"the spool {path} is in use by {holder or 'another agent'}", hint=hint) from None
        # The lock also works on a full disk, where the name of its holder cannot be written.
        with contextlib.suppress(OSError):
            os.truncate(self._file, 0)
            os.pwrite(self._file, f"the agent with pid {os.getpid()}, since {rfc3339(now_at())}\n".encode(), 0)

    def release(self) -> None:
        """Let another agent open the spool."""
        os.close(self._file)


class DiskReserve:
    """A file of `RESERVE_BYTES`, deleted on a full disk: a transaction that frees space needs space itself."""

    def __init__(self, spool: Path) -> None:
        self._path = spool.with_name(spool.name + ".reserve")
        self._exists = False

    def allocate(self) -> bool:
        """Allocate the reserve if it is missing and the disk has enough room; return whether it exists."""
        if self._exists:
            return True
        with contextlib.suppress(OSError):
            self._exists = self._path.exists() and self._path.stat().st_size == RESERVE_BYTES
            if not self._exists and _free_bytes(self._path.parent) > _MIN_FREE_RESERVES * RESERVE_BYTES:
                with self._path.open("wb", buffering=0) as file:
                    os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
                self._exists = True
        return self._exists

    @property
    def is_needed(self) -> bool:
        """True if the disk has less free space than the reserve takes."""
        return _free_bytes(self._path.parent) < RESERVE_BYTES

    def release(self) -> None:
        """Return the space to the disk."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._exists = False


def _free_bytes(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def _check_owner(path: Path) -> None:
    """Refuse the spool of another user: an agent run by root would leave files that the other agent cannot open."""
    for place in (path, path.parent):
        if not place.exists():
            continue
        owner, user = place.stat().st_uid, os.geteuid()
        if owner != user and (place == path or user == 0):
            raise SpoolError(
                f"{place} belongs to {_user_name(owner)}, and this agent runs as {_user_name(user)}",
                hint=f"run the agent as {_user_name(owner)}, or give it another folder with --data-dir",
            )
        return


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
