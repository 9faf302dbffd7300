"""Pages as CSV: the rows of the JSON document, flattened. An empty cell means unknown."""

import csv
import io

from isochrone_client.render.page import Page, RenderOptions, Row, field_text


def whole(page: Page[Row], options: RenderOptions) -> str:
    """The header line, then one line per row."""
    return _lines([[field.header for field in page.fields]]) + more(page, options)


opening = whole


def more(page: Page[Row], _options: RenderOptions) -> str:
    """One line per row."""
    return _lines([[field_text(field.value(record)) for field in page.fields] for record in page.iter_records()])


def _lines(lines: list[list[str]]) -> str:
    buffer = io.StringIO()
    # The csv module does not quote a lone \r, and readers take it as the end of the line.
    rows = ([cell.replace("\r\n", "\n").replace("\r", "\n") for cell in line] for line in lines)
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()
