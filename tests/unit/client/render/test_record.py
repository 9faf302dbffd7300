"""Records: machines get all of the wire, under its names, and CSV gets all of JSON."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from fixtures.fake_collector import COVERAGE, DIFFERENTIALS, STANDINGS, TARGETS, stored
from isochrone_client.pages import differentials, fleet, leaderboard, samples
from isochrone_client.render.page import Page, row_record, wire_fields
from isochrone_wire.answers import Differential, DifferentialList, Metric, Window
from isochrone_wire.fleet import CoverageList
from isochrone_wire.insights import Leaderboard, Standing
from isochrone_wire.model import Quality, RateLimit
from isochrone_wire.queries.documents import FORMATS

WINDOW = Window(from_at=0, until_at=1)
PAGES: list[Page[Any]] = [
    differentials.page(DifferentialList(window=WINDOW), DIFFERENTIALS, metric=Metric.TTFT, now_at=0),
    leaderboard.page(Leaderboard(window=WINDOW, standings=STANDINGS)),
    fleet.targets_page(TARGETS),
    fleet.coverage_page(CoverageList(window=WINDOW, coverage=COVERAGE), now_at=0),
    samples.page((stored(), stored(1, ratelimit=RateLimit(limit_requests=5))), window=WINDOW, now_at=0),
]


def paths(record: dict[str, Any], *, above: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The path of every leaf of a record; counts and empty objects are leaves."""
    found: set[tuple[str, ...]] = set()
    for name, part in record.items():
        if isinstance(part, dict) and part and name != "outcomes":
            found |= paths(part, above=(*above, name))
        else:
            found.add((*above, name))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.schema)
def test_csv_says_all_that_json_says(page: Page[Any]) -> None:
    """Every leaf of every record has a column; an unknown object has the columns of its fields."""
    columns = {field.path for field in page.fields}
    for row in page.rows:
        for path in paths(page.record(row)):
            assert any(column[: len(path)] == path for column in columns), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.schema)
def test_headers_are_unique(page: Page[Any]) -> None:
    """No two columns of CSV have the same header."""
    headers = [field.header for field in page.fields]
    assert len(headers) == len(set(headers))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.schema)
def test_records_are_json(page: Page[Any]) -> None:
    """Every record can be written by a strict JSON writer."""
    assert json.loads(json.dumps([page.record(row) for row in page.rows], allow_nan=False))


def test_a_sample_stands_beside_its_names() -> None:
    """A stored sample's record is flat: names, instants as RFC 3339, flags by name, derived durations too."""
    record = FORMATS["SampleList"].record(stored(quality=Quality.LAGGED | Quality.REUSED))
    assert record["target"] == "openai/gpt-5-mini"
    assert record["round_at"] == "2026-11-21T08:00:00.000000Z"
    assert record["quality"] == ["lagged", "reused"]
    assert record["ttft_us"] == 318_250
    assert record["ttft_cold_us"] == 318_250 + 26_500
    assert record["dns_us"] is None
    assert "sample" not in record


def test_what_json_cannot_write_is_null() -> None:
    """NaN and infinite numbers are unknown."""
    row = replace(DIFFERENTIALS[0], shift=math.nan, shift_high=math.inf)
    record = row_record(row)
    assert (record["shift"], record["shift_low"], record["shift_high"]) == (None, 180_100.0, None)


def test_a_header_says_the_unit_its_name_does_not() -> None:
    """Given units are appended to the header; JSON keeps the name of the wire."""
    headers = [field.header for field in wire_fields(Differential, units={"shift": "us"})]
    assert "shift_us" in headers
    assert "shift" not in headers
    assert "shift" in row_record(DIFFERENTIALS[0])


def test_parts_have_columns_of_their_own() -> None:
    """A quantile has three columns, all of them empty if it is unknown."""
    fields = {field.header: field for field in wire_fields(Standing)}
    known, unknown = row_record(STANDINGS[0]), row_record(replace(STANDINGS[0], ttft_p95_us=None))
    assert fields["ttft_p95_us.low"].value(known) == 251_000
    assert fields["ttft_p95_us.low"].value(unknown) is None
