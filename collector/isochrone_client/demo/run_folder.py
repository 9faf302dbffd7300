"""The folder of one run of the demo: locked while any of its processes runs, and removed afterwards. In it, the data
folder of the database, whose server is stopped even if the collector was killed.

The lock file contains the process id of the demo, and the word `keep` if the folder is to stay. A demo that failed or
was killed leaves its folder, with the logs; the next demo removes it.
"""

import fcntl
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from isochrone_client.errors import ClientError, DemoError

_LOCK_FILE = ".isochrone-demo"
_PREFIX, _KEEP = "isochrone-demo-", "keep"
# The processes of a killed demo end within this time.
_ENDING_SECONDS = 30.0
_POLL_SECONDS = 0.1
_DATA_PREFIX, _SOCKET_PREFIX = "collector-", "isochrone-pg-"


class RunFolder(NamedTuple):
    """The folder, and the descriptor of its lock; the lock is held as long as any process has it open."""

    path: Path
    lock: int


@contextmanager
def run_folder(folder: Path | None, *, keep: bool) -> Iterator[RunFolder]:
    """`folder`, or a new temporary one, for the block; removed at the end unless `keep`, or unless the block raises a
    `ClientError`, whose hint then names it.

    Raises `DemoError` if the folder holds files of anything but an earlier demo, if a demo is running in it, or if it
    cannot be written to.
    """
    _remove_abandoned()
    root = folder or Path(tempfile.mkdtemp(prefix=_PREFIX))
    _require_usable(root)
    with _locked(root) as lock:
        lock.truncate(0)
        lock.write(f"{os.getpid()} {_KEEP if keep else ''}\n")
        lock.flush()
        _remove_contents(root)
        (root / "logs").mkdir(exist_ok=True)
        is_kept = keep
        try:
            yield RunFolder(root.resolve(), lock.fileno())
        except ClientError as error:
            is_kept = True
            logs = f"logs: {root.resolve() / 'logs'}{'' if keep else ', until the next demo'}"
            error.hint = "; ".join(filter(None, (error.hint, logs)))
            raise
        finally:
            if not is_kept:
                _remove(root)


def _require_usable(root: Path) -> None:
    hint = "use another folder with --folder"
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not (root / _LOCK_FILE).exists() and any(root.iterdir()):
            raise DemoError(f"{root} holds files not from a demo", hint="use an empty or new folder with --folder")
    except OSError as error:
        raise DemoError(f"cannot use {root}: {os.strerror(error.errno or 0).lower()}", hint=hint) from error
    # Files of another user are there after a demo as root, for example.
    if not all(os.access(path, os.W_OK) for path in (root, root / _LOCK_FILE) if path.exists()):
        raise DemoError(f"cannot write to {root}", hint=f"remove it, or {hint}")


def _remove_abandoned() -> None:
    for lock_file in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK_FILE}"):
        root = lock_file.parent
        with suppress(OSError, DemoError):
            # In a folder that is shared with other users, links may lead to files that no demo made.
            folder, file = root.lstat(), lock_file.lstat()
            is_own = folder.st_uid == file.st_uid == os.geteuid()
            is_real = stat.S_ISDIR(folder.st_mode) and stat.S_ISREG(file.st_mode)
            if is_own and is_real and _was_killed(root) and _KEEP not in lock_file.read_text():
                with _locked(root):
                    _remove(root)


@contextmanager
def _locked(root: Path) -> Iterator[IO[str]]:
    """Hold the lock file of the folder for the block. The kernel releases the lock however this run ends.

    Waits for the processes of a demo that was killed. Raises `DemoError` if a demo is running in the folder.
    """
    deadline = time.monotonic() + _ENDING_SECONDS
    while True:
        root.mkdir(parents=True, exist_ok=True)
        with (root / _LOCK_FILE).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Not if a demo that has just ended removed its file.
                is_current = os.path.samestat(os.fstat(lock.fileno()), (root / _LOCK_FILE).stat())
            except FileNotFoundError:
                continue
            except BlockingIOError as error:
                if not _was_killed(root) or time.monotonic() > deadline:
                    hint = "stop it, or use another folder with --folder"
                    raise DemoError(f"a demo is running in {root}", hint=hint) from error
                time.sleep(_POLL_SECONDS)
                continue
            if is_current:
                yield lock
                return


def _was_killed(root: Path) -> bool:
    """Return whether the demo that wrote the lock file has ended; without its process id, it is just starting."""
    try:
        os.kill(int((root / _LOCK_FILE).read_text().split()[0]), 0)
    except ProcessLookupError:
        return True
    except (OSError, IndexError, ValueError):
        return False
    return False


def _remove(root: Path) -> None:
    _remove_contents(root)
    # The lock file is removed last, because without it another demo may start.
    (root / _LOCK_FILE).unlink(missing_ok=True)
    with suppress(OSError):
        root.rmdir()


def _remove_contents(root: Path) -> None:
    """Remove everything except the lock file. Raises `DemoError` if a database server does not stop."""
    stop_servers(root)
    for path in root.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != _LOCK_FILE:
            path.unlink(missing_ok=True)


@contextmanager
def database_folder(root: Path) -> Iterator[Path]:
    """A new folder in `root` for a collector's embedded PostgreSQL. At the end of the block, a server that a killed
    collector left running is stopped. Raises `DemoError` if it does not stop.

    Each run has a new folder, because a stopping server removes its socket by name: in the same folder it could remove
    that of the next server.
    """
    data = Path(tempfile.mkdtemp(prefix=_DATA_PREFIX, dir=root))
    try:
        yield data
    finally:
        stop_servers(root)


def stop_servers(root: Path) -> None:
    """Stop every server that still runs on a data folder in `root`. Raises `DemoError` if one does not stop."""
    for cluster in root.glob(f"{_DATA_PREFIX}*/postgres"):
        with suppress(OSError, IndexError, ValueError):
            lines = (cluster / "postmaster.pid").read_text().splitlines()
            _stop_server(int(lines[0]), cluster)
            # The collector made a folder for the socket if the path of its data folder was too long.
            if Path(lines[4]).name.startswith(_SOCKET_PREFIX):
                shutil.rmtree(lines[4], ignore_errors=True)


def _stop_server(pid: int, cluster: Path) -> None:
    """Stop a PostgreSQL server and wait for its end. Raises `DemoError`."""
    for signal_number in (signal.SIGINT, signal.SIGQUIT):  # a fast shutdown, then an immediate one
        deadline = time.monotonic() + 15.0
        with suppress(ProcessLookupError):
            if _serves(pid, cluster):
                os.kill(pid, signal_number)
        while _serves(pid, cluster) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
    if _serves(pid, cluster):
        raise DemoError(f"the demo's PostgreSQL (process {pid}) does not stop", hint=f"kill process {pid}")


def _serves(pid: int, cluster: Path) -> bool:
    """Check that the process is the server of the data folder, which is the working directory of PostgreSQL. Without
    /proc, the pid is the server's, because only this run uses the folder.
    """
    try:
        if Path("/proc/self").exists():
            return Path(f"/proc/{pid}/cwd").readlink() == cluster.resolve()
        os.kill(pid, 0)
    except OSError:
        return False
    return (cluster / "postmaster.pid").exists()
