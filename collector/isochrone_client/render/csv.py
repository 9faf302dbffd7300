"""Pages as CSV: the rows of the JSON document, flattened. An empty cell means unknown.

A text that a spreadsheet would compute begins with an apostrophe, and control characters are spaces, unless the options
are `raw`.
"""

import csv
import io

from isochrone_client.render.page import Page, RenderOptions, Row, field_text
from isochrone_wire.text import printable

# The last four are the wide forms of the first.
_COMPUTED = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def whole(page: Page[Row], options: RenderOptions) -> str:
    """The header line, then one line per row."""
    return _lines([[field.header for field in page.fields]]) + more(page, options)


opening = whole


def more(page: Page[Row], options: RenderOptions) -> str:
    """One line per row."""

    def cell(value: object) -> str:
        text = field_text(value)
        if options.raw or isinstance(value, int | float):
            return text
        return ("'" if text.startswith(_COMPUTED) else "") + printable(text, keep="\n")

    return _lines([[cell(field.value(record)) for field in page.fields] for record in page.iter_records()])


def _lines(lines: list[list[str]]) -> str:
    buffer = io.StringIO()
    # The csv module does not quote a lone \r, and readers take it as the end of the line.
    rows = ([cell.replace("\r\n", "\n").replace("\r", "\n") for cell in line] for line in lines)
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()
