"""Statements of a migration, one at a time: distributed tables refuse several at once. Pure."""

from collections.abc import Iterator


def split(text: str) -> Iterator[str]:
    """Yield the statements of a text, each of which ends with a semicolon at the end of a line."""
    for statement in f"{text}\n".split(";\n"):
        if statement.strip():
            yield statement.strip()
