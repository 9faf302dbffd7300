"""The statements of `queries.sql` by name."""

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


@cache
def _statements() -> dict[str, sql.SQL]:
    text = files(__package__).joinpath("queries.sql").read_text(encoding="utf-8")
    return {name: sql.SQL(statement) for name, statement in parse(text).items()}
