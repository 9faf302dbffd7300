"""Damage to a spool as caused by disks and crashes: corrupt bytes, and a truncated file."""

import contextlib
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

PAGE_BYTES = 4096
CHECKPOINT_SHARE = 2 / 3


def overwrite_pages(file: Path, rng: Random) -> str:
    """Write random bytes over parts of one to three pages, never the first, which identifies the file as a database."""
    pages = file.stat().st_size // PAGE_BYTES
    overwritten = sorted(rng.sample(range(1, pages), min(rng.randint(1, 3), pages - 1)))
    with file.open("r+b") as spool:
        for page in overwritten:
            length = rng.randint(16, PAGE_BYTES)
            spool.seek(page * PAGE_BYTES + rng.randint(0, PAGE_BYTES - length))
            spool.write(rng.randbytes(length))
    return f"pages {', '.join(str(page + 1) for page in overwritten)} of {pages} overwritten"


def truncate(file: Path, rng: Random) -> str:
    """Truncate the file somewhere in its second half."""
    size = file.stat().st_size
    kept = rng.randint(size // 2, size)
    os.truncate(file, kept)
    return f"cut from {size} to {kept} bytes"


def overwrite_header(file: Path, rng: Random) -> str:
    """Overwrite the first page, so that SQLite cannot open the file."""
    with file.open("r+b") as spool:
        spool.write(rng.randbytes(PAGE_BYTES))
    return "first page overwritten"


DAMAGE_FUNCTIONS: tuple[Callable[[Path, Random], str], ...] = (
    overwrite_pages,
    overwrite_pages,
    truncate,
    overwrite_header,
)


def damage(file: Path, rng: Random) -> str:
    """Damage the file and return a description; a file of less than two pages is truncated to nothing.

    The write-ahead log hides the pages under it, so it is checkpointed first in two of three cases. The log itself is
    not damaged: a truncated log is what a crash leaves, and SQLite accepts it silently.
    """
    if rng.random() < CHECKPOINT_SHARE:
        with closing(sqlite3.connect(file)) as spool, contextlib.suppress(sqlite3.DatabaseError):
            spool.execute("pragma wal_checkpoint(truncate)").fetchall()
    if file.stat().st_size < 2 * PAGE_BYTES:
        os.truncate(file, 0)
        return "cut to nothing"
    return rng.choice(DAMAGE_FUNCTIONS)(file, rng)
