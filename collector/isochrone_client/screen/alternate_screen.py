"""A terminal's alternate screen, which is redrawn at the size that the terminal has by then, and given back at the end,
after an error, and for Ctrl-Z.
"""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.screen import Screen
from rich.text import Text

_DUMB = ("", "dumb", "unknown")


class Mode(Protocol):
    """A state of the terminal besides the screen, such as that of its keyboard."""

    def begin(self) -> None:
        """Begin, also after a suspension."""
        ...

    def end(self) -> None:
        """Restore the state before, also for a suspension."""
        ...


def can_be_redrawn() -> bool:
    """Return whether standard output is a terminal whose screen can be redrawn."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in _DUMB


class AlternateScreen:
    """The alternate screen of standard output for the length of a block, in the main thread, with further `modes`."""

    def __init__(self, *modes: Mode) -> None:
        # A size in the environment would hide that the terminal was resized.
        environment = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self._console = Console(force_terminal=True, legacy_windows=False, highlight=False, _environ=environment)
        self._modes = modes
        self._is_suspended = False
        self._on_suspend: Any = None

    def __enter__(self) -> Self:
        self._on_suspend = signal.signal(signal.SIGTSTP, self._note_suspension)
        self._take_terminal()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # the terminal is closed
            self._give_terminal_back()
        signal.signal(signal.SIGTSTP, self._on_suspend)

    def draw(self, lines_of: Callable[..., list[Text]]) -> None:
        """Draw the lines that `lines_of(width=…, height=…)` returns for a number of columns and lines."""
        if self._is_suspended:
            self._suspend()
        width, height = self._console.size
        lines = lines_of(width=width, height=height)
        for line in lines:
            line.no_wrap, line.overflow = True, "crop"
        self._console.update_screen(Screen(*lines))

    def _take_terminal(self) -> None:
        self._console.set_alt_screen(True)
        self._console.show_cursor(False)
        for mode in self._modes:
            mode.begin()

    def _give_terminal_back(self) -> None:
        for mode in self._modes:
            mode.end()
        self._console.set_alt_screen(False)
        self._console.show_cursor(True)

    def _note_suspension(self, _number: int, _frame: FrameType | None) -> None:
        self._is_suspended = True

    def _suspend(self) -> None:
        """Stop this process for Ctrl-Z until the shell continues it."""
        self._is_suspended = False
        self._give_terminal_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take_terminal()
