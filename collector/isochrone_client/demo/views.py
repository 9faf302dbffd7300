"""The two ways to show a running demo: redrawn in place on a terminal, and as tables below each other elsewhere."""

from functools import partial
from types import TracebackType
from typing import Protocol, Self

import click

from isochrone_client import terminal
from isochrone_client.demo.layout import View, board_table, screen
from isochrone_client.screen.alternate_screen import AlternateScreen, can_be_redrawn
from isochrone_client.screen.board import Place

# A table is printed so many seconds after the first sample, even if it has gaps.
_FIRST_TABLE_SECONDS = 10.0
# Without any change, a table and a line of progress are printed so often.
_TABLE_SECONDS = 60.0
_PROGRESS_SECONDS = 10.0


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
    return LiveScreen() if can_be_redrawn() else PrintedTables()


class LiveScreen:
    """A terminal's alternate screen, redrawn with each view."""

    def __init__(self) -> None:
        self._screen = AlternateScreen()
        self._events: list[str] = []

    def __enter__(self) -> Self:
        self._screen.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._screen.__exit__(kind, error, trace)
        for event in self._events:
            click.echo(f"· {event}", err=True)

    def show(self, view: View, new_events: list[str]) -> None:
        """Draw the screen. The events are printed again at the end, because the screen disappears then."""
        self._events += new_events
        self._screen.draw(partial(screen, view))


class PrintedTables:
    """A table when the first one is possible, when it is complete, after each change, and otherwise every minute."""

    def __init__(self) -> None:
        self._first_at: float | None = None
        self._table_at: float | None = None
        self._progress_at = 0.0
        self._was_firm = False
        self._marked: tuple[Place, ...] = ()

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
            self._was_firm, self._marked = self._was_firm or view.board.is_firm, view.board.marked
            click.echo(f"after {view.progress}:")
            lines = board_table(view.board, window_seconds=view.window_seconds, width=terminal.render_options().width)
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
            return view.board.has_every_value or waited
        has_news = view.board.marked != self._marked or (view.board.is_firm and not self._was_firm)
        return has_news or elapsed - self._table_at >= _TABLE_SECONDS
