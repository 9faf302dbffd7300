"""Time ranges: what people write is what the collector is asked."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US
from isochrone_wire.queries.windows import EPOCH, EXAMPLES, WindowError, parse_window

NOW_AT = 1_795_248_000_000_000  # 2026-11-21T08:00:00Z


def at(text: str) -> int:
    """An ISO 8601 instant in UTC as microseconds since the epoch."""
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND_US


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90s", 1.5),
        ("15m", 15),
        ("24h", 1440),
        ("7d", 7 * 1440),
        ("2w", 14 * 1440),
        (" 7 d ", 7 * 1440),
        ("007d", 7 * 1440),
        ("1h30m", 90),
        ("24 hours", 1440),
        ("last 3 days", 3 * 1440),
        ("1 day, 2 hours", 1440 + 120),
        ("999999999w", NOW_AT / MINUTE_US),
    ],
)
def test_a_span_ends_now(text: str, minutes: float) -> None:
    """A duration means the time up to the given instant, from the epoch on."""
    assert parse_window(text, now_at=NOW_AT) == Window(from_at=NOW_AT - round(minutes * MINUTE_US), until_at=NOW_AT)


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
        ("2026-11-01..2026-11-08", at("2026-11-01"), at("2026-11-08")),
        ("2026-11-01T12:00..14:00", at("2026-11-01T12:00"), at("2026-11-01T14:00")),
        ("06:00..07:30", at("2026-11-21T06:00"), at("2026-11-21T07:30")),
        ("06:00..", at("2026-11-21T06:00"), NOW_AT),
        ("2026-11-01..now", at("2026-11-01"), NOW_AT),
        ("yesterday..", at("2026-11-20"), NOW_AT),
        ("yesterday..today", at("2026-11-20"), at("2026-11-21")),
        ("2026-11-01T00:00:00.123457..", at("2026-11-01") + 123_457, NOW_AT),
    ],
)
def test_a_range_has_two_instants(text: str, from_at: int, until_at: int) -> None:
    """Dates and instants are UTC unless they have an offset; an open end is now; the end is excluded."""
    assert parse_window(text, now_at=NOW_AT) == Window(from_at=from_at, until_at=until_at)


@pytest.mark.parametrize(
    ("text", "begin", "end"),
    [
        ("today", "2026-11-21", "2026-11-21T08:00"),
        ("yesterday", "2026-11-20", "2026-11-21"),
        ("this week", "2026-11-16", "2026-11-21T08:00"),
        ("Last  Week", "2026-11-09", "2026-11-16"),
        ("this month", "2026-11-01", "2026-11-21T08:00"),
        ("last month", "2026-10-01", "2026-11-01"),
        ("2026-11-01", "2026-11-01", "2026-11-02"),
        ("2026-11-21", "2026-11-21", "2026-11-21T08:00"),
        ("2026-11", "2026-11-01", "2026-11-21T08:00"),
        ("2026-12", "2026-12-01", "2027-01-01"),
        ("2026-W45", "2026-11-02", "2026-11-09"),
    ],
)
def test_a_period_is_whole_and_ends_now_at_the_latest(text: str, begin: str, end: str) -> None:
    """A word or a date is all of its days in UTC; a current one ends now."""
    assert parse_window(text, now_at=NOW_AT) == Window(from_at=at(begin), until_at=at(end))


@given(st.integers(min_value=0, max_value=4_000_000_000_000_000), st.integers(min_value=1, max_value=99_999))
def test_spans_are_as_long_as_they_say(now_at: int, minutes: int) -> None:
    """A duration in any notation ends at the given instant and is as long as the sum of its pieces."""
    spelled = [f"{minutes}m", f"{minutes * 60} seconds", f"last {minutes // 60}h {minutes % 60}m"]
    expected = Window(from_at=max(0, now_at - minutes * MINUTE_US), until_at=now_at)
    windows = {parse_window(text, now_at=now_at) for text in spelled} if now_at else {expected}
    assert windows == {expected}


@given(st.datetimes(min_value=datetime(1971, 1, 2), max_value=datetime(2262, 1, 1)))  # noqa: DTZ001  # UTC by our rule
def test_words_and_dates_agree(moment: datetime) -> None:
    """At any instant, `yesterday` is that date, is a whole day, and ends where `today` begins."""
    now = moment.replace(tzinfo=UTC)
    now_at = (now - EPOCH) // timedelta(microseconds=1)
    yesterday = parse_window("yesterday", now_at=now_at)
    assert yesterday == parse_window((now - timedelta(days=1)).date().isoformat(), now_at=now_at)
    assert yesterday.until_at - yesterday.from_at == DAY_US
    assert yesterday.until_at == now_at - now_at % DAY_US
    last, this = (parse_window(f"{which} month..", now_at=now_at + 1).from_at for which in ("last", "this"))
    assert 28 * DAY_US <= this - last <= 31 * DAY_US


REFUSED = (
    *("", "24", "h", "24x", "-3h", "0h", "1.5h", "..", "..2026-11-01", "2026-13-01..", "2026-13", "2026-02-30"),
    *("2026-W60", "2026-11-01T12:00", "2026-11-01T14:00..12:00", "09:00..", "tomorrow", "1969-12-31", "9999-12-31"),
    *("9999-12", "1h30", "2026-11-02..2026-11-01", "2026-11-01..2026-11-01", "2027-01-01..", "a..b..c", "9999999999d"),
)


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_range_is_refused_with_the_forms(text: str) -> None:
    """Invalid text is a usage error with examples."""
    with pytest.raises(WindowError) as caught:
        parse_window(text, now_at=NOW_AT)
    assert caught.value.exit_code == 2
    assert "24h" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("24", "'24' has no unit"),
        ("2026-02-30", "2026-02-30 does not exist"),
        ("2026-11-01T12:00", "append .. for"),
        ("2026-11-02..2026-11-01", "ends before it begins"),
        ("2027-01-01..", "begins in the future"),
        ("..2026-11-01", "the window has no start"),
    ],
)
def test_a_refusal_says_what_is_wrong(text: str, sentence: str) -> None:
    """The error names the mistake."""
    with pytest.raises(WindowError, match=sentence.replace(".", r"\.")):
        parse_window(text, now_at=NOW_AT)


def test_the_examples_are_readable() -> None:
    """Every example of the hint can be parsed."""
    examples = EXAMPLES.replace(" or ", ", ").split(", ")
    assert len(examples) > 5
    assert all(parse_window(text, now_at=NOW_AT) for text in examples)


@given(st.text(max_size=30) | st.from_regex(r"[0-9]{0,4}[-W:T.0-9hdmw ]{0,24}", fullmatch=True))
def test_no_text_is_worse_than_refused(text: str) -> None:
    """Any text gives a window that is not empty, or a WindowError; nothing else is ever raised."""
    try:
        window = parse_window(text, now_at=NOW_AT)
    except WindowError:
        return
    assert window.from_at < window.until_at
