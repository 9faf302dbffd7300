"""Rows of different lengths, concatenated."""

import numpy as np

from isochrone_collector.analysis.stats.arrays import grouped, ragged


def test_no_rows_have_no_portions() -> None:
    """A window without a pair is no row at all: nothing to estimate, and no error."""
    assert list(grouped(np.empty(0), np.empty(0, np.int64), rows=0).portions(cells=10)) == []


def test_portions_hold_every_row_once() -> None:
    """Rows of one length come as matrices with the places of the rows; empty rows are left out."""
    rows = ragged([np.array([1.0, 2.0]), np.empty(0), np.array([3.0]), np.array([4.0, 5.0])])
    found = {
        int(place): list(row)
        for places, matrix in rows.portions(cells=2)
        for place, row in zip(places, matrix, strict=True)
    }
    assert found == {0: [1.0, 2.0], 2: [3.0], 3: [4.0, 5.0]}


def test_a_single_row_is_a_portion_of_its_own() -> None:
    """One series gives one matrix, a copy that may be changed, or nothing if it is empty."""
    rows = ragged([np.array([2.0, 1.0])])
    [(places, matrix)] = rows.portions(cells=1)
    matrix.sort()
    assert (places.tolist(), matrix.tolist(), rows.values.tolist()) == ([0], [[1.0, 2.0]], [2.0, 1.0])
    assert list(ragged([np.empty(0)]).portions(cells=1)) == []
