"""Statements of a migration, one at a time: distributed tables refuse several at once."""

from collections.abc import Iterator

from alembic import op

LIMIT_LOCK_WAITS = "SET LOCAL lock_timeout = '2s'"
"""A statement that waits for a lock makes every later one wait. The caller of a migration tries again."""


def execute(text: str) -> None:
    """Execute the statements of a text, each of which ends with a semicolon at the end of a line."""
    for statement in _split(text):
        op.execute(statement)


def build_index(name: str, definition: str) -> None:
    """Build an index while rows are written; `definition` is what follows the name, such as `ON vantage (region)`.

    The transaction is committed before, so a revision that builds an index does nothing else: an interrupted build
    leaves an index that is not valid, and the next attempt repeats the whole revision. PostgreSQL builds no index of a
    partitioned table so: build one on each partition, and attach it.
    """
    with op.get_context().autocommit_block():
        op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
        # No limit for locks here: what the build waits for does not wait for it, unless it is another migration.
        op.execute(f"CREATE INDEX CONCURRENTLY {name} {definition}")
    op.execute(LIMIT_LOCK_WAITS)


def _split(text: str) -> Iterator[str]:
    for statement in f"{text}\n".split(";\n"):
        if statement.strip():
            yield statement.strip()
