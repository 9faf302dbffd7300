"""Install a checkout with some of its extras into the environment of this interpreter, and show the progress.

python tests/tools/install_progress.py collector,embedded "about 360 MB"

pip itself is either silent for minutes or writes hundreds of lines. Here it is one line on a terminal, rewritten as pip
proceeds, and otherwise one line every ten seconds. If pip fails, the end of its output follows, and the exit code is
pip's. The modules are compiled afterwards, on all cores: pip would take 40 s on one.
"""

import os
import re
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_COLLECTING = re.compile(r"\s*Collecting ([\w.-]+)")
_DOWNLOADING = re.compile(r"\s*Downloading \S+ \(([\d.]+) (bytes|[kMG]B)\)")
_INSTALLING = re.compile(r"Installing collected packages: (.+)")
_MEGABYTES = {"bytes": 1e-6, "kB": 1e-3, "MB": 1.0, "GB": 1e3}
_REFRESH_SECONDS = 0.25
_LINE_SECONDS = 10.0
_TAIL_LINES = 30


@dataclass(slots=True)
class Progress:
    """The progress by the output of pip so far: packages found, megabytes to download, and the packages to install."""

    found: set[str] = field(default_factory=set)
    megabytes: float = 0.0
    to_install: int = 0
    tail: list[str] = field(default_factory=list)

    def read(self, lines: Iterable[str]) -> None:
        """Read the output to its end, and keep its last lines in `tail`."""
        for line in lines:
            self.tail = [*self.tail[-_TAIL_LINES:], line]
            if collecting := _COLLECTING.match(line):
                self.found.add(collecting[1].lower().replace("_", "-"))
            elif downloading := _DOWNLOADING.match(line):
                self.megabytes += float(downloading[1]) * _MEGABYTES[downloading[2]]
            elif installing := _INSTALLING.match(line):
                self.to_install = len(installing[1].split(","))

    def describe(self, installed: int) -> str:
        """The progress in words; `installed` is the number of packages that are in place."""
        if self.to_install:
            plural = "" if self.to_install == 1 else "s"
            return f"{self.to_install} package{plural} … {min(installed, self.to_install)}/{self.to_install}"
        if self.found:
            return f"packages: {len(self.found)} found, {self.megabytes:.0f} MB to download"
        return "starting"


def installed_packages() -> int:
    return len(list(Path(sysconfig.get_path("purelib")).glob("*.dist-info")))


def install(extras: str, size: str) -> int:
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    wanted = ["--no-compile", "--constraint", "constraints.txt", "--editable", f".[{extras}]"]
    opening = f"installing into {Path(sys.prefix).name} (once, {size})"
    progress, before, started = Progress(), installed_packages(), time.monotonic()

    def show(end: str = "") -> None:
        seconds = time.monotonic() - started
        _write(f"{opening}: {progress.describe(installed_packages() - before)}, {seconds:.0f} s{end}")

    with subprocess.Popen(
        [*pip, *wanted], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=progress.read, args=(process.stdout,))
        reader.start()
        try:
            while reader.is_alive():
                show()
                reader.join(_REFRESH_SECONDS if sys.stderr.isatty() else _LINE_SECONDS)
        except KeyboardInterrupt:
            process.terminate()
            reader.join()
            raise
    if process.returncode:
        sys.stderr.write("\n" + "".join(progress.tail))
    else:
        show(", compiling")
        compiling = [sys.executable, "-m", "compileall", "-q", "-j", "0", sysconfig.get_path("purelib")]
        # Some packages have files for other versions of Python, which cannot be compiled.
        subprocess.run(compiling, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        show("\n")
    return process.returncode


def _write(line: str) -> None:
    """Write over the last line of a terminal, as much as fits into it; elsewhere start a new line."""
    if sys.stderr.isatty():
        text = line.rstrip()[: os.get_terminal_size(sys.stderr.fileno()).columns - 1]
        sys.stderr.write(f"\r\x1b[K{text}" + ("\n" if line.endswith("\n") else ""))
    else:
        sys.stderr.write(f"{line.rstrip()}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    try:
        sys.exit(install(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("\nthe installation was interrupted; the next one continues it")
