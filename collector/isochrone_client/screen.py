"""The terminal of a program that draws on all of it: its screen, its keyboard, and the signals that stop the program.

The terminal is given back at the end, after an error, and for Ctrl-Z.
"""

import codecs
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from textwrap import wrap
from types import FrameType
from typing import Any, Self

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from isochrone_client.render import renderer
from isochrone_client.render.page import Page, RenderOptions

_REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ESCAPE = "\x1b"
_CONTINUES = " \\"
_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end"}
_NAME_OF = {
    **{f"{_ESCAPE}{lead}{letter}": name for letter, name in _ARROWS.items() for lead in "[O"},
    **{f"{_ESCAPE}[{number}~": name for number, name in ((5, "page up"), (6, "page down"), (1, "home"), (4, "end"))},
    **dict.fromkeys(("\r", "\n"), "enter"),
    **dict.fromkeys(("\x7f", "\x08"), "backspace"),
    _ESCAPE: "escape",
}


def can_be_redrawn() -> bool:
    """Return whether standard output is a terminal whose screen can be redrawn."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def lines_of(page: Page[Any], *, width: int) -> list[Text]:
    """The lines of a page as its command prints them on a terminal of this width."""
    text = renderer("table").whole(page, RenderOptions(width=width, colour=True)).rstrip("\n")
    return list(Text.from_ansi(text).split("\n", allow_blank=True)) if text else []


def fitting(parts: Sequence[str], width: int) -> Text:
    """As many of the parts in one line as there is room for."""
    texts = ("   ".join(parts[:count]) for count in range(len(parts), 0, -1))
    return Text(next((text for text in texts if len(text) <= width), ""), style="dim")


def taken(sections: Sequence[Sequence[list[Text]]], room: int) -> list[list[list[Text]]]:
    """The items of each section that fit into `room` lines, in turns: the first ones of all sections come first."""
    found: list[list[list[Text]]] = [[] for _ in sections]
    for row in zip_longest(*sections, fillvalue=()):
        for section, item in zip(found, row, strict=True):
            if item and len(item) <= room:
                room -= len(item)
                section.append(list(item))
    return found


def continued(line: str, width: int) -> list[str]:
    """A line for a shell in parts of at most `width` columns, with a backslash at the end of all but the last."""
    if len(line) <= width:
        return [line]
    room = width - len(_CONTINUES)
    *parts, last = wrap(line, room, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return [*(f"{part}{_CONTINUES}" for part in parts), last]


class StopRequests:
    """The requests to stop since the block began. Only one block at a time, in the main thread. A signal is only noted,
    so that none interrupts a start or a cleanup; every one is, also if Python calls the handler once for several.

    The first Ctrl-C asks for the results; the second one, SIGTERM and SIGHUP (a closed terminal) for the end at once.
    """

    def __init__(self) -> None:
        self._received: list[int] = []
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (*_REQUESTS, signal.SIGWINCH):
            # `nohup` ignores SIGHUP.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, lambda *_: None)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        self._note()
        os.close(self._wake_read)
        os.close(self._wake_write)
        self._wake_read = -1

    def fileno(self) -> int:
        """A descriptor that becomes readable with each signal, until any other method returns."""
        return self._wake_read

    @property
    def count(self) -> int:
        """Return the number of requests so far."""
        self._note()
        return len(self._received)

    @property
    def wanted(self) -> bool:
        """Return whether there is a request."""
        return self.count > 0

    def check(self, *, results: bool = False) -> None:
        """Raises `click.exceptions.Exit` if the program is to end; with `results`, if it is to end without results."""
        count = self.count
        ending = [number for number in self._received if number != signal.SIGINT]
        if ending or count > results:
            # The exit code that a shell gives a program that a signal ended.
            raise click.exceptions.Exit(128 + (ending or self._received)[0])

    def sleep(self, seconds: float) -> None:
        """Wait until the time is over, a signal arrives, or the size of the terminal changes."""
        select.select([self], [], [], max(0.0, seconds))
        self._note()

    def _note(self) -> None:
        # None has arrived, or the block has ended.
        with suppress(OSError):
            self._received += [number for number in os.read(self._wake_read, 1024) if number in _REQUESTS]


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
            end = 1
            if text[0] == _ESCAPE and text[1:2] in ("[", "O"):
                ends = (place for place in range(2, len(text)) if text[place].isalpha() or text[place] == "~")
                end = min(next(ends, len(text) - 1), 8) + 1
            key, text = _NAME_OF.get(text[:end], text[:end]), text[end:]
            if key.isprintable():
                yield key


class Screen:
    """The alternate screen of standard output for the length of a block, in the main thread, and the keys of standard
    input as they are typed, none if that is not a terminal. Ctrl-C and Ctrl-Z still send their signals.
    """

    def __init__(self) -> None:
        # A size in the environment would hide that the terminal was resized.
        environment = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self._console = Console(force_terminal=True, legacy_windows=False, highlight=False, _environ=environment)
        self._live = Live(
            console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._input = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._decoder = KeyDecoder()
        self._input_before: list[Any] | None = None
        self._is_suspended = False
        self._on_suspend: Any = None

    def __enter__(self) -> Self:
        self._on_suspend = signal.signal(signal.SIGTSTP, self._note_suspension)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # the terminal is closed
            self._give_back()
        signal.signal(signal.SIGTSTP, self._on_suspend)

    def draw(self, drawn: Callable[..., list[Text]]) -> None:
        """Draw the lines that `drawn(width=…, height=…)` returns for a number of columns and lines."""
        if self._is_suspended:
            self._is_suspended = False
            self._give_back()
            os.kill(os.getpid(), signal.SIGSTOP)  # until the shell continues this process
            self._take()
        width, height = self._console.size
        lines = drawn(width=width, height=height)
        for line in lines:
            line.no_wrap, line.overflow = True, "crop"
        self._live.update(Group(*lines), refresh=True)

    def keys(self, seconds: float, stop: StopRequests) -> list[str]:
        """Return the keys typed, as soon as there is one; none after the time, a signal, or a change of the size."""
        if self._input is None:
            stop.sleep(seconds)
            return []
        ready = select.select([self._input, stop], [], [], seconds)[0]
        if stop in ready:
            stop.sleep(0)
        if self._input not in ready:
            return []
        data = b""
        with suppress(OSError):
            data = os.read(self._input, 1024)
        if not data:  # the terminal is closed
            self._input = None
        return list(self._decoder.keys(data))

    def _take(self) -> None:
        self._live.start()
        if self._input is not None:
            self._input_before = termios.tcgetattr(self._input)
            tty.setcbreak(self._input, termios.TCSADRAIN)

    def _give_back(self) -> None:
        if self._input is not None and self._input_before is not None:
            with suppress(termios.error):  # the terminal is closed
                termios.tcsetattr(self._input, termios.TCSADRAIN, self._input_before)
        self._live.stop()

    def _note_suspension(self, _number: int, _frame: FrameType | None) -> None:
        self._is_suspended = True
