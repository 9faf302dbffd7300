"""Pages as JSON: one document, or one line per row if the answer continues.

{"schema": "isochrone.diff/1", "window": {"from_at": …, "until_at": …}, "rows": [{…}, …]}
"""

import json
from typing import Any

from isochrone_client.render.page import Page, RenderOptions, Row
from isochrone_wire.text import printable_json


def whole(page: Page[Row], _options: RenderOptions) -> str:
    """The page as one JSON document."""
    return f"{_text(document(page), indent=2)}\n"


def one_line(page: Page[Row]) -> str:
    """The page as one JSON document on one line."""
    return f"{_text(document(page))}\n"


def more(page: Page[Row], _options: RenderOptions) -> str:
    """Each row as one line of JSON."""
    return "".join(f"{_text(record)}\n" for record in page.iter_records())


opening = more


def _text(value: object, indent: int | None = None) -> str:
    return printable_json(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent))


def document(page: Page[Row]) -> dict[str, Any]:
    """The page as plain data."""
    return {"schema": page.schema, **page.facts, "rows": list(page.iter_records())}
