"""Reading an agent's spool from outside: which samples lie in it, and what the agent counts in it."""

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from chaos.journal import Key
from isochrone_agent.errors import SpoolDamaged
from isochrone_agent.spool import database
from isochrone_agent.spool.stats import read_stats
from isochrone_wire.accounting import Account
from isochrone_wire.v1 import sample_pb2

FILE = "spool.sqlite3"
# The write-ahead log belongs to the file: what was committed last is only there.
SUFFIXES = ("", "-wal")


def waiting(data_dir: Path) -> set[Key]:
    """The samples that wait in the spool, sealed or not, as far as they can be read. For a spool nobody has open."""
    with _copy(data_dir) as db:
        sealed = _what_reads(db, "select * from sealed", lambda row: database.read_sealed(row).bodies)
        unsealed = _what_reads(db, "select checksum, body from waiting", lambda row: [database.read_sample(*row)])
        return set(sealed) | set(unsealed)


def in_quarantine(data_dir: Path) -> set[Key]:
    """The samples that the collector would not take, kept aside on disk."""
    with _copy(data_dir) as db:
        return set(_what_reads(db, "select checksum, body from quarantine", lambda row: [database.read_sample(*row)]))


def account(data_dir: Path) -> Account:
    """Where the agent says that its samples are."""
    with _copy(data_dir) as db:
        return read_stats(db).account


def waiting_count(data_dir: Path) -> int:
    """How many samples wait, in a spool that an agent has open."""
    try:
        with closing(database.connect_read_only(data_dir / FILE)) as db:
            return read_stats(db).waiting
    except sqlite3.Error:
        return 0


def _what_reads(
    db: sqlite3.Connection, query: str, bodies_of: Callable[[tuple[object, ...]], Iterable[bytes]]
) -> Iterator[Key]:
    """Nothing, for an agent killed before it made its tables."""
    try:
        for row in db.execute(query):
            for body in bodies_of(row):
                sample = sample_pb2.Sample.FromString(body)
                yield Key(sample.target_id, sample.round_at)
    except (sqlite3.DatabaseError, SpoolDamaged):
        return


@contextmanager
def _copy(data_dir: Path) -> Iterator[sqlite3.Connection]:
    """The spool as it lies there, in another folder: opening it replays its log, and that is for the agent to do."""
    with tempfile.TemporaryDirectory() as folder:
        for suffix in SUFFIXES:
            source = data_dir / (FILE + suffix)
            if source.exists():
                shutil.copyfile(source, Path(folder, FILE + suffix))
        with closing(sqlite3.connect(Path(folder, FILE), isolation_level=None)) as db:
            yield db
