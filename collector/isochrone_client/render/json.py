"""Pages as JSON: one document, or one line per row if the answer continues.

{"schema": "isochrone.diff/1", "window": {"from_at": …, "until_at": …}, "rows": [{…}, …]}
"""

import json
from typing import Any

from isochrone_client.render.page import Page, RenderOptions, Row


def whole(page: Page[Row], _options: RenderOptions) -> str:
    """The page as one JSON document."""
    return json.dumps(document(page), ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def one_line(page: Page[Row]) -> str:
    """The page as one JSON document on one line."""
    return json.dumps(document(page), ensure_ascii=False, allow_nan=False) + "\n"


def more(page: Page[Row], _options: RenderOptions) -> str:
    """Each row as one line of JSON."""
    lines = (json.dumps(record, ensure_ascii=False, allow_nan=False) for record in page.iter_records())
    return "".join(f"{line}\n" for line in lines)


opening = more


def document(page: Page[Row]) -> dict[str, Any]:
    """The page as plain data."""
    return {"schema": page.schema, **page.facts, "rows": list(page.iter_records())}
