"""Goodput: an interval for any effective number of requests, and the verdict on it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_collector.analysis.goodput import RequestCounts, count_requests, effective_sizes, needed, share_interval
from isochrone_collector.analysis.stats.binomial import wilson
from isochrone_collector.analysis.stats.long_run_variance import VarianceInflation
from isochrone_wire.insights import Eligible


def counted(good: int, planned: int, *, possible: int | None = None, n_eff: float | None = None) -> RequestCounts:
    """The counts of requests, all independent by default."""
    worth = float(planned) if n_eff is None else n_eff
    return RequestCounts(planned=planned, good=good, possible=good if possible is None else possible, n_eff=worth)


def test_the_least_number_of_requests() -> None:
    """If all are answered in time, 95 % are certain from 59 requests on and 99 % from 299, as 0.95^59 < 0.05 states."""
    assert [needed(share) for share in (0.95, 0.99)] == [59, 299]


def test_without_requests_nothing_is_known() -> None:
    """No request means no share and no verdict."""
    assert (RequestCounts().goodput, RequestCounts().meets(0.95)) == (None, Eligible.UNKNOWN)


@given(st.integers(1, 400), st.data())
def test_the_interval_is_wilsons_between_its_ends(n: int, data: st.DataObject) -> None:
    """The interval contains its value; it is Wilson's unless all or none of the requests were in time."""
    good = data.draw(st.integers(0, n))
    found = share_interval(good, n, n_eff=n)
    assert 0 <= found.low <= found.value <= found.high <= 1
    if 0 < good < n:
        assert found == wilson(good, n, n_eff=n)


@given(st.integers(2, 400), st.floats(1, 50), st.data())
def test_fewer_independent_requests_widen_the_interval(n: int, memory: float, data: st.DataObject) -> None:
    """Requests that resemble their neighbours say less: the interval of a smaller effective number is wider."""
    good = data.draw(st.integers(0, n))
    known, less = share_interval(good, n, n_eff=n), share_interval(good, n, n_eff=n / memory)
    assert less.low <= known.low + 1e-12
    assert less.high >= known.high - 1e-12


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        (counted(288, 288), Eligible.YES),
        (counted(288, 288, n_eff=58.0), Eligible.UNKNOWN),
        (counted(282, 288), Eligible.YES),
        (counted(282, 288, n_eff=70.0), Eligible.MAYBE),
        (counted(200, 288), Eligible.NO),
        (counted(200, 288, possible=288), Eligible.MAYBE),
    ],
)
def test_verdicts(counts: RequestCounts, verdict: Eligible) -> None:
    """The verdict follows from the interval, which the effective number and the requests given up early widen."""
    assert counts.meets(0.95) is verdict


def test_a_wrong_yes_is_rare() -> None:
    """If 95 % minus a little are in time, the verdict is yes in at most 5 % of the series, for independent requests."""
    random = np.random.default_rng(15)
    for n in (59, 60, 72, 113, 288):
        good = random.binomial(n, 0.9499, size=20_000)
        yes = sum(many for value, many in zip(*np.unique(good, return_counts=True), strict=True) if _is_yes(value, n))
        assert yes / 20_000 <= 0.055, n


def _is_yes(good: int, n: int) -> bool:
    return counted(int(good), n).meets(0.95) is Eligible.YES


def test_counts_of_flags() -> None:
    """Requests are counted from flags; those given up early are possible, not good."""
    found = count_requests(np.array([True, False, False]), np.array([True, True, False]), failed=1, throttled=0)
    assert (found.planned, found.good, found.possible) == (3, 1, 2)


def test_failures_in_a_run_count_as_fewer_requests() -> None:
    """Spread failures leave the effective size about the number of requests; those in a run reduce it, none do not."""
    spread = np.arange(200) % 10 != 3
    in_a_run = np.arange(200) >= 20
    assert count_requests(np.ones(200, bool), np.ones(200, bool), failed=0, throttled=0).n_eff == 200
    assert count_requests(spread, spread, failed=20, throttled=0).n_eff > 100
    assert count_requests(in_a_run, in_a_run, failed=20, throttled=0).n_eff < 20


def bounds(failed: list[tuple[int, ...]], n: int, history: VarianceInflation | None) -> list[float]:
    """The lower bounds of the goodput of n requests, each with failures at these places."""
    flags = np.ones((len(failed), n), bool)
    for row, places in enumerate(failed):
        flags[row, list(places)] = False
    known = history and VarianceInflation(
        ratio=np.repeat(history.ratio, len(failed)), freedom=np.full(len(failed), np.inf)
    )
    sizes = effective_sizes(list(flags), known).tolist()
    return [share_interval(n - len(places), n, n_eff=size).low for places, size in zip(failed, sizes, strict=True)]


@pytest.mark.parametrize("n", [12, 72])
@pytest.mark.parametrize("ratio", [None, 0.0, 0.02])
def test_more_failures_never_give_a_better_bound(n: int, ratio: float | None) -> None:
    """One failure, wherever it is, leaves a lower bound than none, and two a lower one than one: evenly spread ones, or
    one in the middle, are no proof of independence.
    """
    history = None if ratio is None else VarianceInflation(ratio=np.array([ratio]), freedom=np.array([np.inf]))
    none = bounds([()], n, history)
    one = bounds([(place,) for place in range(n)], n, history)
    two = bounds([(place, other) for place in range(n) for other in range(place)], n, history)
    assert none[0] > max(one)
    assert min(one) >= max(two)
