"""The state of a series between detections."""

from dataclasses import replace

import numpy as np

from isochrone_collector.analysis.drift import MAX_ROUNDS, SeriesState
from testdata.series import SeriesModel

NATURE = SeriesModel(sigma=0.1)


def test_rounds_may_come_in_any_order_and_again() -> None:
    """The state does not depend on the order of rounds; the newer median of a round counts."""
    rounds = NATURE.rounds(3)
    values = NATURE.values(rounds, 1)
    straight, crooked = SeriesState(), SeriesState()
    straight.add(rounds, values)
    crooked.add(rounds[400:], np.full(len(rounds) - 400, 7.0))
    crooked.add(rounds[:500], values[:500])
    crooked.add(rounds[400:], values[400:])
    assert (crooked.rounds == straight.rounds).all()
    assert (crooked.values == straight.values).all()


def test_memory_is_bounded() -> None:
    """Only the newest rounds are kept, up to the maximum."""
    nature = replace(NATURE, every_s=60)
    rounds = nature.rounds(12)
    state = SeriesState()
    for begin in range(0, len(rounds), 500):
        state.add(rounds[begin : begin + 500], nature.values(rounds[begin : begin + 500], begin))
    assert len(state.rounds) == MAX_ROUNDS
    assert state.rounds[-1] == rounds[-1]
    assert len(state._hours) <= 8 * 24


def test_what_is_no_value_is_left_out() -> None:
    """Rounds without a value, or with one not above zero, are skipped."""
    rounds = NATURE.rounds(1)[:5]
    state = SeriesState()
    state.add(rounds, np.array([1.0, np.nan, 0.0, -2.0, np.inf]))
    assert state.rounds.tolist() == [int(rounds[0])]
    state.add(rounds[1:3], np.array([np.nan, np.nan]))
    assert len(state.rounds) == 1


def test_rounds_are_fresh_once() -> None:
    """After a detection only a later round is new; a late earlier one is not."""
    rounds = NATURE.rounds(1)
    values = NATURE.values(rounds, 2)
    state = SeriesState()
    seen = [state.has_new_rounds]
    for begin, end in ((0, 100), (50, 60), (100, 101)):
        state.add(rounds[begin:end], values[begin:end])
        seen.append(state.has_new_rounds)
        state.detect()
    assert seen == [False, True, False, True]


def test_changes_found_are_known() -> None:
    """A detected change is remembered for later detections, beside the earlier ones."""
    rounds = NATURE.rounds(4)
    values = NATURE.values(rounds, 3)
    values[-12:] *= 2
    state = SeriesState(changes=[int(rounds[5])])
    state.add(rounds, values)
    [change] = state.detect()
    assert state.changes == (int(rounds[5]), change.changed_at)
    assert state.every_us == NATURE.every_s * 1_000_000


def test_a_timeout_below_the_level_is_no_value() -> None:
    """A censored value counts only if its limit exceeds the level since the newest change."""
    rounds = NATURE.rounds(1)
    state = SeriesState(changes=[int(rounds[50])])
    state.add(rounds[:100], np.repeat([400.0, 15_000.0], 50))
    censored = np.array([True, True, False])
    state.add(rounds[100:103], np.array([10_000.0, 60_000.0, 10_000.0]), censored)
    assert state.rounds[100:].tolist() == rounds[101:103].tolist()
    assert state.values[100:].tolist() == [60_000.0, 10_000.0]


def test_of_timeouts_alone_nothing_is_known() -> None:
    """Without any uncensored value there is no level for a limit to exceed."""
    rounds = NATURE.rounds(1)[:3]
    state = SeriesState()
    state.add(rounds, np.array([1.0, 2.0, 3.0]), np.array([True, True, True]))
    assert not state.has_new_rounds
    state.add(rounds, np.array([1.0, 2.0, 3.0]), np.array([True, False, True]))
    assert state.values.tolist() == [2.0, 3.0]


def test_a_slow_target_that_cannot_be_reached_has_not_become_fast() -> None:
    """Timeouts at 10 s are no change in a series around 15 s, and a rise in one around 0.4 s."""
    for level, found in ((15_000.0, 0), (400.0, 1)):
        rounds = NATURE.rounds(4)
        values = level / 500_000 * NATURE.values(rounds, 3)
        values[-12:] = 10_000.0
        censored = np.zeros(len(rounds), dtype=bool)
        censored[-12:] = True
        state = SeriesState()
        state.add(rounds, values, censored)
        assert len(state.detect()) == found
