"""False-discovery rates: the procedure, and a family whose verdicts do not depend on the question."""

import numpy as np
import pytest

from isochrone_collector.analysis.differential.decision import family_rates, q_values


@pytest.mark.parametrize("n", [1, 2, 15, 300])
def test_q_values_are_those_of_benjamini_and_hochberg(n: int) -> None:
    """They are min over j >= i of m·p(j)/j, at most 1, in the order of the p-values given."""
    p_values = np.random.default_rng(n).beta(0.5, 3.0, n)
    ascending = np.sort(p_values)
    by_definition = [
        min(1.0, *(n * ascending[ascending >= p] / (np.flatnonzero(ascending >= p) + 1))) for p in p_values
    ]
    assert q_values(p_values) == pytest.approx(by_definition, rel=1e-12)


def test_one_comparison_needs_no_correction() -> None:
    """A single p-value is its own q-value."""
    assert q_values(np.array([0.03])).tolist() == [0.03]


def test_q_values_worked_out_by_hand() -> None:
    """The procedure's own example: of fifteen tests, those with a q-value up to 5 % are the first four."""
    p_values = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344]
    p_values += [0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0]
    assert (q_values(np.array(p_values)) <= 0.05).sum() == 4


def test_comparisons_without_a_p_value_do_not_count() -> None:
    """A pair without a p-value has no q-value and does not count among the comparisons."""
    found = q_values(np.array([np.nan, 0.02, np.nan, 0.04]))
    assert np.isnan(found).tolist() == [True, False, True, False]
    assert found[[1, 3]].tolist() == [0.04, 0.04]
    assert q_values(np.array([])).tolist() == []


def test_a_question_about_some_members_has_the_rates_of_all() -> None:
    """The rate of a member depends on the family, not on the comparisons beside it that are outside of the family."""
    p_values = np.array([0.001, 0.02, 0.2, 0.0005, 0.9])
    members = np.array([True, True, True, False, False])
    found = family_rates(p_values, is_member=members)
    assert found.q_values[:3].tolist() == q_values(p_values[:3]).tolist()
    assert found.comparisons == 3


def test_a_comparison_outside_of_the_family_is_one_more_for_itself_only() -> None:
    """It gets the rate that it would have as an additional member, however many others are outside."""
    p_values = np.array([0.001, 0.02, 0.2, 0.0005, 0.9, np.nan])
    members = np.array([True, True, True, False, False, False])
    found = family_rates(p_values, is_member=members).q_values
    assert found[3] == pytest.approx(q_values(p_values[:4])[3])
    assert found[4] == pytest.approx(q_values(p_values[[0, 1, 2, 4]])[3])
    assert np.isnan(found[5])


def test_a_family_that_was_not_read_has_the_largest_rate_possible() -> None:
    """Each p-value is multiplied by the number of comparisons, which is never less than what the procedure gives."""
    p_values = np.array([0.0001, 0.001, 0.04, np.nan])
    everything = np.ones(4, dtype=np.bool_)
    found = family_rates(p_values, is_member=everything, size=30)
    assert found.q_values[:3] == pytest.approx([0.003, 0.03, 1.0])
    assert found.comparisons == 30
    filled = np.concatenate([p_values[:3], np.full(27, 0.5)])
    assert (found.q_values[:3] >= family_rates(filled, is_member=np.ones(30, dtype=np.bool_)).q_values[:3]).all()
