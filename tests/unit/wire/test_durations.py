"""Durations are exact, and what is not one is refused in a sentence."""

import pytest

from isochrone_wire import durations


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1us", 1),
        ("500ms", 500_000),
        ("30s", 30_000_000),
        ("1.5s", 1_500_000),
        ("0.1s", 100_000),
        ("5m", 300_000_000),
        ("1h", 3_600_000_000),
        ("1d", 86_400_000_000),
    ],
)
def test_written_durations(text: str, us: int) -> None:
    """Each unit is parsed exactly, without rounding."""
    assert durations.parse_us(text) == us


@pytest.mark.parametrize("bad", [60, 1.5, "60", "", "s", "-1s", "1 s", "1S", "1h30m", "1e3s", "٣s", None, True, ["1s"]])
def test_text_that_is_not_a_duration(bad: object) -> None:
    """A number without a unit, or any other value, is a ValueError with a message for the user."""
    with pytest.raises(ValueError, match=r"no unit|not a duration"):
        durations.parse_us(bad)


@pytest.mark.parametrize(("us", "text"), [(60_000_000, "1m"), (90_000_000, "90s"), (1_500_000, "1500ms"), (1, "1us")])
def test_durations_are_written_exactly(us: int, text: str) -> None:
    """A duration is written with the largest exact unit, and parsing returns the same value."""
    assert durations.write(us) == text
    assert durations.parse_us(text) == us
