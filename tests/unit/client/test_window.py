"""Time ranges: what people write is what the collector is asked."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_client.errors import WindowError
from isochrone_client.window import parse_window
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US

NOW_AT = 1_795_248_000_000_000  # 2026-11-21T08:00:00Z


def at(text: str) -> int:
    """An ISO 8601 instant in UTC as microseconds since the epoch."""
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND_US


@pytest.mark.parametrize(
    ("text", "span_us"),
    [
        ("90s", 90 * SECOND_US),
        ("15m", 15 * MINUTE_US),
        ("24h", DAY_US),
        ("7d", 7 * DAY_US),
        ("2w", 14 * DAY_US),
        (" 7 d ", 7 * DAY_US),
        ("007d", 7 * DAY_US),
    ],
)
def test_a_span_ends_now(text: str, span_us: int) -> None:
    """A span means the last so much, up to the instant handed in."""
    assert parse_window(text, now_at=NOW_AT) == Window(from_at=NOW_AT - span_us, until_at=NOW_AT)


@pytest.mark.parametrize(
    ("text", "from_at", "until_at"),
    [
        ("2026-11-01..", at("2026-11-01"), NOW_AT),
        ("2026-11-01..2026-11-02", at("2026-11-01"), at("2026-11-02")),
        ("2026-11-01 .. 2026-11-02", at("2026-11-01"), at("2026-11-02")),
        ("2026-11-01T08:30..2026-11-01T09:00Z", at("2026-11-01T08:30"), at("2026-11-01T09:00")),
        ("2026-11-01T08:30+08:00..2026-11-01T01:00", at("2026-11-01T00:30"), at("2026-11-01T01:00")),
        ("2026-11-01 08:30:15..2026-11-02", at("2026-11-01T08:30:15"), at("2026-11-02")),
        ("2030-01-01..2030-01-02", at("2030-01-01"), at("2030-01-02")),
    ],
)
def test_a_range_has_two_instants(text: str, from_at: int, until_at: int) -> None:
    """Dates and instants are UTC unless they say otherwise; an open end is now; the end itself is not included."""
    assert parse_window(text, now_at=NOW_AT) == Window(from_at=from_at, until_at=until_at)


def test_microseconds_survive() -> None:
    """An instant keeps its microseconds: no float comes between."""
    window = parse_window("2026-11-01T00:00:00.123457..", now_at=NOW_AT)
    assert window.from_at == at("2026-11-01") + 123_457


@pytest.mark.parametrize(
    "text",
    [
        "",
        "24",
        "h",
        "24x",
        "1h30m",
        "-3h",
        "0h",
        "1.5h",
        "24 hours",
        "..",
        "..2026-11-01",
        "2026-11-01",
        "2026-13-01..",
        "yesterday..",
        "2026-11-02..2026-11-01",
        "2026-11-01..2026-11-01",
        "2027-01-01..",
        "a..b..c",
        "9999999999d",
    ],
)
def test_what_is_no_range_is_refused_with_the_forms(text: str) -> None:
    """Whatever cannot be read is a usage error that shows how a range is written."""
    with pytest.raises(WindowError) as caught:
        parse_window(text, now_at=NOW_AT)
    assert caught.value.exit_code == 2
    assert "24h" in caught.value.hint


def test_the_longest_span_stops_at_the_epoch() -> None:
    """A span longer than time itself stays within what the wire can carry."""
    assert parse_window("999999999w", now_at=NOW_AT).from_at == 0


@given(st.text(max_size=30))
def test_no_text_is_worse_than_refused(text: str) -> None:
    """Any text gives a window that is not empty, or a WindowError; nothing else is ever raised."""
    try:
        window = parse_window(text, now_at=NOW_AT)
    except WindowError:
        return
    assert window.from_at < window.until_at
