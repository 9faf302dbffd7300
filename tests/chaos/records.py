"""The samples in the spool of an agent, with its counters, and those in PostgreSQL."""

import shutil
import sqlite3
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg

from chaos.journal import Key
from isochrone_agent.errors import SpoolDamaged
from isochrone_agent.spool import database
from isochrone_agent.spool.database import read_stats
from isochrone_wire.model import Account
from isochrone_wire.v1 import sample_pb2

FILE = "spool.sqlite3"
# The newest commits are in the write-ahead log only.
SUFFIXES = ("", "-wal")
_SEALED = "id, epoch, seq, samples, oldest_at, checksum, body"


def waiting(data_dir: Path) -> set[Key]:
    """Return the readable samples that wait in the spool, sealed or not. The spool must not be open."""
    with _copy(data_dir) as db:
        sealed = _readable_keys(db, f"select {_SEALED} from sealed", _batch)
        unsealed = _readable_keys(db, "select checksum, body from waiting", _sample)
        return set(sealed) | set(unsealed)


def copies(data_dir: Path) -> set[Key]:
    """Return the readable samples in a spool, which may be open: also those in quarantine and kept after delivery."""
    found = set[Key]()
    try:
        with closing(database.connect_read_only(data_dir / FILE)) as db:
            # One state of the file: a batch is moved from one table to the other when it is acknowledged.
            db.execute("begin")
            for table in ("waiting", "quarantine"):
                found |= set(_readable_keys(db, f"select checksum, body from {table}", _sample))
            for table in ("sealed", "replay"):
                found |= set(_readable_keys(db, f"select {_SEALED} from {table}", _batch))
    except sqlite3.Error:
        pass  # damaged
    return found


def quarantined(data_dir: Path) -> set[Key]:
    """Return the samples in quarantine, which the collector rejected."""
    with _copy(data_dir) as db:
        return set(_readable_keys(db, "select checksum, body from quarantine", _sample))


def account(data_dir: Path) -> Account:
    with _copy(data_dir) as db:
        return read_stats(db).account


def waiting_count(data_dir: Path) -> int:
    try:
        with closing(database.connect_read_only(data_dir / FILE)) as db:
            return read_stats(db).waiting
    except sqlite3.Error:
        return 0


def _sample(row: tuple[object, ...]) -> list[bytes]:
    return [database.read_sample(*row)]


def _batch(row: tuple[object, ...]) -> list[bytes]:
    return database.read_sealed(row).bodies


def _readable_keys(
    db: sqlite3.Connection, query: str, bodies_of: Callable[[tuple[object, ...]], Iterable[bytes]]
) -> Iterator[Key]:
    """Yield the keys up to the first damaged row; none if the agent was killed before it created its tables."""
    try:
        for row in db.execute(query):
            for body in bodies_of(row):
                sample = sample_pb2.Sample.FromString(body)
                yield Key(sample.target_id, sample.round_at)
    except (sqlite3.DatabaseError, SpoolDamaged):
        return


@contextmanager
def _copy(data_dir: Path) -> Iterator[sqlite3.Connection]:
    """Open a copy of the spool in another folder, because opening a spool replays its log, a task of the agent."""
    with tempfile.TemporaryDirectory() as folder:
        for suffix in SUFFIXES:
            source = data_dir / (FILE + suffix)
            if source.exists():
                shutil.copyfile(source, Path(folder, FILE + suffix))
        with closing(sqlite3.connect(Path(folder, FILE), isolation_level=None)) as db:
            yield db


_STORED = """
select v.name, s.target_id, (extract(epoch from s.round_at) * 1000000)::bigint, s.rows from (
    select vantage_id, target_id, round_at, count(*) as rows from (
        select vantage_id, target_id, round_at from sample
        union all select vantage_id, target_id, round_at from sample_late where reason <> 'already_stored'
    ) as everything group by 1, 2, 3
) as s join vantage as v on v.id = s.vantage_id
"""


async def stored(conninfo: str) -> defaultdict[str, Counter[Key]]:
    """Return the number of rows per vantage and sample, except rows set aside because their round is in `sample`."""
    found: defaultdict[str, Counter[Key]] = defaultdict(Counter)
    async with await psycopg.AsyncConnection.connect(conninfo) as connection:
        for vantage, target_id, round_at, rows in await (await connection.execute(_STORED)).fetchall():
            found[vantage][Key(target_id, round_at)] = rows
    return found
