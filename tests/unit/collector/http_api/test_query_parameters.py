"""Parsing of query strings."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_collector.errors import BadRequest
from isochrone_collector.http_api import query_parameters
from isochrone_collector.http_api.query_parameters import QueryParameters
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US

HOUR_US = 60 * MINUTE_US
NOW_AT = 1_795_248_000_000_000  # 2026-11-21T08:00:00Z


def window(**said: str) -> Window:
    return query_parameters.window(
        QueryParameters({name.rstrip("_"): (value,) for name, value in said.items()}), now_at=NOW_AT
    )


@pytest.mark.parametrize(
    ("said", "length_us"),
    [
        ({}, DAY_US),
        ({"window": "24h"}, DAY_US),
        ({"window": "7d"}, 7 * DAY_US),
        ({"window": "2w"}, 14 * DAY_US),
        ({"window": "90s"}, 90 * SECOND_US),
        ({"from_": "2026-11-21T07:00:00Z"}, HOUR_US),
        ({"from_": "2026-11-21T08:00:00+01:00"}, HOUR_US),
        ({"from_": "2026-11-21T08:00:00 01:00"}, HOUR_US),
        ({"from_": "2026-11-21T06:00:00Z", "until": "2026-11-21T08:00:00Z"}, 2 * HOUR_US),
    ],
)
def test_a_window_ends_now_or_where_it_is_told_to(said: dict[str, str], length_us: int) -> None:
    """A span counts back from now; instants keep their offset."""
    assert window(**said) == Window(from_at=NOW_AT - length_us, until_at=NOW_AT)


@pytest.mark.parametrize(
    "said",
    [
        {"window": "yesterday"},
        {"window": "7"},
        {"window": "-1h"},
        {"window": "24h", "from_": "2026-11-21T07:00:00Z"},
        {"until": "2026-11-21T07:00:00Z"},
        {"from_": "2026-11-21T07:00:00"},
        {"from_": "2026-11-21T09:00:00Z"},
        {"from_": "2026-11-21"},
        {"from_": "x" * 9_000},
    ],
)
def test_no_window_is_guessed(said: dict[str, str]) -> None:
    """An invalid window, two windows, or an instant without offset are refused."""
    with pytest.raises(BadRequest):
        window(**said)


@given(st.binary(max_size=200))
def test_any_query_is_read_or_refused(query: bytes) -> None:
    """Any bytes give known parameters or a bad request."""
    try:
        found = query_parameters.parse(query, known=("route", "after"))
    except BadRequest:
        return
    assert set(found.values) <= {"route", "after"}


@given(st.text(max_size=30))
def test_any_number_is_read_or_refused(text: str) -> None:
    """A generation must be in range, and a wait within its bounds; else it is a bad request."""
    with suppress(BadRequest):
        assert 0 <= query_parameters.generation(text, name="after") < 2**63
    with suppress(BadRequest):
        assert 0 <= query_parameters.wait_us(text) <= query_parameters.MAX_WAIT_US


def test_an_unknown_word_names_the_nearest() -> None:
    """A misspelt parameter is refused rather than ignored."""
    with pytest.raises(BadRequest, match="did you mean 'route'"):
        query_parameters.parse(b"rotue=chat", known=("route", "after"))
