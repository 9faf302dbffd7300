"""Pages as tables for a screen, at most 100 columns wide.

Long names are folded, never cut; numbers are never broken. There are no rules or boxes, so piped output looks like
the screen without the colours.
"""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from isochrone_client.render.page import Column, Page, RenderOptions, Row
from isochrone_wire.text import printable

MAX_WIDTH = 100
_GAP = 2
_NAME_PART = re.compile(r"[^/\-_:, ]*[/\-_:, ]|[^/\-_:, ]+")
_WORD = re.compile(r"[^ ]* |[^ ]+")


def whole(page: Page[Row], options: RenderOptions) -> str:
    """Title, one table per group, notes; empty for a page without rows."""
    if not page.rows:
        return ""
    blocks = [_title(page.title, options)]
    for heading, rows in page.groups():
        blocks.append(_title(heading, options) + _table(page.columns, rows, options))
    blocks += [_notes(page, options)] if page.notes else []
    return "\n".join(blocks)


def opening(page: Page[Row], options: RenderOptions) -> str:
    """The headings, the first rows and their notes."""
    return _table(page.columns, page.rows, options, continued=True) + _notes(page, options)


def more(page: Page[Row], options: RenderOptions) -> str:
    """More rows under the headings written before, and their notes."""
    rows = _table(page.columns, page.rows, options, headings=False, continued=True)
    return rows + _notes(page, options) if page.rows else ""


@dataclass(frozen=True, slots=True)
class _FoldedText:
    """A text folded by `fold` to the width that rich gives its column."""

    text: str
    style: str
    prose: bool

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, Text(self.text).cell_len)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield Text("\n".join(fold(self.text, options.max_width, prose=self.prose)), style=self.style)


def fold(text: str, width: int, *, prose: bool = False) -> list[str]:
    """Fold `text` into lines of at most `width` terminal columns (one wide character may exceed a width of 1).

    A line breaks after the last `/`, `-`, `_`, `:`, `,` or space that fits, in `prose` after the last space, otherwise
    where it is full. Some characters take two columns.
    """
    lines = [""]
    for part in (_WORD if prose else _NAME_PART).findall(text):
        if cell_len(lines[-1] + part.rstrip(" ")) <= width:
            lines[-1] += part
        else:
            first, *others = chop_cells(part, width)
            lines += [first, *others]
    return [line.rstrip(" ") for line in lines if line.strip(" ")] or [""]


def _table(
    columns: tuple[Column[Row], ...],
    rows: tuple[Row, ...],
    options: RenderOptions,
    *,
    headings: bool = True,
    continued: bool = False,
) -> str:
    # Later rows must align with these headings. A narrow screen has no room for reserved widths.
    reserved = continued and options.width >= MAX_WIDTH
    table = Table(box=None, show_header=headings, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    units = any(column.unit for column in columns)
    for column in columns:
        table.add_column(
            Text(f"{column.heading}\n{column.unit}" if units else column.heading),
            justify="left" if column.wide else "right",
            overflow="fold" if column.wide else "ellipsis",
            no_wrap=not column.wide,
            width=column.reserved if reserved else None,
        )
    for row in rows:
        table.add_row(*(_cell(column, row) for column in columns))
    return _render(table, options)


def _cell(column: Column[Row], row: Row) -> Text | _FoldedText:
    text, style = printable(column.text(row)), column.style(row)
    return _FoldedText(text, style, column.prose) if column.wide else Text(text, style=style)


def _title(text: str, options: RenderOptions) -> str:
    return _render(Text(printable(text), style="bold"), options) if text else ""


def _notes(page: Page[Row], options: RenderOptions) -> str:
    return "".join(_render(Text(printable(note), style="dim"), options) for note in page.notes)


def _render(content: Table | Text, options: RenderOptions) -> str:
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=min(options.width, MAX_WIDTH),
        force_terminal=options.colour,
        color_system="standard" if options.colour else None,
        no_color=not options.colour,
        legacy_windows=False,
    )
    console.print(content, overflow="fold")
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())
