"""Pages as HTML tables: the columns of the terminal's table, with charts."""

from collections.abc import Callable, Sequence
from typing import Any

from isochrone_client.render.page import Column, Page, Table
from isochrone_client.report.charts import ChartColumn
from isochrone_client.report.html_elements import Markup, element, joined

ChartBuilder = Callable[[Sequence[Any]], ChartColumn | None]
_CLASS_OF = {"green": "good", "red": "bad", "yellow": "warn", "dim": "dim"}


def tables(page: Page[Any], *, chart: ChartBuilder | None = None) -> Markup:
    """A table with a caption per group of the page, then the notes; `chart` adds a column of charts."""
    blocks = [_table(page, table, chart=chart(table.rows) if chart else None) for table in page.tables()]
    notes = element("ul", *(element("li", note) for note in page.notes), class_="notes") if page.notes else Markup()
    return joined(*blocks, notes)


def _table(page: Page[Any], table: Table[Any], *, chart: ChartColumn | None) -> Markup:
    caption = table.heading or page.title
    named = next((index for index, column in enumerate(page.columns) if column.wide), 0)
    head = [_heading(column) for column in page.columns]
    body = [
        [
            _cell(column, row, text, named=index == named)
            for index, (column, text) in enumerate(zip(page.columns, line, strict=True))
        ]
        for row, line in zip(table.rows, table.cells, strict=True)
    ]
    if chart is not None:
        head.insert(named + 1, element("th", chart.heading, chart.axis, scope="col", class_="drawn"))
        for cells, row in zip(body, table.rows, strict=True):
            cells.insert(named + 1, element("td", chart.cell(row), class_="drawn"))
    drawn = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *head)),
        element("tbody", *(element("tr", *cells) for cells in body)),
    )
    # A scrollable element must be reachable by keyboard and have a label.
    return element("div", drawn, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _heading(column: Column[Any]) -> Markup:
    unit = element("small", column.unit) if column.unit else ""
    return element("th", column.name, unit, scope="col", class_="name" if column.wide else None)


def _cell(column: Column[Any], row: object, content: str, *, named: bool) -> Markup:
    classes = " ".join(filter(None, ["name" if column.wide else "", _CLASS_OF.get(column.style(row), "")]))
    text = _breakable(content) if column.wide else content
    if named:
        return element("th", text, scope="row", class_=classes or None)
    return element("td", text, class_=classes or None)


def _breakable(name: str) -> Markup:
    """A name that may be broken after a slash."""
    first, *others = name.split("/")
    return joined(first, *(piece for other in others for piece in ("/", element("wbr"), other)))
