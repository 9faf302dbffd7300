"""Pages as tables for a screen, never wider than 100 columns.

Names fold where the line is too long, so that nothing said is lost; numbers stay whole. There are no rules or boxes:
a table that is piped reads like one on the screen, without the colours.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from isochrone_client.formats import printable
from isochrone_client.render.fold import folded
from isochrone_client.render.page import Column, Look, Page, Row

MAX_WIDTH = 100
_GAP = 2


def whole(page: Page[Row], look: Look) -> str:
    """Title, one table per group, notes; nothing at all of a page without rows."""
    if not page.rows:
        return ""
    blocks = [_title(page.title, look)]
    for heading, rows in page.groups():
        blocks.append(_title(heading, look) + _table(page.columns, rows, look))
    blocks += [_notes(page, look)] if page.notes else []
    return "\n".join(blocks)


def opening(page: Page[Row], look: Look) -> str:
    """The headings, the first rows, and what is to be noted of them."""
    return _table(page.columns, page.rows, look, going_on=True) + _notes(page, look)


def more(page: Page[Row], look: Look) -> str:
    """Further rows under the headings written before, and what is to be noted of them."""
    rows = _table(page.columns, page.rows, look, headings=False, going_on=True)
    return rows + _notes(page, look) if page.rows else ""


@dataclass(frozen=True, slots=True)
class _Name:
    """A text that folds as names do, however narrow rich makes its column."""

    text: str
    style: str
    prose: bool

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, Text(self.text).cell_len)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield Text("\n".join(folded(self.text, options.max_width, prose=self.prose)), style=self.style)


def _table(
    columns: tuple[Column[Row], ...],
    rows: tuple[Row, ...],
    look: Look,
    *,
    headings: bool = True,
    going_on: bool = False,
) -> str:
    # Rows still to come must stand under the same headings; on a narrow screen there is no room for that.
    reserved = going_on and look.width >= MAX_WIDTH
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
    return _inked(table, look)


def _cell(column: Column[Row], row: Row) -> Text | _Name:
    text, style = printable(column.text(row)), column.style(row)
    return _Name(text, style, column.prose) if column.wide else Text(text, style=style)


def _title(text: str, look: Look) -> str:
    return _inked(Text(printable(text), style="bold"), look) if text else ""


def _notes(page: Page[Row], look: Look) -> str:
    return "".join(_inked(Text(printable(note), style="dim"), look) for note in page.notes)


def _inked(content: Table | Text, look: Look) -> str:
    paper = io.StringIO()
    console = Console(
        file=paper,
        width=min(look.width, MAX_WIDTH),
        force_terminal=look.colour,
        color_system="standard" if look.colour else None,
        no_color=not look.colour,
        legacy_windows=False,
    )
    console.print(content, overflow="fold")
    return "".join(f"{line.rstrip()}\n" for line in paper.getvalue().splitlines())
