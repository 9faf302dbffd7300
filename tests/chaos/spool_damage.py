"""Damaging a spool the way disks and crashes do: bytes that nobody wrote, and a file that ends too early."""

import contextlib
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

PAGE_BYTES = 4096
FOLDED_SHARE = 2 / 3


def overwrite_pages(file: Path, chance: Random) -> str:
    """Random bytes over a part of one to three pages, never the first, which says that this is a database."""
    pages = file.stat().st_size // PAGE_BYTES
    struck = sorted(chance.sample(range(1, pages), min(chance.randint(1, 3), pages - 1)))
    with file.open("r+b") as spool:
        for page in struck:
            length = chance.randint(16, PAGE_BYTES)
            spool.seek(page * PAGE_BYTES + chance.randint(0, PAGE_BYTES - length))
            spool.write(chance.randbytes(length))
    return f"pages {', '.join(str(page + 1) for page in struck)} of {pages} overwritten"


def cut_short(file: Path, chance: Random) -> str:
    """The file ends somewhere in its second half."""
    size = file.stat().st_size
    kept = chance.randint(size // 2, size)
    os.truncate(file, kept)
    return f"cut from {size} to {kept} bytes"


def overwrite_header(file: Path, chance: Random) -> str:
    """The first page is noise: this is no database any more."""
    with file.open("r+b") as spool:
        spool.write(chance.randbytes(PAGE_BYTES))
    return "first page overwritten"


WOUNDS: tuple[Callable[[Path, Random], str], ...] = (overwrite_pages, overwrite_pages, cut_short, overwrite_header)


def damage(file: Path, chance: Random) -> str:
    """Damage the file and say how; a file of less than two pages is cut to nothing.

    What lies in the write-ahead log hides the pages under it, so in two of three cases the log is folded in first. The
    log itself is left alone: one that ends early is what a crash leaves, and SQLite believes it without a word.
    """
    if chance.random() < FOLDED_SHARE:
        with closing(sqlite3.connect(file)) as spool, contextlib.suppress(sqlite3.DatabaseError):
            spool.execute("pragma wal_checkpoint(truncate)").fetchall()
    if file.stat().st_size < 2 * PAGE_BYTES:
        os.truncate(file, 0)
        return "cut to nothing"
    return chance.choice(WOUNDS)(file, chance)
