"""Ranks compared with SciPy's."""

import numpy as np
import scipy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from isochrone_collector.analysis.stats.arrays import Reals, mean_ranks


@given(
    arrays.arrays(
        np.float64,
        arrays.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=12),
        elements=st.integers(-3, 3).map(float) | st.floats(-1e9, 1e9),
    )
)
def test_ranks_are_those_of_scipy(rows: Reals) -> None:
    """Each row is ranked on its own, and ties share the mean of their ranks."""
    assert np.array_equal(mean_ranks(rows), scipy.stats.rankdata(rows, axis=1) if rows.size else np.zeros(rows.shape))
