"""Inspection and verification of a spool, read-only, also while an agent writes it. Damage is not raised."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from google.protobuf.message import DecodeError

from isochrone_agent.errors import SpoolDamaged, SpoolError
from isochrone_agent.spool import database
from isochrone_agent.spool.database import FORMAT, SpoolStats, read_stats
from isochrone_wire import codec
from isochrone_wire.codec import CodecError
from isochrone_wire.model import Sample, Spend
from isochrone_wire.v1 import sample_pb2

MAX_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class EpochShare:
    """The sealed batches of one epoch."""

    epoch: int
    batches: int
    samples: int
    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class Quarantined:
    """One sample that the collector refused, with its id in the spool."""

    id: int
    recorded_at: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The contents of a spool. `holds`: the account adds up; `damaged_files`: the old files of salvaged spools."""

    path: str
    bytes: int
    epoch: int
    next_seq: int
    unsealed: int
    depth: SpoolStats
    holds: bool
    sealed: tuple[EpochShare, ...]
    quarantine: tuple[Quarantined, ...]
    damaged_files: tuple[str, ...]


def inspect_spool(path: Path) -> Inspection:
    """Read the statistics, epochs, quarantine and account. Raises `SpoolError` when the spool cannot be opened."""
    # Without the write-ahead logs of damaged files, and without the copy of a log that was only truncated.
    damaged = (file for file in path.parent.glob(f"{path.name}.damaged-*") if not file.name.endswith("-wal"))
    with _readable(path) as db:
        stats = read_stats(db)
        epoch, next_seq = db.execute("select epoch, next_seq from spool").fetchone()
        shares = db.execute("select epoch, count(*), sum(samples), min(seq), max(seq) from sealed group by epoch")
        return Inspection(
            path=str(path),
            bytes=sum(file.stat().st_size for suffix in ("", "-wal") if (file := Path(f"{path}{suffix}")).exists()),
            epoch=epoch,
            next_seq=next_seq,
            unsealed=database.value(db, "select count(*) from waiting"),
            depth=stats,
            holds=stats.account.holds,
            sealed=tuple(EpochShare(*row) for row in shares.fetchall()),
            quarantine=tuple(
                Quarantined(*row) for row in db.execute("select id, recorded_at, reason from quarantine order by id")
            ),
            damaged_files=tuple(sorted(map(str, damaged))),
        )


def quarantined_samples(path: Path) -> list[tuple[Quarantined, Sample | None]]:
    """Return the quarantine, with `None` for a sample that cannot be decoded. Raises `SpoolError`."""
    with _readable(path) as db:
        rows = db.execute("select id, recorded_at, reason, body from quarantine order by id").fetchall()
    return [(Quarantined(*row), _decoded(body)) for *row, body in rows]


def verify_spool(path: Path) -> list[str]:
    """Return a sentence for each problem, at most `MAX_PROBLEMS`. Raises `SpoolError` without a spool."""
    problems = list[str]()
    try:
        with _opened(path) as db:
            for check in _CHECKS:
                try:
                    for problem in check(db):
                        problems.append(problem)
                except sqlite3.Error as error:
                    problems.append(f"part of the file cannot be read: {error}")
    except sqlite3.Error as error:
        problems.append(f"the file cannot be read: {error}")
    return problems[:MAX_PROBLEMS]


def read_spend(path: Path, day_at: int) -> tuple[Spend, ...]:
    """The spend of the day (UTC) that began at `day_at`, by provider; empty if the spool cannot be read."""
    try:
        with closing(database.connect_read_only(path)) as db:
            return database.read_spend(db, day_at)
    except sqlite3.Error:
        return ()


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.exists():
        hint = "name the agent's data folder with --data-dir, or its --vantage"
        raise SpoolError(f"there is no spool at {path}", hint=hint)
    with closing(database.connect_read_only(path)) as db:
        if (version := database.value(db, "pragma user_version")) != FORMAT:
            sentence = f"the spool {path} has format {version}, and this agent reads {FORMAT}"
            raise SpoolError(sentence, hint="compare versions")
        yield db


@contextmanager
def _readable(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with _opened(path) as db:
            yield db
    except sqlite3.Error as error:
        hint = "run `isochrone-agent spool verify` for details; the agent salvages what can be read when it starts"
        raise SpoolError(f"the spool {path} cannot be read: {error}", hint=hint) from error


def _check_file(db: sqlite3.Connection) -> Iterator[str]:
    for (sentence,) in db.execute(f"pragma integrity_check({MAX_PROBLEMS})"):
        if sentence != "ok":
            yield f"SQLite reports: {sentence}"


def _check_account(db: sqlite3.Connection) -> Iterator[str]:
    account = read_stats(db).account
    if not account.holds:
        yield f"the account does not hold: {account.missing} samples are missing in {account}"


def _check_sealed(db: sqlite3.Connection) -> Iterator[str]:
    for row in db.execute("select * from sealed order by id"):
        try:
            batch = database.read_sealed(row)
            unreadable = sum(_decoded(body) is None for body in batch.bodies)
        except SpoolDamaged as error:
            yield str(error)
            continue
        if unreadable:
            yield f"batch {batch.seq} of epoch {batch.epoch}: {unreadable} samples cannot be decoded"
        if len(batch.bodies) != batch.samples:
            yield f"batch {batch.seq} of epoch {batch.epoch} has {len(batch.bodies)} samples instead of {batch.samples}"


def _check_rows(table: str, db: sqlite3.Connection) -> Iterator[str]:
    for number, checksum, body in db.execute(f"select id, checksum, body from {table}"):  # noqa: S608  # our own names
        try:
            if _decoded(database.read_sample(checksum, body)) is None:
                yield f"sample {number} ({table}) cannot be decoded"
        except SpoolDamaged as error:
            yield f"sample {number} ({table}): {error}"


_CHECKS: tuple[Callable[[sqlite3.Connection], Iterator[str]], ...] = (
    _check_file,
    _check_account,
    _check_sealed,
    partial(_check_rows, "waiting"),
    partial(_check_rows, "quarantine"),
)


def _decoded(body: bytes) -> Sample | None:
    try:
        return codec.decode(Sample, sample_pb2.Sample.FromString(body))
    except (DecodeError, CodecError):
        return None
