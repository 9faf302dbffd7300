"""Rows of columns in order."""

import numpy as np
import pytest

from isochrone_collector.analysis.stats.arrays import medians_within, order_within


@pytest.mark.parametrize(
    ("lengths", "key"),
    [
        ([], []),
        ([1, 1, 1], [3.0, 2.0, 1.0]),
        ([3], [3.0, 1.0, 2.0]),
        ([1, 3, 1, 2], [9.0, 3.0, np.nan, 2.0, -1.0, 5.0, 4.0]),
        ([2, 2], [2.0, 1.0, np.nan, np.nan]),
    ],
)
def test_rows_are_ordered_within_their_runs_alone(lengths: list[int], key: list[float]) -> None:
    """Every run is sorted for itself, what is not known last, and no row leaves its run."""
    order = order_within(np.array(key), np.array(lengths, dtype=np.int64))
    runs = np.split(np.array(key), np.cumsum(lengths)[:-1]) if lengths else []
    expected = np.concatenate([np.empty(0), *map(np.sort, runs)])
    assert np.array(key)[order].tolist() == pytest.approx(expected.tolist(), nan_ok=True)
    assert sorted(order.tolist()) == list(range(len(key)))


def test_medians_within_runs_are_those_of_each_run() -> None:
    """Of an even number of values it is the mean of the two in the middle."""
    values, lengths = np.array([5.0, 1.0, 3.0, 2.0, 8.0, 4.0]), np.array([3, 1, 2])
    assert medians_within(values, lengths).tolist() == [3.0, 2.0, 6.0]
