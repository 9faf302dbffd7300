"""Pages as Markdown: the columns of the table, to paste into a document."""

from collections.abc import Iterable, Iterator

from isochrone_client.render.page import Column, Page, RenderOptions, Row, cell_texts
from isochrone_wire.text import escaped_markdown as escaped


def whole(page: Page[Row], _options: RenderOptions) -> str:
    """Title, one table per group, notes."""
    if not page.rows:
        return ""
    blocks = [f"**{escaped(page.title)}**"]
    for table in page.tables():
        blocks += [f"### {escaped(table.heading)}"] if table.heading else []
        blocks.append("\n".join([*_head(page.columns), *_lines(table.cells)]))
    blocks += ["\n".join(f"- {escaped(note)}" for note in page.notes)] if page.notes else []
    return "\n\n".join(blocks) + "\n"


def opening(page: Page[Row], options: RenderOptions) -> str:
    """The head of one table and its first rows."""
    return "".join(f"{line}\n" for line in _head(page.columns)) + more(page, options)


def more(page: Page[Row], _options: RenderOptions) -> str:
    """More rows of the table."""
    return "".join(f"{line}\n" for line in _lines(cell_texts(page.columns, page.rows)))


def _head(columns: tuple[Column[Row], ...]) -> Iterator[str]:
    yield _line(escaped(column.title) for column in columns)
    yield _line("---" if column.wide else "---:" for column in columns)


def _lines(cells: tuple[tuple[str, ...], ...]) -> Iterator[str]:
    for line in cells:
        yield _line(escaped(cell) for cell in line)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
