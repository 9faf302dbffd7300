"""Histograms: how far off, how they merge, and that they keep the ranks of the exact quantiles."""

from collections import Counter
from dataclasses import replace
from math import isclose, isnan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isochrone_collector.analysis import histogram
from isochrone_collector.analysis.histogram import RELATIVE_ERROR, Histogram
from isochrone_collector.analysis.stats.long_run_variance import independent
from testdata.columns import independent_quantile, present

# Rounding of logarithms of the largest and smallest of these moves an edge by less.
SLACK = 1e-9
VALUES = st.floats(min_value=1e-6, max_value=1e13, allow_nan=False)
SHARES = st.sampled_from((0.01, 0.5, 0.9, 0.95, 0.99))


def one(values: list[float], limits: list[float] = []) -> Histogram:  # noqa: B006  # never changed
    return histogram.merge([histogram.pack(values)], [histogram.pack(limits)], [0], of=1).group(0)


def is_within(found: float, value: float) -> bool:
    return abs(found - value) <= (RELATIVE_ERROR + SLACK) * value


@given(st.lists(VALUES, min_size=1, max_size=50))
def test_a_bucket_is_off_by_one_per_cent(values: list[float]) -> None:
    """Whatever the value, what stands for its bucket is within 1 % of it."""
    told = histogram.values_of(histogram.buckets_of(values))
    assert all(is_within(found, value) for found, value in zip(told.tolist(), values, strict=True))


def test_worst_value_is_off_by_no_less() -> None:
    """The bound is tight: some value is off by nearly 1 %, or buckets would be wasted."""
    values = np.geomspace(1e5, 2e5, 20_000)
    told = histogram.values_of(histogram.buckets_of(values))
    assert 0.0099 < np.max(np.abs(told - values) / values) <= RELATIVE_ERROR + SLACK


@pytest.mark.parametrize("value", [0.0, -0.0, -5.0])
def test_nothing_is_nothing(value: float) -> None:
    """What is not above zero is told as zero, below everything else."""
    found = one([value, value, 7.0]).quantile(0.5)
    assert found is not None
    assert found.value == 0.0


@pytest.mark.parametrize("value", [5e-324, 1e-300, 1e300, 1.7e308])
def test_absurd_values_do_not_break_it(value: float) -> None:
    """Values of no world go to the outermost buckets instead of overflowing into others."""
    (bucket,) = histogram.buckets_of([value])
    assert abs(bucket) == 32_767
    assert histogram.values_of([bucket])[0] >= 0


@given(st.lists(VALUES, max_size=60), st.lists(VALUES, max_size=20), SHARES)
def test_quantiles_are_those_of_the_values(values: list[float], limits: list[float], share: float) -> None:
    """The value is within 1 % of the exact one; the bounds exist exactly when those do, within 1 % of them or wider."""
    history = replace(independent(1), ratio=np.zeros(1))
    found, true = one(values, limits).quantile(share, history), independent_quantile(values, share, censored=limits)
    assert (found is None) == (true is None)
    if found is None or true is None:
        return
    assert is_within(found.value, true.value)
    assert (found.low is None, found.high is None) == (true.low is None, true.high is None)
    assert found.low is None or found.low <= present(true.low) * (1 + RELATIVE_ERROR + SLACK)
    assert found.high is None or found.high >= present(true.high) * (1 - RELATIVE_ERROR - SLACK)


def test_an_interval_is_at_least_as_wide_as_a_bucket() -> None:
    """A thousand values in one bucket are known to 1 %, and values in whole milliseconds to one of them."""
    history = replace(independent(1), ratio=np.zeros(1))
    one_bucket, ticks = one([50_000.0] * 1_000).quantile(0.5, history), one([20e3, 21e3] * 500).quantile(0.5, history)
    for found, half in ((one_bucket, 500.0), (ticks, 1_000.0)):
        assert present(present(found).low) <= present(found).value - 0.8 * half
        assert present(present(found).high) >= present(found).value + 0.8 * half


@settings(max_examples=50)
@given(st.lists(st.lists(VALUES, max_size=20), min_size=1, max_size=6), st.randoms())
def test_merging_is_adding(parts: list[list[float]], chance: object) -> None:
    """Parts in any order, joined before or after, give the histogram of all values at once."""
    whole = [value for part in parts for value in part]
    blobs = [histogram.pack(part) for part in parts]
    chance.shuffle(blobs)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    nothing = [b""] * len(blobs)
    apart = histogram.merge(blobs, nothing, [0] * len(blobs), of=1).blobs()
    joined = histogram.merge([b"".join(blobs)], [b""], [0], of=1).blobs()
    assert apart == joined == [(histogram.pack(whole), b"")]


