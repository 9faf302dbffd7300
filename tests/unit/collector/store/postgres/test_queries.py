"""SQL statements by name, and the rows that fit them."""

from importlib.resources import files

import pytest

from isochrone_collector.store import rows
from isochrone_collector.store.postgres import queries
from isochrone_wire.model import Outcome, RateLimit, Sample


def test_statements_are_found_by_name() -> None:
    """A statement is the text between its name and the next comment."""
    text = "-- One.\n-- name: one\nSELECT 1\n\n-- Two,\n-- twice.\n-- name: two\nSELECT 2\nFROM t\n"
    assert queries.parse(text) == {"one": "SELECT 1", "two": "SELECT 2\nFROM t"}


@pytest.mark.parametrize("text", ["-- name: a\n-- name: b\nSELECT 1", "-- name: a\nSELECT 1\n-- name: a\nSELECT 2"])
def test_a_name_without_a_statement_is_an_error(text: str) -> None:
    """An empty statement or a duplicate name is an error at the first use."""
    with pytest.raises(ValueError, match="empty or defined twice"):
        queries.parse(text)


def test_every_statement_has_a_sentence() -> None:
    """Each statement has a comment above its name."""
    named = 0
    for path in files("isochrone_collector.store").joinpath("sql").iterdir():
        lines = path.read_text().splitlines()
        names = [n for n, line in enumerate(lines) if line.startswith("-- name: ")]
        assert all(lines[n - 1].startswith("-- ") for n in names)
        named += len(names)
    assert named == len(queries.texts()) > 40


def test_rows_follow_the_columns() -> None:
    """Every value of a row is at the index of its column."""
    limits = RateLimit(limit_requests=11, retry_after_us=12)
    sample = Sample(
        target_id=1, round_at=2, outcome=Outcome.OK, dispatched_at=3, ttft_us=4, error="e", ratelimit=limits
    )
    origin = rows.Origin(vantage_id=5, region="us", epoch=6, seq=7, received_at=8)
    row = dict(zip(rows.COLUMNS, rows.sample_row(sample, 9, origin), strict=True))
    expected = {"target_id": 1, "round_at": 2, "vantage_id": 5, "epoch": 6, "seq": 7, "idx": 9, "region": "us"}
    expected |= {"received_at": 8, "outcome": "ok", "dispatched_at": 3, "ttft_us": 4, "error": "e", "quality": 0}
    expected |= {"ratelimit_limit_requests": 11, "ratelimit_retry_after_us": 12, "ratelimit_limit_tokens": None}
    assert {name: row[name] for name in expected} == expected
    bare = rows.sample_row(Sample(target_id=1, round_at=2, outcome=Outcome.OK, dispatched_at=3), 0, origin)
    assert len(bare) == len(row)
