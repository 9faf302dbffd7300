"""Daily seasonality."""

import numpy as np
import pytest

from isochrone_collector.analysis.drift import NO_SEASONALITY, estimate_seasonality
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import DAY_US
from testdata.series import START_AT

HOURS = START_AT + np.arange(7 * 24, dtype=np.int64) * HOUR_US
SWING = 0.3 * np.sin((HOURS % DAY_US) / DAY_US * 2 * np.pi)


def test_the_rhythm_of_a_week_is_found() -> None:
    """The pattern common to all days is the seasonality, whatever the level of each day."""
    levels = 13.0 + SWING + np.repeat([0, 0.5, 0.5, 0, -0.2, 0, 0], 24)
    assert estimate_seasonality(HOURS, levels).at(HOURS + HOUR_US // 2) == pytest.approx(SWING, abs=0.02)


def test_an_odd_day_is_outvoted() -> None:
    """An outage on one day does not become part of the seasonality."""
    levels = 13.0 + SWING
    levels[50:60] += 4
    assert estimate_seasonality(HOURS, levels).at(HOURS + HOUR_US // 2) == pytest.approx(SWING, abs=0.05)


@pytest.mark.parametrize("hours", [0, 24, 48, 65])
def test_two_days_are_no_rhythm(hours: int) -> None:
    """There is no seasonality before three days have most of their hours."""
    assert estimate_seasonality(HOURS[:hours], 13.0 + SWING[:hours]) is NO_SEASONALITY


def test_there_are_no_steps_between_hours() -> None:
    """The seasonality is interpolated between the middles of two hours, across midnight too."""
    seasonality = estimate_seasonality(HOURS, SWING)
    minutes = START_AT + np.arange(2 * 24 * 60, dtype=np.int64) * (HOUR_US // 60)
    assert np.abs(np.diff(seasonality.at(minutes))).max() < 0.3 * 2 * np.pi / 24 / 60 * 1.5
