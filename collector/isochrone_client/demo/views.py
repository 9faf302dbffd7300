"""The two ways to show a running demo: redrawn in place on a terminal, and as tables below each other elsewhere."""

import os
import signal
import sys
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

import click
from rich.console import Console
from rich.screen import Screen

from isochrone_client import terminal
from isochrone_client.demo.board import Place
from isochrone_client.demo.layout import View, screen, table

# A table is printed so many seconds after the first sample, even if it has gaps.
_FIRST_TABLE_SECONDS = 10.0
# Without any change, a table and a line of progress are printed so often.
_TABLE_SECONDS = 60.0
_PROGRESS_SECONDS = 10.0
_DUMB = ("", "dumb", "unknown")


class Display(Protocol):
    """Shows views of a demo in the order in which they are made, for the length of a block."""

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; what is printed next follows what was printed before or in the block."""
        ...

    def show(self, view: View, new_events: list[str]) -> None:
        """Show a view, and the events that the view before did not have."""
        ...


def display() -> Display:
    """The display for standard output."""
    return LiveScreen() if sys.stdout.isatty() and os.environ.get("TERM", "") not in _DUMB else PrintedTables()


class LiveScreen:
    """A terminal's alternate screen, redrawn with each view at the size that the terminal has by then."""

    def __init__(self) -> None:
        # A size in the environment would hide that the terminal was resized.
        environment = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self._console = Console(force_terminal=True, legacy_windows=False, highlight=False, _environ=environment)
        self._events: list[str] = []
        self._is_suspended = False
        self._on_suspend: Any = None

    def __enter__(self) -> Self:
        self._on_suspend = signal.signal(signal.SIGTSTP, self._note_suspension)
        self._take_terminal()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_terminal_back()
        signal.signal(signal.SIGTSTP, self._on_suspend)
        for event in self._events:
            click.echo(f"· {event}", err=True)

    def show(self, view: View, new_events: list[str]) -> None:
        """Draw the screen. The events are printed again at the end, because the screen disappears then."""
        self._events += new_events
        if self._is_suspended:
            self._suspend()
        width, height = self._console.size
        lines = screen(view, width=width, height=height)
        for line in lines:
            line.no_wrap, line.overflow = True, "crop"
        self._console.update_screen(Screen(*lines))

    def _take_terminal(self) -> None:
        self._console.set_alt_screen(True)
        self._console.show_cursor(False)

    def _give_terminal_back(self) -> None:
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


class PrintedTables:
    """A table when the first one is possible, when it is complete, after each change, and otherwise every minute."""

    def __init__(self) -> None:
        self._first_at: float | None = None
        self._table_at: float | None = None
        self._progress_at = 0.0
        self._was_firm = False
        self._changed: tuple[Place, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def show(self, view: View, new_events: list[str]) -> None:
        """Print the events, and a table or the progress if it is time."""
        elapsed = view.progress.elapsed
        for event in new_events:
            click.echo(f"· {event}", err=True)
        if self._is_time(view):
            self._table_at, self._progress_at = elapsed, elapsed
            self._was_firm, self._changed = self._was_firm or view.board.is_firm, view.board.changed
            click.echo(f"after {view.progress}:")
            lines = table(view.board, window_seconds=view.window_seconds, width=terminal.render_options().width)
            click.echo("\n".join(line.plain for line in lines) + "\n")
        elif elapsed - self._progress_at >= _PROGRESS_SECONDS:
            self._progress_at = elapsed
            click.echo(f"· {view.progress}", err=True)

    def _is_time(self, view: View) -> bool:
        elapsed = view.progress.elapsed
        if self._first_at is None and view.progress.recorded:
            self._first_at = elapsed
        if self._table_at is None:
            waited = self._first_at is not None and elapsed - self._first_at >= _FIRST_TABLE_SECONDS
            return view.board.has_every_ttft or waited
        has_news = view.board.changed != self._changed or (view.board.is_firm and not self._was_firm)
        return has_news or elapsed - self._table_at >= _TABLE_SECONDS
