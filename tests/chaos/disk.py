"""A small disk of its own for a spool, that can be filled: a tmpfs, for which one must be root."""

import os
import subprocess
from pathlib import Path

SIZE_MB = 24
_BALLAST = "ballast"


def why_not() -> str | None:
    """Why no disk can be mounted here, or `None`."""
    if os.geteuid() != 0:
        return "filling a disk takes root, to mount a small one"
    tried = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
    )
    return None if tried.returncode == 0 else f"no tmpfs can be mounted here: {tried.stderr.decode().strip()}"


def mount(folder: Path) -> None:
    """Mount an empty disk on `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m,mode=0700", "tmpfs", str(folder)], check=True)


def unmount(folder: Path) -> None:
    """Take the disk away, with what is on it."""
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Leave no byte free."""
    with Path(folder, _BALLAST).open("wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(1 << 16))
        except OSError:
            return


def free(folder: Path) -> None:
    """Give the space back."""
    Path(folder, _BALLAST).unlink(missing_ok=True)
