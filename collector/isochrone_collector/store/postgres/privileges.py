"""Privileges for PostgreSQL, which refuses to run as root, when the collector runs as root.

The first choice is a user namespace in which root appears as `nobody`: files keep their owner, and nothing is chowned.
If the kernel does not allow that, PostgreSQL runs as the real `nobody`, which owns the folders of PostgreSQL and
nothing else: it must not read the keys beside them, nor plant links for root to follow.
"""

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from isochrone_collector.errors import EmbeddedError

POSTGRES_FOLDERS = ("postgres", "postgres.new", "socket")
"""The parts of the data folder that belong to the user of the server."""

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
        _take_back(home, user.pw_uid)
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


def _take_back(home: Path, uid: int) -> None:
    """Make root the owner of what earlier versions gave to `uid`: everything but the folders of PostgreSQL."""
    if home.stat().st_uid == uid:
        os.chown(home, 0, 0)
    for place in home.iterdir():
        if place.name not in POSTGRES_FOLDERS and place.lstat().st_uid == uid:
            _give(place, 0, 0)


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