@given(st.lists(VALUES, max_size=40))
def test_a_blob_tells_counts_in_order(values: list[float]) -> None:
    """A blob is six bytes per bucket, ascending, with the counts of the values; a torn one is refused."""
    blob = histogram.pack(values)
    entries = [
        (int.from_bytes(blob[at : at + 2], "little", signed=True), int.from_bytes(blob[at + 2 : at + 6], "little"))
        for at in range(0, len(blob), 6)
    ]
    assert entries == sorted(Counter(histogram.buckets_of(values).tolist()).items())
    assert histogram.count(blob) == len(values)
    with pytest.raises(ValueError, match="bytes per bucket"):
        histogram.merge([blob + b"12345"], [b""], [0], of=1)


def test_groups_do_not_mix() -> None:
    """Each of many groups has the quantiles of its own values, one without any has none."""
    chance = np.random.default_rng(5)
    values = [chance.lognormal(12, 1, size) for size in (1, 5, 6, 400, 0, 3_000)]
    blobs = [histogram.pack(part) for part in values]
    groups = histogram.merge(blobs + blobs, [b""] * 12, [0, 1, 2, 3, 4, 5] * 2, of=6)
    assert len(groups) == 6
    assert groups.n.tolist() == [2 * len(part) for part in values]
    found, (low, _) = groups.quantile(0.5), groups.bounds(0.5)
    for place, part in enumerate(values):
        true = independent_quantile([*part, *part], 0.5)
        if true is None:
            assert isnan(found[place])
            continue
        assert is_within(float(found[place]), true.value)
        assert isnan(low[place]) == (true.low is None)


def test_without_values_limits_are_known() -> None:
    """If all probes timed out a quantile is their limit; without any value there is none."""
    found = one([], [60e6] * 10)
    assert (found.known, found.n) == (0, 10)
    median = found.quantile(0.5)
    assert median is not None
    assert isclose(median.value, 60e6, rel_tol=RELATIVE_ERROR)
    assert one([]).quantile(0.5) is None
    assert one([]).within(100.0) == (0, 0)


@given(st.lists(VALUES, max_size=40), st.lists(VALUES, max_size=10), VALUES)
def test_within_bounds_the_truth(values: list[float], limits: list[float], limit: float) -> None:
    """What is surely within a limit is no more than what is, and what may be is no less."""
    sure, may_be = one(values, limits).within(limit)
    assert sure <= sum(value <= limit * (1 + SLACK) for value in values)
    assert may_be >= sum(value <= limit for value in values) + sum(bound < limit for bound in limits)


@given(st.lists(VALUES, max_size=40), VALUES)
def test_the_estimate_lies_between_the_bounds(values: list[float], limit: float) -> None:
    """The estimated number of values up to a limit is neither below the certain one nor above the possible one."""
    sure, may_be = one(values).within(limit)
    assert sure <= one(values).up_to(limit) <= may_be


@settings(max_examples=50)
@given(st.lists(st.lists(VALUES, max_size=12), min_size=1, max_size=6), st.floats(1e-6, 1e13))
def test_sorted_entries_are_histograms(groups: list[list[float]], limit: float) -> None:
    """Each rank of each group, and what is within a limit, are those of rows with all buckets."""
    blobs = [(histogram.pack([value]), place) for place, values in enumerate(groups) for value in values]
    content = [blob for blob, _ in blobs]
    places = np.array([place for _, place in blobs], np.int64)
    sizes = np.full(len(blobs), 6)
    joined = histogram.Joined(content=b"".join(content), sizes=sizes, groups=places)
    found = histogram.sort_entries(joined, of=len(groups))
    dense = histogram.merge(content, [b""] * len(content), places, of=len(groups))
    assert found.n.tolist() == dense.n.tolist()
    for rank in range(1, 13):
        enough = found.n >= rank
        ranks = np.full(len(groups), rank)
        assert found.at(ranks)[enough].tolist() == dense.at(ranks)[enough].tolist()
    assert found.up_to(limit).tolist() == [dense.group(place).up_to(limit) for place in range(len(groups))]
