"""Many comparisons: q-values."""

import numpy as np
import pytest
from scipy.stats import false_discovery_control

from isochrone_collector.analysis.stats.discovery import q_values


@pytest.mark.parametrize("n", [1, 2, 15, 300])
def test_q_values_are_those_of_benjamini_and_hochberg(n: int) -> None:
    """They agree with the reference implementation, in the order of the p-values given."""
    p_values = np.random.default_rng(n).beta(0.5, 3.0, n)
    assert q_values(p_values) == pytest.approx(false_discovery_control(p_values))


def test_one_comparison_needs_no_correction() -> None:
    """Alone, a p-value is its own q-value."""
    assert q_values(np.array([0.03])).tolist() == [0.03]


def test_worked_out_by_hand() -> None:
    """The procedure's own example: of fifteen tests, those with a q-value up to 5 % are the first four."""
    p_values = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344]
    p_values += [0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0]
    assert (q_values(np.array(p_values)) <= 0.05).sum() == 4


def test_what_was_not_tested_does_not_count() -> None:
    """A pair without a p-value has no q-value, and costs the others nothing."""
    found = q_values(np.array([np.nan, 0.02, np.nan, 0.04]))
    assert np.isnan(found).tolist() == [True, False, True, False]
    assert found[[1, 3]].tolist() == [0.04, 0.04]
    assert q_values(np.array([])).tolist() == []
