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
from types import FrameType, TracebackType
from typing import Any, Self

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from isochrone_client.render import renderer
from isochrone_client.render.page import Page, RenderOptions

_DUMB = ("", "dumb", "unknown")
# A shell adds this to the number of a signal for the exit code of a program that the signal ended.
_SIGNAL_EXIT_CODE = 128
_ESCAPE = "\x1b"
_LONGEST_SEQUENCE = 8
_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end"}
_NAME_OF = {
    **{f"{_ESCAPE}{lead}{letter}": name for letter, name in _ARROWS.items() for lead in "[O"},
    f"{_ESCAPE}[5~": "page up",
    f"{_ESCAPE}[6~": "page down",
    f"{_ESCAPE}[1~": "home",
    f"{_ESCAPE}[4~": "end",
    _ESCAPE: "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
}


def can_be_redrawn() -> bool:
    """Return whether standard output is a terminal whose screen can be redrawn."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in _DUMB


def lines_of(page: Page[Any], *, width: int) -> list[Text]:
    """The lines of a page as its command prints them on a terminal of this width."""
    text = renderer("table").whole(page, RenderOptions(width=width, colour=True)).rstrip("\n")
    return list(Text.from_ansi(text).split("\n", allow_blank=True)) if text else []


def fitting(parts: Sequence[str], width: int) -> Text:
    """As many of the parts in one line as there is room for."""
    texts = ("   ".join(parts[:count]) for count in range(len(parts), 0, -1))
    return Text(next((text for text in texts if len(text) <= width), ""), style="dim")


class StopRequests:
    """The requests to stop since the block began. Only one block at a time, in the main thread. A handler only notes a
    signal, so that none interrupts a start or a cleanup.

    The first Ctrl-C asks for the results; the second one, SIGTERM and SIGHUP (a closed terminal) for the end at once.
    """

    def __init__(self) -> None:
        self._received: list[int] = []
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # `nohup` ignores SIGHUP.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._note)
        self._previous[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, self._wake)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self._wake_read)
        os.close(self._wake_write)

    def fileno(self) -> int:
        """A descriptor that becomes readable with each signal, until `sleep` returns."""
        return self._wake_read

    @property
    def wanted(self) -> bool:
        """Return whether a signal has arrived."""
        return bool(self._received)

    def check(self, *, results: bool = False) -> None:
        """Raises `click.exceptions.Exit` if the program is to end; with `results`, if it is to end without results."""
        ending = [number for number in self._received if number != signal.SIGINT]
        if ending or len(self._received) > results:
            raise click.exceptions.Exit(_SIGNAL_EXIT_CODE + (ending or self._received)[0])

    def sleep(self, seconds: float) -> None:
        """Wait until the time is over, a signal arrives, or the size of the terminal changes."""
        if select.select([self], [], [], max(0.0, seconds))[0]:
            os.read(self._wake_read, 1024)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._received.append(number)
        self._wake(number, frame)

    def _wake(self, _number: int, _frame: FrameType | None) -> None:
        with suppress(BlockingIOError):  # a full pipe wakes as well
            os.write(self._wake_write, b"!")


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
                end = min(next(ends, len(text) - 1), _LONGEST_SEQUENCE) + 1
            key, text = _NAME_OF.get(text[:end], text[:end]), text[end:]
            if key.isprintable():
                yield key


class Keyboard:
    """The keys of standard input as they are typed; none if standard input is not a terminal."""

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


class Screen:
    """The alternate screen of standard output for the length of a block, in the main thread, with the keyboard."""

    def __init__(self, keyboard: Keyboard | None = None) -> None:
        # A size in the environment would hide that the terminal was resized.
        environment = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self._console = Console(force_terminal=True, legacy_windows=False, highlight=False, _environ=environment)
        self._live = Live(
            console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._keyboard = keyboard
        self._is_suspended = False
        self._on_suspend: Any = None

    def __enter__(self) -> Self:
        self._on_suspend = signal.signal(signal.SIGTSTP, self._note_suspension)
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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

    def _take(self) -> None:
        self._live.start()
        if self._keyboard:
            self._keyboard.begin()

    def _give_back(self) -> None:
        if self._keyboard:
            self._keyboard.end()
        self._live.stop()

    def _note_suspension(self, _number: int, _frame: FrameType | None) -> None:
        self._is_suspended = True
