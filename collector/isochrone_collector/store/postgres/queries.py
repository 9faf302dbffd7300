"""The statements of `sql/*.sql` by name: every one that the collector sends.

Placeholders are %(name)s; {braces} are filled in by the module that asks for the statement, from tables of its own and
never from a request.
"""

from functools import cache
from importlib.resources import files

from psycopg import sql

_MARK = "-- name: "


def parse(text: str) -> dict[str, str]:
    """Name → statement. Comment lines are for the reader of the file and are left out. Raises `ValueError`."""
    found: dict[str, str] = {}
    for part in text.split(_MARK)[1:]:
        name, _, body = part.partition("\n")
        lines = [line for line in body.splitlines() if line.strip() and not line.lstrip().startswith("--")]
        if name in found or not lines:
            raise ValueError(f"statement {name!r} is empty or there twice")
        found[name] = "\n".join(lines)
    return found


def query(name: str) -> sql.SQL:
    """The statement of that name. Raises `KeyError`."""
    return _statements()[name]


def texts() -> dict[str, str]:
    """Name → statement, of all files. Raises `ValueError` when a name is there twice."""
    folder = files("isochrone_collector.store").joinpath("sql")
    paths = sorted((path for path in folder.iterdir() if path.name.endswith(".sql")), key=lambda path: path.name)
    return parse("\n".join(path.read_text(encoding="utf-8") for path in paths))


@cache
def _statements() -> dict[str, sql.SQL]:
    return {name: sql.SQL(statement) for name, statement in texts().items()}
