"""Keys typed on a terminal: their names, and the mode of the terminal in which they arrive at once."""

import codecs
import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from isochrone_client.screen.stop_requests import StopRequests

_ESCAPE = "\x1b"
_LONGEST_SEQUENCE = 8
_NAME_OF = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[C": "right",
    "\x1bOC": "right",
    "\x1b[D": "left",
    "\x1bOD": "left",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1bOF": "end",
    "\x1b[4~": "end",
    _ESCAPE: "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
}


class KeyDecoder:
    """Keys from the bytes of a terminal: a character, or a name such as `up`, `enter` or `escape`.

    A character may be divided between two reads; an escape sequence arrives in one. Unknown sequences are ignored.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")

    def keys(self, data: bytes) -> Iterator[str]:
        """Yield the keys that the data complete."""
        text = self._decoder.decode(data)
        while text:
            key, text = _next(text)
            if key:
                yield key


def _next(text: str) -> tuple[str, str]:
    """The first key of a text, empty for none, and the rest of the text."""
    if text[0] == _ESCAPE and text[1:2] in ("[", "O"):
        ends = (place for place in range(2, len(text)) if text[place].isalpha() or text[place] == "~")
        end = min(next(ends, len(text) - 1), _LONGEST_SEQUENCE) + 1
        return _NAME_OF.get(text[:end], ""), text[end:]
    key = _NAME_OF.get(text[0], text[0])
    return key if len(key) > 1 or key.isprintable() else "", text[1:]


class Keyboard:
    """The keys of standard input, without waiting for the end of a line; none if it is no terminal."""

    def __init__(self) -> None:
        self._descriptor = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._decoder = KeyDecoder()
        self._before: list[Any] | None = None

    def begin(self) -> None:
        """Let keys arrive at once, and do not show them; Ctrl-C and Ctrl-Z still send their signals."""
        if self._descriptor is not None:
            self._before = termios.tcgetattr(self._descriptor)
            tty.setcbreak(self._descriptor, termios.TCSADRAIN)

    def end(self) -> None:
        """Restore the terminal."""
        if self._descriptor is not None and self._before is not None:
            with suppress(termios.error):  # the terminal is closed
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def wait(self, seconds: float, stop: StopRequests) -> list[str]:
        """Return the keys typed, as soon as there is one; none after the time, a signal, or a change of the size."""
        if self._descriptor is None:
            stop.sleep(seconds)
            return []
        ready = select.select([self._descriptor, stop], [], [], seconds)[0]
        if stop in ready:
            stop.sleep(0)
        if self._descriptor not in ready:
            return []
        data = b""
        with suppress(OSError):
            data = os.read(self._descriptor, 1024)
        if not data:  # the terminal is closed
            self._descriptor = None
        return list(self._decoder.keys(data))
