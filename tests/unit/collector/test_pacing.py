"""A chore that reads much leaves most of the time to others, and comes to its end all the same."""

from isochrone_collector.pacing import Pace
from isochrone_wire.model import SECOND_US


def test_most_of_the_time_is_left_to_others() -> None:
    """After each portion it rests four times as long as that took."""
    pace = Pace(at_once=8, rests=4.0, at_most_us=100 * SECOND_US)
    assert [pace.rest_us(took_us) for took_us in (100_000, 1, 0)] == [400_000, 4, 0]


def test_portions_get_as_large_as_is_quick() -> None:
    """Quick portions grow and slow ones shrink, down to one; those in between stay."""
    pace = Pace(at_once=8, rests=4.0, at_most_us=100 * SECOND_US)
    pace.rest_us(10_000)
    assert pace.at_once == 16
    pace.rest_us(100_000)
    assert pace.at_once == 16
    for _ in range(10):
        pace.rest_us(SECOND_US)
    assert pace.at_once == 1


def test_it_does_not_rest_for_ever() -> None:
    """All rests together are bounded, or work that takes longer than it comes again would never be done."""
    pace = Pace(at_once=8, rests=4.0, at_most_us=10 * SECOND_US)
    assert [pace.rest_us(SECOND_US) // SECOND_US for _ in range(5)] == [4, 4, 2, 0, 0]


def test_a_clock_set_back_is_no_rest() -> None:
    """A portion that seems to have taken less than nothing is followed by no rest, and uses up none."""
    pace = Pace(at_once=8, rests=4.0, at_most_us=SECOND_US)
    assert pace.rest_us(-5 * SECOND_US) == 0
    assert pace.rest_us(SECOND_US) == SECOND_US
