"""Distributions in logarithmic bins: common edges, every value once, and the same from samples and from histograms."""

from dataclasses import replace
from itertools import pairwise
from math import isclose

from hypothesis import given
from hypothesis import strategies as st

from isochrone_collector.analysis import histogram
from isochrone_collector.analysis.time_series import FEWEST_BINS, MAX_BINS, bins_of, packed_values
from testdata.columns import Row, probes

VALUES = st.lists(st.floats(min_value=1e-3, max_value=1e10), max_size=40)


def test_values_are_counted_per_target_and_region() -> None:
    """Values of probes that were cut off, and probes without a value, are in no bin."""
    rows = [
        Row(7, "us", 25, 300.0),
        Row(7, "us", 3, 100.0),
        Row(7, "us", 9, 100.0),
        Row(7, "us", 9, 900.0, censored=True),
        Row(7, "us", 9),
        Row(7, "sg", 8, 100.0),
        Row(8, "sg", 8),
    ]
    found = bins_of(packed_values(probes(rows)), most=MAX_BINS)
    assert {key: [one.n for one in bins] for key, bins in found.items()} == {(7, "us"): [2, 1], (7, "sg"): [1]}
    assert found[7, "us"][0] == replace(found[7, "sg"][0], n=2)
    assert packed_values(probes([])) == {}
    assert bins_of({}, most=10) == {}


@given(VALUES, VALUES, st.integers(FEWEST_BINS, MAX_BINS))
def test_bins_are_few_and_equally_wide(here: list[float], there: list[float], most: int) -> None:
    """Whatever the values, each is in a bin that holds it, bins do not overlap, and all series together have at most so
    many of them.
    """
    packed = {(1, "us"): histogram.pack(here), (1, "sg"): histogram.pack(there)}
    found = bins_of(packed, most=most)
    bins = sorted({(one.low, one.high) for row in found.values() for one in row})
    assert len(bins) <= most
    assert all(isclose(high / low, bins[0][1] / bins[0][0], rel_tol=1e-9) for low, high in bins)
    assert all(below[1] <= above[0] * (1 + 1e-9) for below, above in pairwise(bins))
    for values, row in zip((here, there), found.values(), strict=True):
        # Rounding of logarithms moves an edge by less than a billionth.
        assert sum(one.n for one in row) == len(values)
        assert all(any(one.low * (1 - 1e-9) <= value <= one.high * (1 + 1e-9) for one in row) for value in values)


def test_zero_has_a_bin_of_its_own() -> None:
    """It has no place on a logarithmic scale."""
    (row,) = bins_of({(1, "us"): histogram.pack([0.0, 0.0, 5.0])}, most=2).values()
    assert [(one.low == one.high, one.n) for one in row] == [(True, 2), (False, 1)]


@given(VALUES, VALUES)
def test_values_may_come_in_portions(first: list[float], second: list[float]) -> None:
    """The bins of concatenated portions are those of all values at once."""
    whole = bins_of({(1, "us"): histogram.pack(first + second)}, most=30)
    assert bins_of({(1, "us"): histogram.pack(first) + histogram.pack(second)}, most=30) == whole
