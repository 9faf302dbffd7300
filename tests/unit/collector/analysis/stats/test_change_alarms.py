"""The division of a stretch in two."""

import numpy as np
import pytest

from isochrone_collector.analysis.stats.arrays import Reals
from isochrone_collector.analysis.stats.change_alarms import (
    PERMUTATIONS,
    _deviation,
    _scores,
    alarms,
    likeliest,
    significance,
)


def test_scores_are_the_energy_distance() -> None:
    """The cumulative sums give what the definition gives, pair by pair."""
    values = np.random.default_rng(1).normal(size=17)
    scores = _scores(np.abs(np.subtract.outer(values, values)), 3)
    n = len(values)
    for place in range(3, n - 2):
        x, y = values[:place], values[place:]
        across = 2 * np.abs(np.subtract.outer(x, y)).mean()
        within = np.abs(np.subtract.outer(x, x)).mean() + np.abs(np.subtract.outer(y, y)).mean()
        assert scores[place - 3] == pytest.approx(place * (n - place) / n * (across - within))


def test_a_step_is_found_where_it_is() -> None:
    """Two levels are divided between them; noise is below a twentieth that often, and 1 once it cannot be small."""
    values = np.random.default_rng(2).normal(size=60)
    values[41:] += 8
    assert likeliest(values, least=6) == 41
    assert significance(values, least=6) == 1 / (1 + PERMUTATIONS)
    chance = np.random.default_rng(3)
    found = [significance(chance.normal(size=24), least=6, enough=0.05) for _ in range(60)]
    assert sum(p_value <= 0.05 for p_value in found) <= 8
    values = np.random.default_rng(4).normal(size=40)
    assert 0.01 < significance(values, least=6) < 1
    assert significance(values, least=6, enough=0.01) == 1


def slow_noise(chance: np.random.Generator, n: int, memory: float) -> Reals:
    """Return stationary noise of variance 1 with that correlation of neighbours."""
    noise = chance.normal(size=n)
    for place in range(1, n):
        noise[place] = memory * noise[place - 1] + np.sqrt(1 - memory**2) * noise[place]
    return np.asarray(noise)


def test_a_young_level_of_slow_noise_is_uncertain() -> None:
    """A window must deviate further from a level of 36 rounds than from one of 1000, if the noise is slow."""
    values = slow_noise(np.random.default_rng(8), 1012, 0.95)

    def least(begin: int) -> float:
        for shift in np.arange(2, 30, 0.1):
            values[1000:] = np.median(values[begin:1000]) + shift
            if alarms(values, n_new=1, begin=begin, looks_per_month=1000, min_shift=0.1, is_stationary=True):
                return float(shift)
        return np.inf

    assert 1.2 * least(0) < least(964) < np.inf


@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_memory_leaves_fewer_degrees_of_freedom(memory: float) -> None:
    """The standard deviation varies from series to series as that of as many independent values."""
    chance = np.random.default_rng(6)
    found = np.array([_deviation(slow_noise(chance, 500, memory)) for _ in range(200)])
    freedom = 2 / np.var(found[:, 0] ** 2, ddof=1)
    assert found[:, 0].mean() == pytest.approx(1, abs=0.05)
    assert np.median(found[:, 1]) == pytest.approx(freedom, rel=0.4)


def test_too_few_values_are_not_divided() -> None:
    """Both parts need their least number of values."""
    assert likeliest(np.arange(11.0), least=6) is None
    assert likeliest(np.arange(12.0), least=6) == 6
