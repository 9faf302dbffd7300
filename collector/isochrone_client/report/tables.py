"""Pages as tables of HTML: the same columns that a terminal shows, with drawings where there are any."""

from collections.abc import Callable, Sequence
from typing import Any

from isochrone_client.render.page import Column, Page
from isochrone_client.report.charts import Chart
from isochrone_client.report.html_elements import Markup, element, joined

ChartBuilder = Callable[[Sequence[Any]], Chart | None]
_CLASS_OF = {"green": "good", "red": "bad", "yellow": "warn", "dim": "dim"}


def tables(page: Page[Any], *, draw: ChartBuilder | None = None) -> Markup:
    """A table for each group of the page, under a caption, and the notes below; `draw` adds a column of drawings."""
    blocks = [
        _table(page, caption=heading or page.title, rows=rows, drawing=draw(rows) if draw else None)
        for heading, rows in page.groups()
    ]
    notes = element("ul", *(element("li", note) for note in page.notes), class_="notes") if page.notes else Markup()
    return joined(*blocks, notes)


def _table(page: Page[Any], *, caption: str, rows: Sequence[Any], drawing: Chart | None) -> Markup:
    named = next((place for place, column in enumerate(page.columns) if column.wide), 0)
    head = [_heading(column) for column in page.columns]
    body = [[_cell(column, row, named=place == named) for place, column in enumerate(page.columns)] for row in rows]
    if drawing is not None:
        head.insert(named + 1, element("th", drawing.heading, drawing.axis, scope="col", class_="drawn"))
        for cells, row in zip(body, rows, strict=True):
            cells.insert(named + 1, element("td", drawing.cell(row), class_="drawn"))
    table = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *head)),
        element("tbody", *(element("tr", *cells) for cells in body)),
    )
    # What scrolls must be reachable by the keyboard, and say what it is.
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _heading(column: Column[Any]) -> Markup:
    unit = element("small", column.unit) if column.unit else ""
    return element("th", column.heading, unit, scope="col", class_="name" if column.wide else None)


def _cell(column: Column[Any], row: object, *, named: bool) -> Markup:
    classes = " ".join(filter(None, ["name" if column.wide else "", _CLASS_OF.get(column.style(row), "")]))
    text = _breakable(column.text(row)) if column.wide else column.text(row)
    if named:
        return element("th", text, scope="row", class_=classes or None)
    return element("td", text, class_=classes or None)


def _breakable(name: str) -> Markup:
    """A name that may go on in the next line after a slash."""
    first, *others = name.split("/")
    return joined(first, *(piece for other in others for piece in ("/", element("wbr"), other)))
