"""Lasting changes against series whose truth is known; the seeds are fixed, so that the figures are too.

A target has six series here: two metrics from three regions. What is claimed in docs/alerts.md is measured here.
"""

from dataclasses import replace

import numpy as np
import pytest

from isochrone_collector.analysis.drift import (
    MAX_ROUNDS,
    MIN_ROUNDS,
    MIN_ROUNDS_AFTER,
    Change,
    Series,
    SeriesState,
    changes,
    estimate_seasonality,
    estimate_weekly,
    usual_at,
)
from isochrone_collector.analysis.stats.arrays import Integers, Reals
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import DAY_US, MINUTE_US
from testdata.series import START_AT, SeriesModel

SERIES_OF_A_TARGET = 6
HISTORY_DAYS = 7
QUIET = SeriesModel(sigma=0.1)


def watched(rounds: Integers, values: Reals, *, at_once: int, state: SeriesState | None = None) -> list[Change]:
    state = state or SeriesState()
    found: list[Change] = []
    for begin in range(0, len(rounds), at_once):
        state.add(rounds[begin : begin + at_once], values[begin : begin + at_once])
        found += state.detect()
    return found


def after_a_week(nature: SeriesModel, more: int, seed: int) -> tuple[SeriesState, Integers, Reals]:
    rounds = nature.rounds(HISTORY_DAYS + more * nature.every_s / 86_400)
    values = nature.values(rounds, seed)
    known = len(rounds) - more
    state = SeriesState()
    state.add(rounds[:known], values[:known])
    state.detect()
    return state, rounds[known:], values[known:]


def rounds_until_found(nature: SeriesModel, seed: int, *, factor: float, within: int, step: int = 1) -> int | None:
    """Return after how many rounds a change by `factor` is detected; `None` if not within the given number."""
    state, rounds, values = after_a_week(nature, within, seed)
    for begin in range(0, within, step):
        state.add(rounds[begin : begin + step], factor * values[begin : begin + step])
        if state.detect():
            return begin + step
    return None


@pytest.mark.parametrize(
    ("nature", "days"),
    [
        (QUIET, 30),
        (replace(QUIET, sigma=0.45, daily_amplitude=0.0), 30),
        (replace(QUIET, sigma=0.1, autocorrelation=0.8), 30),
        (replace(QUIET, sigma=0.3, autocorrelation=0.8), 30),
        (replace(QUIET, every_s=60, sigma=0.15), 10),
    ],
    ids=str,
)
def test_a_target_raises_at_most_one_false_alarm_a_month(nature: SeriesModel, days: int) -> None:
    """Six series without any change, from their first round on: at most one alarm in thirty days."""
    rounds = nature.rounds(days)
    alarms = [watched(rounds, nature.values(rounds, seed), at_once=96) for seed in range(SERIES_OF_A_TARGET)]
    assert sum(map(len, alarms)) <= 1


