"""Goodput: an interval for any effective number of requests, and the verdict on it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_collector.analysis import histogram
from isochrone_collector.analysis.distribution import OutcomeCounts
from isochrone_collector.analysis.goodput import (
    Ending,
    RequestCounts,
    by_series,
    effective_sizes,
    needed,
    share_interval,
    summarised_requests,
)
from isochrone_collector.analysis.stats.binomial import wilson
from isochrone_collector.analysis.stats.long_run_variance import VarianceInflation
from isochrone_wire.answers import Metric
from isochrone_wire.insights import Eligible
from isochrone_wire.model import SECOND_US
from testdata.columns import present, requests_of


def counted(good: int, planned: int, *, possible: int | None = None, n_eff: float | None = None) -> RequestCounts:
    possible = good if possible is None else possible
    return RequestCounts(planned=planned, good=good, possible=possible, n_eff=n_eff or float(planned))


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
        counts = zip(*np.unique(good, return_counts=True), strict=True)
        yes = sum(many for value, many in counts if counted(int(value), n).meets(0.95) is Eligible.YES)
        assert yes / 20_000 <= 0.055, n


def test_failures_in_a_run_count_as_fewer_requests() -> None:
    """Spread failures leave the effective size about the number of requests; those in a run reduce it, none do not."""
    none, spread, in_a_run = effective_sizes([np.ones(200, bool), np.arange(200) % 10 != 3, np.arange(200) >= 20])
    assert none == 200
    assert spread > 100
    assert in_a_run < 20


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
    """One failure leaves a lower bound than none and two than one, wherever they are: spread is no proof."""
    history = None if ratio is None else VarianceInflation(ratio=np.array([ratio]), freedom=np.array([np.inf]))
    none = bounds([()], n, history)
    one = bounds([(place,) for place in range(n)], n, history)
    two = bounds([(place, other) for place in range(n) for other in range(place)], n, history)
    assert none[0] > max(one)
    assert min(one) >= max(two)


ANSWERED, FAILED, THROTTLED, NONE = Ending
NAN = float("nan")
MS = 1_000.0


@pytest.mark.parametrize(
    ("ending", "ttft_ms", "ceiling_ms", "counts"),
    [
        (ANSWERED, 300, NAN, (1, 1, 1)),
        (ANSWERED, 301, NAN, (1, 0, 0)),
        (ANSWERED, NAN, NAN, (0, 0, 0)),  # from a cache: no valid duration
        (FAILED, NAN, NAN, (1, 0, 0)),
        (FAILED, 100, NAN, (1, 0, 0)),  # the stream broke off after its first token
        (FAILED, NAN, 60_000, (1, 0, 0)),
        (FAILED, NAN, 200, (1, 0, 1)),  # given up before the limit
        (THROTTLED, NAN, NAN, (1, 0, 0)),
        (NONE, NAN, NAN, (0, 0, 0)),
    ],
)
def test_what_counts(ending: Ending, ttft_ms: float, ceiling_ms: float, counts: tuple[int, int, int]) -> None:
    """Every planned request counts, and only one answered within the limit is good (planned, good, possible)."""
    found = requests_of([ttft_ms * MS], [ending], ceiling_us=[ceiling_ms * MS]).judged({Metric.TTFT: 300 * MS})
    assert (found.planned, found.good, found.possible) == counts


@pytest.mark.parametrize("limit_ms", range(296, 305))
def test_bounds_hold_whatever_the_bucket_of_the_limit_hides(limit_ms: int) -> None:
    """Where latencies vary by less than a bucket, the share may be wrong, but not its bounds, nor the verdict."""
    durations_us = 300 * MS + MS * np.random.default_rng(1).standard_normal(2_000)
    summary = histogram.merge([histogram.pack(durations_us)], [b""], [0], of=1).group(0)
    found = replace(summarised_requests(summary, OutcomeCounts(ok=2_000), limit_ms * MS), n_eff=2_000.0)
    true, share = float(np.mean(durations_us <= limit_ms * MS)), present(found.goodput)
    assert share.low <= true <= share.high
    assert found.meets(0.95) in {Eligible.MAYBE, Eligible.YES if true >= 0.95 else Eligible.NO}


@pytest.mark.parametrize("limit_ms", [297.5, 299, 300, 301.5, 303, 310])
def test_the_bucket_of_the_limit_counts_in_part(limit_ms: float) -> None:
    """Two thirds of the requests are within 2 % of the limit: the share was that of the others, 63 points too low."""
    durations_us = np.r_[np.linspace(294, 306, 2_000), np.linspace(100, 200, 1_000)] * MS
    blob = histogram.pack(durations_us)
    summary = histogram.merge([blob], [b""], [0], of=1).group(0)
    found = summarised_requests(summary, OutcomeCounts(ok=3_000), limit_ms * MS)
    share = present(replace(found, n_eff=3_000.0).goodput)
    assert share.value == pytest.approx(np.mean(durations_us <= limit_ms * MS), abs=0.01)
    assert share.low <= share.value <= share.high
    certain = share_interval(present(found.certain), 3_000, n_eff=3_000)
    possible = share_interval(found.possible, 3_000, n_eff=3_000)
    assert (share.low, share.high) == (certain.low, possible.high)


def test_a_floor_on_speed() -> None:
    """A request below the floor is too slow; one whose speed is unknown is left out."""
    found = requests_of([100 * MS] * 4, speed=[29.9, 30.0, 80.0, NAN]).judged({Metric.TTFT: 300 * MS}, min_speed=30.0)
    assert (found.planned, found.good) == (3, 2)


def test_the_whole_answer_has_its_own_column() -> None:
    """A limit on the whole answer looks at the last token, not at the first."""
    found = requests_of([100 * MS] * 2, e2e_us=[4_000 * MS, 6_000 * MS])
    assert found.judged({Metric.E2E: 5_000 * MS}).good == 1


def test_several_limits_hold_together() -> None:
    """A request has to keep every limit; given up early is only what was given up before the first of them."""
    found = requests_of(
        [100 * MS, 100 * MS, 400 * MS, NAN, NAN],
        [ANSWERED, ANSWERED, ANSWERED, FAILED, FAILED],
        e2e_us=[4_000 * MS, 6_000 * MS, 4_000 * MS, NAN, NAN],
        ceiling_us=[NAN, NAN, NAN, 200 * MS, 400 * MS],
    ).judged({Metric.TTFT: 300 * MS, Metric.E2E: 5_000 * MS})
    assert (found.planned, found.good, found.possible) == (5, 1, 2)


def test_a_hang_counts_for_as_long_as_it_lasts() -> None:
    """Rounds skipped behind a hanging request count as too slow: an outage of a sixth of the time is a sixth."""
    ending = ([FAILED] * 10 + [ANSWERED] * 50) * 6
    ttft_us = np.where(np.array(ending) == ANSWERED, 100 * MS, NAN)
    found = requests_of(ttft_us.tolist(), ending).judged({Metric.TTFT: 300 * MS})
    assert found.goodput is not None
    assert found.goodput.value == pytest.approx(5 / 6)


def test_values_of_requests() -> None:
    """A distribution has the known latencies, and the limits of those that were given up."""
    found = requests_of([1.0, NAN, NAN], [ANSWERED, FAILED, FAILED], ceiling_us=[NAN, 5.0, NAN]).values(Metric.TTFT)
    assert (found.values.tolist(), found.censored.tolist()) == ([1.0, 5.0], [False, True])


def test_series_by_hour() -> None:
    """Requests are divided by hour of the day (UTC) over all days, each part in the order of its rounds."""
    found = requests_of(range(100), every_us=3600 * SECOND_US)
    parts = {hour: own.ttft_us.tolist() for (_, _, hour), own in by_series(found, by_hour=True)}
    assert parts[3] == [3, 27, 51, 75, 99]
    assert sorted(hour for hour in parts if hour is not None) == list(range(24))
    [(key, everything)] = by_series(found, by_hour=False)
    assert (key, len(everything)) == ((1, "us", None), 100)


def test_no_requests_make_no_series() -> None:
    """An empty selection has no series."""
    assert not list(by_series(requests_of([]), by_hour=True))
