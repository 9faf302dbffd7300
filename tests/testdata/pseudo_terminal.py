"""A program on a pseudo-terminal, and what a person sees on it."""

import contextlib
import copy
import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyte

from testdata.waiting import BUSY

# A new session whose terminal is standard input: what a terminal program does for its shell. A shell's background job,
# which may run this, ignores Ctrl-C.
_AS_SESSION = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
# Ctrl-C discards output that the terminal has not read yet; a test has to see it all.
modes = termios.tcgetattr(0)
modes[3] |= termios.NOFLSH
termios.tcsetattr(0, termios.TCSANOW, modes)
os.execvp(sys.argv[1], sys.argv[1:])
"""
CTRL_C = "\x03"
_ALTERNATE_SCREEN = 1049
_CURSOR = 25
_READ_SECONDS = 0.1
_ENDED_SECONDS = 5.0


class _Screen(pyte.HistoryScreen):
    """A terminal's screen with what scrolled out of it, and the alternate screen, which pyte does not have."""

    def __init__(self, columns: int, lines: int) -> None:
        super().__init__(columns, lines, history=10_000)
        self.main: Any = None

    @property
    def is_alternate(self) -> bool:
        return self.main is not None

    def set_mode(self, *modes: int, **more: Any) -> None:
        super().set_mode(*modes, **more)
        if more.get("private") and _ALTERNATE_SCREEN in modes and self.main is None:
            self.main = copy.deepcopy(self.buffer), self.cursor.x, self.cursor.y
            self.erase_in_display(2)

    def reset_mode(self, *modes: int, **more: Any) -> None:
        super().reset_mode(*modes, **more)
        if more.get("private") and _ALTERNATE_SCREEN in modes and self.main is not None:
            self.buffer, self.cursor.x, self.cursor.y = self.main
            self.main = None
            self.dirty.update(range(self.lines))

    def index(self) -> None:
        # Nothing of the alternate screen can be scrolled to.
        if self.is_alternate:
            pyte.Screen.index(self)
        else:
            super().index()


class PseudoTerminal:
    """A program that runs on a terminal of its own, until the end of the block."""

    def __init__(self, command: Sequence[str], *, columns: int, lines: int, **environment: str) -> None:
        self._screen = _Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self._master, slave = os.openpty()
        self.output = b""
        self._set_size(columns, lines)
        inherited = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _AS_SESSION, *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=inherited | {"TERM": "xterm-256color"} | environment,
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(60)
        self.close()

    def close(self) -> None:
        """Close the terminal, as its window does; what a program that has ended wrote is read before."""
        if self.process.poll() is not None:
            self._reader.join(2)
        if self._master >= 0:
            master, self._master = self._master, -1
            self._reader.join(10)
            os.close(master)

    def wait(self, seconds: float) -> int:
        """Wait for the end of the program, and for what it wrote before its end; return the exit code."""
        code = self.process.wait(seconds)
        self._reader.join(seconds)
        return code

    def press(self, key: str) -> None:
        os.write(self._master, key.encode())

    def resize(self, *, columns: int, lines: int) -> None:
        with self._lock:
            self._screen.resize(lines, columns)
            self._set_size(columns, lines)

    @property
    def lines(self) -> list[str]:
        with self._lock:
            return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def scrollback(self) -> str:
        """Everything that a person can scroll to, the screen included."""
        with self._lock:
            above = ["".join(line[x].data for x in range(self._screen.columns)) for line in self._screen.history.top]
        return "\n".join([*(line.rstrip() for line in above), *self.lines])

    def shows_cursor(self) -> bool:
        with self._lock:
            return _CURSOR << 5 in self._screen.mode

    def is_alternate(self) -> bool:
        with self._lock:
            return self._screen.is_alternate

    def echoes(self) -> bool:
        """Return whether typed characters are shown, and a line is read as a whole, as a shell expects it."""
        modes = termios.tcgetattr(self._master)[3]
        return bool(modes & termios.ECHO and modes & termios.ICANON)

    def styles_of(self, word: str) -> set[str]:
        """The foreground colours of a word's characters on the screen."""
        with self._lock:
            return {
                self._screen.buffer[y][x].fg
                for y, line in enumerate(self._screen.display)
                for start in (match.start() for match in re.finditer(re.escape(word), line))
                for x in range(start, start + len(word))
            }

    def wait_for(self, true: Callable[[str], object], seconds: float, what: str) -> float:
        """Wait until the text of the screen is as wanted, as `eventually` does; return the monotonic instant. What
        does not come soon after the end of the program is not waited for.
        """
        deadline, seen = time.monotonic() + BUSY * seconds, -1
        while True:
            # Composing the text takes some milliseconds.
            if (size := len(self.output)) != seen:
                seen = size
                if true(self.text):
                    return time.monotonic()
            if self.process.poll() is not None:
                deadline = min(deadline, time.monotonic() + _ENDED_SECONDS)
            assert time.monotonic() < deadline, f"after at most {BUSY * seconds:g} s still not: {what}\n{self.text}"
            time.sleep(0.05)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _read(self) -> None:
        # A blocking read would keep the terminal open until the program writes.
        with contextlib.suppress(OSError, ValueError):
            while True:
                if not select.select([self._master], [], [], _READ_SECONDS)[0]:
                    continue
                piece = os.read(self._master, 65536)
                with self._lock:
                    self.output += piece
                    self._stream.feed(piece)


def marked_processes(mark: str) -> Iterator[tuple[int, str]]:
    """The process ids and command lines of all processes that inherited an environment variable with this value."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                yield int(folder.name), words
