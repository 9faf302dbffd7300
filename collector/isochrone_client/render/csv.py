"""Pages as CSV: the rows of the JSON document, flattened.

An empty cell means unknown. Lists are joined by semicolons, counts are written as `ok=12;timed_out=3`, and a list of
objects is written as JSON.
"""

import csv
import io
import json
from collections.abc import Iterable

from isochrone_client.render.page import Page, RenderOptions, Row


def whole(page: Page[Row], options: RenderOptions) -> str:
    """The header line, then one line per row."""
    return _csv_lines([[field.header for field in page.fields]]) + more(page, options)


opening = whole


def more(page: Page[Row], _options: RenderOptions) -> str:
    """One line per row."""
    return _csv_lines([_cell(field.value(record)) for field in page.fields] for record in page.iter_records())


def _csv_lines(lines: Iterable[list[str]]) -> str:
    buffer = io.StringIO()
    # The csv module does not quote a lone \r, and readers take it as the end of the line.
    rows = ([cell.replace("\r\n", "\n").replace("\r", "\n") for cell in line] for line in lines)
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return ";".join(f"{name}={_cell(part)}" for name, part in sorted(value.items()))
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False) if _has_objects(value) else ";".join(_cell(part) for part in value)
    return str(value)


def _has_objects(value: list[object]) -> bool:
    return any(isinstance(part, dict) for part in value)
