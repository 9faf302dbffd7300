"""Pages as CSV: the rows of the JSON document with their parts spread out.

An empty cell is unknown. Lists are joined by semicolons, counts are written `ok=12;timed_out=3`, and a list of parts
that have names and numbers of their own is the JSON of it.
"""

import csv
import io
import json
from collections.abc import Iterable

from isochrone_client.render.page import Page, RenderOptions, Row


def whole(page: Page[Row], look: RenderOptions) -> str:
    """A line of headers, then one line per row."""
    return _written([[field.header for field in page.fields]]) + more(page, look)


opening = whole


def more(page: Page[Row], _look: RenderOptions) -> str:
    """One line per row."""
    return _written([_cell(field.value(record)) for field in page.fields] for record in page.recorded())


def _written(lines: Iterable[list[str]]) -> str:
    paper = io.StringIO()
    # The csv module leaves a lone \r unquoted, and readers take it for the end of the line.
    unix = ([cell.replace("\r\n", "\n").replace("\r", "\n") for cell in line] for line in lines)
    csv.writer(paper, lineterminator="\n").writerows(unix)
    return paper.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return ";".join(f"{name}={_cell(part)}" for name, part in sorted(value.items()))
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False) if _has_parts(value) else ";".join(_cell(part) for part in value)
    return str(value)


def _has_parts(value: list[object]) -> bool:
    return any(isinstance(part, dict) for part in value)
