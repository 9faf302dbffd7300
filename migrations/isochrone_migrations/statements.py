"""Statements of a migration, one at a time: distributed tables refuse several at once."""

from collections.abc import Iterator

from alembic import op


def execute(text: str) -> None:
    """Execute the statements of a text, each of which ends with a semicolon at the end of a line."""
    for statement in _split(text):
        op.execute(statement)


def _split(text: str) -> Iterator[str]:
    for statement in f"{text}\n".split(";\n"):
        if statement.strip():
            yield statement.strip()
