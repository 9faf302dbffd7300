"""Rows of different lengths in one array, their order, and ranks compared with SciPy's."""

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from isochrone_collector.analysis.stats.arrays import (
    Reals,
    grouped,
    mean_ranks,
    medians_within,
    order_within,
    ragged,
)


def test_portions_hold_every_row_once() -> None:
    """Rows of one length come as matrices, copies that may be changed, with the places of the rows, but empty ones."""
    rows = ragged([np.array([1.0, 2.0]), np.empty(0), np.array([3.0]), np.array([4.0, 5.0])])
    found = {
        int(place): list(row)
        for places, matrix in rows.portions(cells=2)
        for place, row in zip(places, matrix, strict=True)
    }
    assert found == {0: [1.0, 2.0], 2: [3.0], 3: [4.0, 5.0]}
    alone = ragged([np.array([2.0, 1.0])])
    [(places, matrix)] = alone.portions(cells=1)
    matrix.sort()
    assert (places.tolist(), matrix.tolist(), alone.values.tolist()) == ([0], [[1.0, 2.0]], [2.0, 1.0])
    for empty in (ragged([np.empty(0)]), grouped(np.empty(0), np.empty(0, np.int64), rows=0)):
        assert list(empty.portions(cells=1)) == []


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
    """Each run is sorted, NaN last, and no row leaves its run."""
    order = order_within(np.array(key), np.array(lengths, dtype=np.int64))
    runs = np.split(np.array(key), np.cumsum(lengths)[:-1]) if lengths else []
    expected = np.concatenate([np.empty(0), *map(np.sort, runs)])
    assert np.array(key)[order].tolist() == pytest.approx(expected.tolist(), nan_ok=True)
    assert sorted(order.tolist()) == list(range(len(key)))


def test_medians_within_runs_are_those_of_each_run() -> None:
    """Of an even number of values it is the mean of the two in the middle."""
    values, lengths = np.array([5.0, 1.0, 3.0, 2.0, 8.0, 4.0]), np.array([3, 1, 2])
    assert medians_within(values, lengths).tolist() == [3.0, 2.0, 6.0]


@given(
    arrays.arrays(
        np.float64,
        arrays.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=12),
        elements=st.integers(-3, 3).map(float) | st.floats(-1e9, 1e9),
    )
)
def test_ranks_are_those_of_scipy(rows: Reals) -> None:
    """Each row is ranked alone, and ties share the mean of their ranks."""
    assert np.array_equal(mean_ranks(rows), scipy.stats.rankdata(rows, axis=1) if rows.size else np.zeros(rows.shape))
