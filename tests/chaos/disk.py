"""A small separate disk for a spool or a database that can be filled: a tmpfs, which requires root."""

import os
import subprocess
from pathlib import Path

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
    """Mount an empty disk on `folder`."""
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
    """Fill the disk completely."""
    with Path(folder, _BALLAST).open("wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(1 << 20))
        except OSError:
            return


def free(folder: Path) -> None:
    """Free the space again."""
    Path(folder, _BALLAST).unlink(missing_ok=True)
