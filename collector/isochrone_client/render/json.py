"""Pages as JSON: one document, or one line per row where the answer goes on.

{"schema": "isochrone.diff/1", "window": {"from_at": …, "until_at": …}, "rows": [{…}, …]}
"""

import json

from isochrone_client.render.page import Page, RenderOptions, Row


def whole(page: Page[Row], _look: RenderOptions) -> str:
    """The page as one JSON document."""
    document = {"schema": page.schema, **page.facts, "rows": list(page.recorded())}
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def opening(page: Page[Row], look: RenderOptions) -> str:
    """As `more`: lines of JSON have no beginning."""
    return more(page, look)


def more(page: Page[Row], _look: RenderOptions) -> str:
    """Each row as one line of JSON."""
    lines = (json.dumps(record, ensure_ascii=False, allow_nan=False) for record in page.recorded())
    return "".join(f"{line}\n" for line in lines)
