"""Pages as HTML tables: the columns of the terminal's table, with charts.

On a narrow screen the style sheet shows each row as a block of labelled values. The labels are attributes of the cells,
and the roles keep the structure of the table for screen readers.
"""

from collections.abc import Callable, Sequence
from typing import Any

from isochrone_client.render.page import Column, Page, Table
from isochrone_client.report.charts import ChartColumn
from isochrone_client.report.html_elements import Markup, breakable, element, joined

ChartBuilder = Callable[[Sequence[Any]], ChartColumn | None]
_CLASS_OF = {"green": "good", "red": "bad", "yellow": "warn", "dim": "dim"}


def tables(page: Page[Any], *, chart: ChartBuilder | None = None) -> Markup:
    """A table with a caption per group of the page, then the notes; `chart` adds a column of charts."""
    blocks = [_table(page, table, chart=chart(table.rows) if chart else None) for table in page.tables()]
    notes = element("ul", *(element("li", note) for note in page.notes), class_="notes") if page.notes else Markup()
    return joined(*blocks, notes)


def table(
    *, caption: str, head: Sequence[Markup], rows: Sequence[Sequence[Markup]], class_: str | None = None
) -> Markup:
    """A table of these cells. It scrolls if it is too wide for its screen."""
    content = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *head, role="row"), role="rowgroup"),
        element("tbody", *(element("tr", *cells, role="row") for cells in rows), role="rowgroup"),
        role="table",
        class_=class_,
    )
    # A scrollable element must be reachable by keyboard and have a label.
    return element("div", content, class_="scroll", tabindex=0, role="region", aria_label=caption)


def heading(*content: str, class_: str | None = None) -> Markup:
    """The heading of a column."""
    return element("th", *content, scope="col", role="columnheader", class_=class_)


def name_cell(*content: str, class_: str = "name") -> Markup:
    """The cell that names a row."""
    return element("th", *content, scope="row", role="rowheader", class_=class_)


def cell(*content: str, label: str | None, title: str | None = None, class_: str | None = None) -> Markup:
    """A cell with the label that it has on a narrow screen."""
    return element("td", *content, role="cell", data_label=label, title=title, class_=class_)


def _table(page: Page[Any], shown: Table[Any], *, chart: ChartColumn | None) -> Markup:
    named = next((index for index, column in enumerate(page.columns) if column.wide), 0)
    head = [_heading(column) for column in page.columns]
    body = [
        [
            _cell(column, row, text, named=index == named)
            for index, (column, text) in enumerate(zip(page.columns, line, strict=True))
        ]
        for row, line in zip(shown.rows, shown.cells, strict=True)
    ]
    if chart is not None:
        head.insert(named + 1, heading(chart.heading, chart.axis, class_="drawn"))
        for cells, row in zip(body, shown.rows, strict=True):
            cells.insert(named + 1, cell(chart.cell(row), label=None, class_="drawn"))
    return table(caption=shown.heading or page.title, head=head, rows=body, class_=None if chart is None else "charted")


def _heading(column: Column[Any]) -> Markup:
    unit = element("small", column.unit) if column.unit else ""
    return heading(column.name, unit, class_="name" if column.wide else None)


def _cell(column: Column[Any], row: object, content: str, *, named: bool) -> Markup:
    classes = " ".join(filter(None, ["name" if column.wide else "", _CLASS_OF.get(column.style(row), "")]))
    text = breakable(content) if column.wide else content
    if named:
        return name_cell(text, class_=classes)
    return cell(text, label=column.title, class_=classes or None)
