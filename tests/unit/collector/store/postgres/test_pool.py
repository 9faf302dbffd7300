"""SQL statements by name, and the rows that fit them."""

from importlib.resources import files

import pytest

from isochrone_collector.store.postgres import pool


def test_statements_are_found_by_name() -> None:
    """A statement is the text between its name and the next comment."""
    text = "-- One.\n-- name: one\nSELECT 1\n\n-- Two,\n-- twice.\n-- name: two\nSELECT 2\nFROM t\n"
    assert pool.parse(text) == {"one": "SELECT 1", "two": "SELECT 2\nFROM t"}


@pytest.mark.parametrize("text", ["-- name: a\n-- name: b\nSELECT 1", "-- name: a\nSELECT 1\n-- name: a\nSELECT 2"])
def test_a_name_without_a_statement_is_an_error(text: str) -> None:
    """An empty statement or a duplicate name is an error at the first use."""
    with pytest.raises(ValueError, match="empty or defined twice"):
        pool.parse(text)


def test_every_statement_has_a_sentence() -> None:
    """Each statement has a comment above its name."""
    named = 0
    for path in files("isochrone_collector.store").joinpath("sql").iterdir():
        lines = path.read_text().splitlines()
        names = [n for n, line in enumerate(lines) if line.startswith("-- name: ")]
        assert all(lines[n - 1].startswith("-- ") for n in names)
        named += len(names)
    assert named == len(pool.texts()) > 40
