from collections.abc import Iterable

from isochrone_client.render.page import Column, Page, RenderOptions, Row, cell_texts
from isochrone_wire.text import escaped_markdown as escaped


def whole(page: Page[Row], _options: RenderOptions) -> str:
    """Title, one table per group, notes."""
    if not page.rows:
        return f"{escaped(page.empty)}\n" if page.empty else ""
    blocks = [f"**{escaped(page.title)}**\n"]
    for table in page.tables():
        blocks += [f"### {escaped(table.heading)}\n"] if table.heading else []
        blocks.append(_head(page.columns) + _lines(table.cells))
    blocks += ["".join(f"- {escaped(note)}\n" for note in page.notes)] if page.notes else []
    return "\n".join(blocks)


def opening(page: Page[Row], options: RenderOptions) -> str:
    """The head of one table and its first rows."""
    return _head(page.columns) + more(page, options)


def more(page: Page[Row], _options: RenderOptions) -> str:
    """More rows of the table."""
    return _lines(cell_texts(page.columns, page.rows))


def _head(columns: tuple[Column[Row], ...]) -> str:
    rule = " | ".join("---" if column.is_text else "---:" for column in columns)
    return f"{_lines([[column.title for column in columns]])}| {rule} |\n"


def _lines(cells: Iterable[Iterable[str]]) -> str:
    return "".join(f"| {' | '.join(map(escaped, line))} |\n" for line in cells)
