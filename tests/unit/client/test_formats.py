"""Quantities for people: sensible digits, and never a number for what is not known."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_client import formats
from isochrone_client.formats import (
    UNKNOWN,
    Amount,
    amount,
    amount_dollars,
    amount_interval,
    amount_percent,
    common_decimals,
)
from isochrone_wire.answers import Window
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US

NOW_AT = 1_795_248_000_000_000  # 2026-11-21T08:00:00Z


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, UNKNOWN),
        (math.nan, UNKNOWN),
        (math.inf, UNKNOWN),
        (0, "0"),
        (4, "0.00"),
        (420, "0.42"),
        (994, "0.99"),
        (996, "1.0"),
        (4_230, "4.2"),
        (9_949, "9.9"),
        (9_951, "10"),
        (180_400, "180"),
        (28_000_400, "28000"),
        (1e14, "1e+11"),
    ],
)
def test_milliseconds_have_sensible_digits(us: float | None, text: str) -> None:
    """Microseconds print as ms: two decimals below 1, one below 10, none above, and the unknown as a dash."""
    assert formats.number(formats.milliseconds(us)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (30.4, "+30"),
        (-30.4, "-30"),
        (0.0, "0"),
        (-0.0, "0"),
        (-0.001, "0.00"),
        (0.42, "+0.42"),
        (None, UNKNOWN),
        (3e9, "+3e+09"),
    ],
)
def test_a_shift_says_its_sign(value: float | None, text: str) -> None:
    """A signed number has a plus or a minus, and a number that rounds to 0 has neither."""
    assert formats.number(value, signed=True) == text


@given(st.floats())
def test_rounding_never_invents_a_number(value: float) -> None:
    """The text is within half a unit of the last digit of the value, or a dash without a value."""
    text = formats.number(value)
    if not math.isfinite(value):
        assert text == UNKNOWN
    elif abs(value) < 1e8:
        places = len(text.partition(".")[2])
        assert abs(float(text) - value) <= 0.5000001 * 10**-places


@pytest.mark.parametrize(
    ("low", "high", "signed", "text"),
    [
        (180.1, 203.7, True, "+180 … +204"),
        (-34.9, -25.3, True, "-35 … -25"),
        (-3.14, 12.7, True, "-3 … +13"),
        (-0.31, 0.52, True, "-0.31 … +0.52"),
        (0.0, 4.25, False, "0.0 … 4.2"),
        (178.2, 181.9, False, "178 … 182"),
        (None, None, True, UNKNOWN),
        (math.nan, None, True, UNKNOWN),
        (120.0, None, False, f"120 … {UNKNOWN}"),
        (0.0, 0.0, True, "0 … 0"),
    ],
)
def test_both_bounds_have_the_same_digits(low: float | None, high: float | None, signed: bool, text: str) -> None:  # noqa: FBT001  # a case of the table
    """An interval's bounds share the digits of the larger one."""
    assert formats.interval(low, high, signed=signed) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, UNKNOWN),
        (59.7, "+59.7"),
        (-16.66, "-16.7"),
        (0.0, "0.0"),
        (-0.01, "0.0"),
        (99.94, "+99.9"),
        (99.96, "+100"),
        (-340.2, "-340"),
    ],
)
def test_percent(value: float | None, text: str) -> None:
    """Percentages are signed, with one decimal below 100."""
    assert formats.alone(amount_percent(value)) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 0, UNKNOWN),
        (0, 10, "0.0"),
        (1439, 1440, "99.9"),
        (99_999, 100_000, "99.9"),
        (10, 10, "100.0"),
        (1, 3, "33.3"),
    ],
)
def test_a_hundred_per_cent_is_all_of_it(part: int, whole: int, text: str) -> None:
    """A share is rounded down, so that 100 means complete; without rounds it is unknown."""
    assert formats.share(part, whole) == text


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (None, UNKNOWN),
        (0.0, "0.00"),
        (0.15, "0.15"),
        (25, "25.00"),
        (0.01, "0.01"),
        (0.0049, "0.0049"),
        (math.nan, UNKNOWN),
    ],
)
def test_dollars(usd: float | None, text: str) -> None:
    """Prices have cents, and below a cent two significant digits; free is 0.00, unknown is a dash."""
    assert formats.alone(amount_dollars(usd)) == text


