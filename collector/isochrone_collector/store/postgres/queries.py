"""Loader of the SQL statements in `sql/*.sql`, by name: every statement that the collector sends.

Placeholders are %(name)s. The module that uses a statement fills in {braces} from its own tables, never from a request.
"""

from functools import cache
from importlib.resources import files

from psycopg import sql

_MARK = "-- name: "


def parse(text: str) -> dict[str, str]:
    """Return name → statement, without comment lines. Raises `ValueError`."""
    found: dict[str, str] = {}
    for part in text.split(_MARK)[1:]:
        name, _, body = part.partition("\n")
        lines = [line for line in body.splitlines() if line.strip() and not line.lstrip().startswith("--")]
        if name in found or not lines:
            raise ValueError(f"statement {name!r} is empty or defined twice")
        found[name] = "\n".join(lines)
    return found


def query(name: str) -> sql.SQL:
    """Return the statement of that name. Raises `KeyError`."""
    return _statements()[name]


def texts() -> dict[str, str]:
    """Return name → statement of all files. Raises `ValueError` if a name is defined twice."""
    folder = files("isochrone_collector.store").joinpath("sql")
    paths = sorted((path for path in folder.iterdir() if path.name.endswith(".sql")), key=lambda path: path.name)
    return parse("\n".join(path.read_text(encoding="utf-8") for path in paths))


@cache
def _statements() -> dict[str, sql.SQL]:
    return {name: sql.SQL(statement) for name, statement in texts().items()}
