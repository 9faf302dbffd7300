"""Small separate disks that can be filled (a tmpfs, which requires root), and damage to a spool on a disk."""

import contextlib
import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from random import Random

SPOOL_MB = 24
_BALLAST = "ballast"


def unavailable_reason() -> str | None:
    """Return the reason why no disk can be mounted here, or `None`."""
    if os.geteuid() != 0:
        return "root is required to mount a small disk"
    tried = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
    )
    return None if tried.returncode == 0 else f"cannot mount a tmpfs: {tried.stderr.decode().strip()}"


def mount(folder: Path, *, size_mb: int = SPOOL_MB) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mb}m,mode=0700", "tmpfs", str(folder)], check=True)


def unmount(folder: Path, *, idle: bool = False) -> None:
    """Unmount the disk and discard its content. Raises `CalledProcessError` if it should be `idle` and is in use."""
    plain = subprocess.run(["umount", str(folder)], check=False)
    if plain.returncode:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
    if idle:
        plain.check_returncode()


def fill(folder: Path) -> None:
    with Path(folder, _BALLAST).open("wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(1 << 20))
        except OSError:
            return


def free(folder: Path) -> None:
    Path(folder, _BALLAST).unlink(missing_ok=True)


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


DAMAGE_FUNCTIONS = (overwrite_pages, overwrite_pages, truncate, overwrite_header)


def damage(file: Path, rng: Random) -> str:
    """Damage a spool as disks and crashes do, and return a description; less than two pages are truncated to nothing.

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