@pytest.mark.parametrize(
    ("ago_us", "text"),
    [
        (0, "0 s"),
        (-5 * SECOND_US, "0 s"),
        (12_900_000, "12 s"),
        (59_999_999, "59 s"),
        (MINUTE_US, "1 min"),
        (59 * MINUTE_US, "59 min"),
        (60 * MINUTE_US, "1 h"),
        (47 * 60 * MINUTE_US, "47 h"),
        (2 * DAY_US, "2 d"),
        (400 * DAY_US, "400 d"),
    ],
)
def test_ages_are_rounded_down(ago_us: int, text: str) -> None:
    """An age is in the largest unit that fits, and never negative if clocks differ."""
    assert formats.age(NOW_AT - ago_us, now_at=NOW_AT) == text


def test_no_age_without_an_instant() -> None:
    """Without an instant the age is unknown."""
    assert formats.age(None, now_at=NOW_AT) == UNKNOWN


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (MINUTE_US, "1 min"),
        (90 * SECOND_US, "90 s"),
        (60 * MINUTE_US, "1 h"),
        (DAY_US, "1 d"),
        (500_000, "500 ms"),
        (0, "0 ms"),
    ],
)
def test_a_chosen_duration_is_exact(us: int, text: str) -> None:
    """A configured duration has the largest unit that divides it."""
    assert formats.span(us) == text


@pytest.mark.parametrize(
    ("at", "text"),
    [(NOW_AT - 5 * SECOND_US, "11-21 07:59"), (NOW_AT + 5 * SECOND_US, "08:00:05"), (NOW_AT, "08:00:00")],
)
def test_instants_of_another_day_say_the_day(at: int, text: str) -> None:
    """Today's instants are shown to the second, others with their date."""
    today_at = NOW_AT if at >= NOW_AT else NOW_AT + DAY_US
    assert formats.moment(at, now_at=today_at) == text


def test_a_window_names_both_ends() -> None:
    """A window reads as `between … and …`, in UTC."""
    window = Window(from_at=NOW_AT - DAY_US, until_at=NOW_AT)
    assert formats.between(window) == "2026-11-20 08:00 and 2026-11-21 08:00 UTC"


@pytest.mark.parametrize(
    ("amounts", "texts"),
    [
        ([amount(0.0), amount(0.004), amount(0.42)], ["0.00", "0.00", "0.42"]),
        ([amount(0.0, signed=True), amount(0.01, signed=True), amount(-121.3, signed=True)], ["0", "0", "-121"]),
        ([amount(3.21), amount(None), amount(0.4)], ["3.2", UNKNOWN, "0.4"]),
        (
            [amount_interval(-0.2, 3.1, signed=True), amount_interval(-0.31, 0.0, signed=True)],
            ["-0.2 … +3.1", "-0.3 … 0.0"],
        ),
        ([amount_interval(12.0, None), amount_interval(None, None)], [f"12 … {UNKNOWN}", UNKNOWN]),
        ([amount_percent(59.7), amount_percent(-0.04)], ["+59.7", "0.0"]),
        ([amount_percent(59.7), amount_percent(-340.2)], ["+60", "-340"]),
        ([amount_dollars(0.29), amount_dollars(12.5), amount_dollars(None)], ["0.29", "12.50", UNKNOWN]),
        ([amount_dollars(0.006), amount_dollars(0.0005)], ["0.0060", "0.0005"]),
        ([amount_dollars(0.29), amount_dollars(0.000057), amount_dollars(0.0)], ["0.290000", "0.000057", "0.000000"]),
        ([amount(math.nan), amount(math.inf)], [UNKNOWN, UNKNOWN]),
        ([Amount((1.23, 0.41), "{} ± {}", signed=1)], ["+1.2 ± 0.4"]),
    ],
)
def test_a_column_has_one_format(amounts: list[Amount], texts: list[str]) -> None:
    """All numbers of a column have as many decimals as its largest one deserves, money as many as the smallest one."""
    assert [one.text(common_decimals(amounts)) for one in amounts] == texts