@pytest.mark.parametrize(
    ("sigma", "autocorrelation", "within"),
    [(0.1, 0.0, 12), (0.13, 0.0, 12), (0.05, 0.8, 12), (0.2, 0.0, 36), (0.3, 0.0, 96), (0.1, 0.8, 96)],
)
def test_a_rise_of_30_percent_is_found(sigma: float, autocorrelation: float, within: int) -> None:
    """+30 % is found with a chance of nine in ten: within twelve rounds where the noise allows it, later elsewhere."""
    nature = SeriesModel(sigma=sigma, autocorrelation=autocorrelation)
    step = max(1, within // 12)
    found = [rounds_until_found(nature, seed, factor=1.3, within=within, step=step) is not None for seed in range(10)]
    assert np.mean(found) >= 0.9


@pytest.mark.parametrize(("sigma", "autocorrelation"), [(0.3, 0.0), (0.15, 0.8)])
def test_where_twelve_rounds_are_not_enough(sigma: float, autocorrelation: float) -> None:
    """In more noise twelve rounds hardly ever give +30 % away; the documentation must not promise it."""
    nature = SeriesModel(sigma=sigma, autocorrelation=autocorrelation)
    found = [rounds_until_found(nature, seed, factor=1.3, within=12, step=6) is not None for seed in range(10)]
    assert np.mean(found) <= 0.3


@pytest.mark.parametrize("factor", [1.3, 1 / 1.3, 3.0], ids=lambda factor: f"{factor:.2f}")
def test_a_change_tells_what_it_is(factor: float) -> None:
    """Its beginning is right to within three rounds, and its size to within a tenth, up and down."""
    state, rounds, values = after_a_week(QUIET, 24, seed=3)
    state.add(rounds, factor * values)
    [change] = state.detect()
    assert abs(change.changed_at - int(rounds[0])) <= 3 * QUIET.every_s * 1_000_000
    assert change.after / change.before == pytest.approx(factor, rel=0.1)
    assert change.n_after >= MIN_ROUNDS_AFTER
    assert change.p_value <= 0.01


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("factor", [3.0, 20.0])
def test_spikes_and_short_bursts_are_no_change(factor: float, length: int) -> None:
    """Up to three outliers in a row are not a lasting change, in whatever batches they arrive."""
    for seed in range(4):
        state, rounds, values = after_a_week(QUIET, 30, seed)
        values[8 : 8 + length] *= factor
        assert watched(rounds, values, at_once=1, state=state) == []


def test_back_to_normal_is_a_second_change() -> None:
    """Back to normal is a second change; a known change is not found again by the next collector."""
    state, rounds, values = after_a_week(QUIET, 120, seed=5)
    values[:40] *= 1.5
    found = watched(rounds, values, at_once=3, state=state)
    assert [change.after / change.before for change in found] == pytest.approx([1.5, 1 / 1.5], rel=0.15)
    assert found[1].changed_at == pytest.approx(int(rounds[40]), abs=3 * QUIET.every_s * 1_000_000)
    rounds = QUIET.rounds(2)
    values = QUIET.values(rounds, 2)
    values[520:] *= 1.5
    series = Series(rounds=rounds, values=values, n_new=56)
    [change] = changes(series)
    assert changes(series) == (change,)
    assert changes(replace(series, changes=(change.changed_at,))) == ()


def test_a_short_series_has_no_changes() -> None:
    """With fewer than sixty rounds nothing is detected; sixty quiet ones and a step of half are enough."""
    nature = replace(QUIET, sigma=0.05, daily_amplitude=0.0)
    rounds = nature.rounds(1)[: MIN_ROUNDS + 12]
    values = nature.values(rounds, 4)
    values[MIN_ROUNDS:] *= 2
    short = slice(20, None)
    assert (
        changes(Series(rounds=rounds[short][: MIN_ROUNDS - 1], values=values[short][: MIN_ROUNDS - 1], n_new=30)) == ()
    )
    assert len(changes(Series(rounds=rounds, values=values, n_new=12))) == 1


def test_a_slope_is_no_step() -> None:
    """A steady growth is no step; without noise, a step of more than a tenth is a change, a smaller one is not."""
    nature = replace(QUIET, sigma=0.03, daily_amplitude=0.0)
    rounds = nature.rounds(1)
    values = nature.values(rounds, 6) * np.exp(np.linspace(0, 0.6, len(rounds)))
    assert watched(rounds, values, at_once=12) == []
    rounds = QUIET.rounds(1)
    flat = np.full(len(rounds), 1000.0)
    for factor, expected in ((1.05, 0), (1.5, 1)):
        stepped = flat * np.where(np.arange(len(rounds)) < 200, 1.0, factor)
        assert len(changes(Series(rounds=rounds, values=stepped, n_new=88))) == expected


HOURS = START_AT + np.arange(7 * 24, dtype=np.int64) * HOUR_US
SWING = 0.3 * np.sin((HOURS % DAY_US) / DAY_US * 2 * np.pi)


@pytest.mark.parametrize(("odd", "abs"), [(0, 0.02), (4, 0.05)])
def test_the_pattern_of_a_week_is_found(odd: float, abs: float) -> None:  # noqa: A002  # as pytest names it
    """The seasonality is what all days share, interpolated between middles of hours, across midnight too."""
    levels = 13.0 + SWING + np.repeat([0, 0.5, 0.5, 0, -0.2, 0, 0], 24)
    levels[50:60] += odd
    seasonality = estimate_seasonality(HOURS, levels)
    assert seasonality is not None
    assert usual_at(seasonality, HOURS + HOUR_US // 2) == pytest.approx(SWING, abs=abs)
    minutes = START_AT + np.arange(2 * 24 * 60, dtype=np.int64) * (HOUR_US // 60)
    assert np.abs(np.diff(usual_at(seasonality, minutes))).max() < 0.3 * 2 * np.pi / 24 / 60 * 2


@pytest.mark.parametrize("offset_minutes", [0, 330])
def test_the_weekly_cycle_is_no_change_from_the_fourth_week_on(offset_minutes: int) -> None:
    """Weekends of -25 % may be weekly for three weeks and are none afterwards, in any zone; lasting ones are found."""
    nature = replace(QUIET, sigma=0.08)
    rounds = nature.rounds(34)
    days = (rounds + offset_minutes * MINUTE_US) // DAY_US
    values = nature.values(rounds, 5) * np.where(days % 7 >= 5, 0.75, 1.0)
    values[-72:] *= 1.4
    found = watched(rounds, values, at_once=96)
    known_at = START_AT + 21 * DAY_US
    assert sum(change.may_be_weekly for change in found) >= 4
    assert all(change.may_be_weekly == (change.changed_at < known_at) for change in found)
    [late] = [change for change in found if change.changed_at >= known_at]
    assert late.after / late.before == pytest.approx(1.4, rel=0.1)


@pytest.mark.parametrize("weeks", [2, 3])
def test_a_weekly_cycle_is_what_weeks_agree_on(weeks: int) -> None:
    """It takes three weeks. Differences that the weeks do not share are shrunken, an odd day in one week is ignored."""
    hours = START_AT + np.arange(weeks * 168, dtype=np.int64) * HOUR_US
    cycle = np.where(hours // DAY_US % 7 >= 5, -0.3, 0.0)
    noise = np.random.default_rng(9).normal(0, 0.05, len(hours))
    levels = 13.0 + cycle + noise
    levels[40:60] += 2.0
    weekly = estimate_weekly(hours, levels, np.zeros(24))
    if weeks < 3:
        assert weekly is None
    else:
        assert weekly is not None
        errors = usual_at(weekly, hours[:168] + HOUR_US // 2) - cycle[:168]
        quiet = np.flatnonzero(cycle[:168] == 0)
        assert np.sqrt(np.mean(errors**2)) < 0.05
        assert np.mean(np.abs(errors[quiet]) < 0.01) > 0.4


@pytest.mark.parametrize("hours", [0, 24, 48, 65])
def test_two_days_are_no_rhythm(hours: int) -> None:
    """There is no seasonality before three days have most of their hours."""
    assert estimate_seasonality(HOURS[:hours], 13.0 + SWING[:hours]) is None


def test_rounds_may_come_in_any_order_and_again() -> None:
    """The state does not depend on the order of rounds; the newer median of a round counts."""
    rounds = QUIET.rounds(3)
    values = QUIET.values(rounds, 1)
    straight, crooked = SeriesState(), SeriesState()
    straight.add(rounds, values)
    crooked.add(rounds[400:], np.full(len(rounds) - 400, 7.0))
    crooked.add(rounds[:500], values[:500])
    crooked.add(rounds[400:], values[400:])
    assert (crooked.rounds == straight.rounds).all()
    assert (crooked.values == straight.values).all()


@pytest.mark.parametrize("seed", range(6))
def test_limits_may_come_in_any_order(seed: int) -> None:
    """Whether a timeout near the level counts depends on all rounds, not on those that came before it."""
    rng = np.random.default_rng(seed)
    rounds = QUIET.rounds(3)
    censored = rng.random(len(rounds)) < 0.3
    values = 10_000 * np.exp(rng.normal(0, np.where(censored, 0.05, 0.4)))
    straight, crooked = SeriesState([int(rounds[300])]), SeriesState([int(rounds[300])])
    straight.add(rounds, values, censored)
    # An early median of some rounds was of the other kind.
    crooked.add(rounds[:100], np.full(100, 10_000.0), ~censored[:100])
    for part in map(np.sort, np.array_split(rng.permutation(len(rounds)), 30)):
        crooked.add(rounds[part], values[part], censored[part])
    for name in ("rounds", "values", "_hours", "_levels"):
        assert getattr(crooked, name).tolist() == getattr(straight, name).tolist()
    assert 0 < np.isin(rounds[censored], straight.rounds).mean() < 1


def test_the_end_of_timeouts_is_a_change() -> None:
    """Timeouts above the level before count while nothing else is measured, so that the return is found."""
    rounds = QUIET.rounds(4)
    values, censored = QUIET.values(rounds, 3), np.zeros(len(rounds), dtype=bool)
    values[-40:-20], censored[-40:-20] = 60e6, True
    state, found = SeriesState(), list[Change]()
    for begin, end in ((0, -40), (-40, -20), (-20, None)):
        state.add(rounds[begin:end], values[begin:end], censored[begin:end])
        found += state.detect()
    assert [change.after > change.before for change in found] == [True, False]


def test_memory_is_bounded() -> None:
    """The newest rounds are kept up to the maximum, without those that have no value above zero."""
    nature = replace(QUIET, every_s=60)
    rounds = nature.rounds(12)
    state = SeriesState()
    for begin in range(0, len(rounds), 500):
        state.add(rounds[begin : begin + 500], nature.values(rounds[begin : begin + 500], begin))
    assert len(state.rounds) == MAX_ROUNDS
    assert state.rounds[-1] == rounds[-1]
    assert len(state._hours) <= 29 * 24
    rounds = QUIET.rounds(1)[:5]
    state = SeriesState()
    state.add(rounds, np.array([1.0, np.nan, 0.0, -2.0, np.inf]))
    assert state.rounds.tolist() == [int(rounds[0])]
    state.add(rounds[1:3], np.array([np.nan, np.nan]))
    assert len(state.rounds) == 1


def test_rounds_are_fresh_once() -> None:
    """After a detection only a later round is new; a late earlier one is not."""
    rounds = QUIET.rounds(1)
    values = QUIET.values(rounds, 2)
    state = SeriesState()
    seen = [state.has_new_rounds]
    for begin, end in ((0, 100), (50, 60), (100, 101)):
        state.add(rounds[begin:end], values[begin:end])
        seen.append(state.has_new_rounds)
        state.detect()
    assert seen == [False, True, False, True]


def test_changes_found_are_known() -> None:
    """A detected change is remembered for later detections, beside the earlier ones."""
    rounds = QUIET.rounds(4)
    values = QUIET.values(rounds, 3)
    values[-12:] *= 2
    state = SeriesState(changes=[int(rounds[5])])
    state.add(rounds, values)
    [change] = state.detect()
    assert state.changes == (int(rounds[5]), change.changed_at)
    assert state.every_us == QUIET.every_s * 1_000_000


def test_a_timeout_below_the_level_is_no_value() -> None:
    """A censored value counts only if its limit exceeds the level since the newest change, if there is one."""
    rounds = QUIET.rounds(1)
    state = SeriesState(changes=[int(rounds[50])])
    state.add(rounds[:100], np.repeat([400.0, 15_000.0], 50))
    censored = np.array([True, True, False])
    state.add(rounds[100:103], np.array([10_000.0, 60_000.0, 10_000.0]), censored)
    assert state.rounds[100:].tolist() == rounds[101:103].tolist()
    assert state.values[100:].tolist() == [60_000.0, 10_000.0]
    unknown = SeriesState()
    unknown.add(rounds[:3], np.array([1.0, 2.0, 3.0]), np.array([True, True, True]))
    assert not unknown.has_new_rounds
    unknown.add(rounds[:3], np.array([1.0, 2.0, 3.0]), np.array([True, False, True]))
    assert unknown.values.tolist() == [2.0, 3.0]


def test_a_slow_target_that_cannot_be_reached_has_not_become_fast() -> None:
    """Timeouts at 10 s are no change in a series around 15 s, and a rise in one around 0.4 s."""
    for level, found in ((15_000.0, 0), (400.0, 1)):
        rounds = QUIET.rounds(4)
        values = level / 500_000 * QUIET.values(rounds, 3)
        values[-12:] = 10_000.0
        censored = np.zeros(len(rounds), dtype=bool)
        censored[-12:] = True
        state = SeriesState()
        state.add(rounds, values, censored)
        assert len(state.detect()) == found
