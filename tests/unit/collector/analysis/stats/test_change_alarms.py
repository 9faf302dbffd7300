"""The division of a stretch in two."""

import numpy as np
import pytest

from isochrone_collector.analysis.stats.change_alarms import PERMUTATIONS, _scores, likeliest, significance


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
    """Two levels far apart are divided between them, with the smallest p-value there is."""
    values = np.random.default_rng(2).normal(size=60)
    values[41:] += 8
    assert likeliest(values, least=6) == 41
    assert significance(values, least=6) == 1 / (1 + PERMUTATIONS)


def test_noise_is_rarely_significant() -> None:
    """Where nothing changes the p-value is below a twentieth about as often as that."""
    chance = np.random.default_rng(3)
    found = [significance(chance.normal(size=24), least=6, enough=0.05) for _ in range(60)]
    assert sum(p_value <= 0.05 for p_value in found) <= 8


def test_hopeless_tests_end_early() -> None:
    """The p-value is 1 once it can no longer be small enough."""
    values = np.random.default_rng(4).normal(size=40)
    assert 0.01 < significance(values, least=6) < 1
    assert significance(values, least=6, enough=0.01) == 1


def test_too_few_values_are_not_divided() -> None:
    """Both parts need their least number of values."""
    assert likeliest(np.arange(11.0), least=6) is None
    assert likeliest(np.arange(12.0), least=6) == 6
