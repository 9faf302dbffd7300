"""Goodput: the share of all planned requests that are answered within a limit.

The laws:

1. A request is planned if an agent sent it, or could not send it because the previous one was still waiting for its
   answer. Rounds that no agent probed for another reason are not requests.
2. Only a request that succeeded within the limit counts. Failures of every kind, refusals and timeouts do not.
3. A request that was given up before the limit asked for is `possible`: it widens the interval upwards.
4. Of the bucket of a summary that contains the limit, the share below the limit counts in the value as if its
   requests were spread evenly over it; the lower bound counts none of them, and the upper bound all.
5. A request that succeeded, but whose duration is not valid, is left out: see `docs/statistics.md`.

The interval is Wilson's for the effective number of independent requests. At its ends it is the exact one, with the
whole error on the only side that can err: 59 of 59 are at least 95 %, because 0.95^59 < 0.05.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import cache, partial
from itertools import count

import numpy as np

from isochrone_collector.analysis.distribution import Distribution, OutcomeCounts, Values
from isochrone_collector.analysis.probes import Kinds
from isochrone_collector.analysis.stats.arrays import Flags, Integers, Reals, ragged
from isochrone_collector.analysis.stats.binomial import wilson
from isochrone_collector.analysis.stats.long_run_variance import (
    VarianceInflation,
    inflation_of_flags,
    stacked,
)
from isochrone_collector.analysis.stats.memory import model_weights, unseen_inflation_of_flags
from isochrone_wire.answers import Metric, Proportion
from isochrone_wire.durations import HOUR_US
from isochrone_wire.insights import Eligible
from isochrone_wire.model import DAY_US

_ERROR = 0.05
_CELLS = 1 << 17
_PRIOR_RUNS, _PRIOR_RUN = 2, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """Counts of the `planned` requests, worth `n_eff` independent ones: `good` are answered in time, `certain` of them
    certainly (by default all), `possible` at least possibly, and `failed` and `throttled` were not for another reason
    than their latency.
    """

    planned: int = 0
    good: int = 0
    possible: int = 0
    n_eff: float = 0.0
    failed: int = 0
    throttled: int = 0
    certain: int | None = None

    @property
    def goodput(self) -> Proportion | None:
        """The share of planned requests answered in time, with its 95 % interval; `None` without requests."""
        if not self.planned:
            return None
        counts = (self.good if self.certain is None else self.certain, self.possible)
        least, most = (share_interval(count, self.planned, n_eff=self.n_eff) for count in counts)
        return replace(least, value=self.good / self.planned, high=most.high)

    def meets(self, share: float) -> Eligible:
        """Decide whether at least `share` of the requests are answered in time."""
        found = self.goodput
        return Eligible.UNKNOWN if found is None else verdict(found, share, n_eff=self.n_eff)


def verdict(found: Proportion, share: float, *, n_eff: float) -> Eligible:
    """Decide by the interval whether the goodput is at least `share`; unknown with too few effective requests."""
    if found.n < needed(share):
        return Eligible.UNKNOWN
    if found.high < share:
        return Eligible.NO
    # Few independent requests can be certainly too slow, but not certainly in time.
    if n_eff < needed(share):
        return Eligible.UNKNOWN
    return Eligible.YES if found.low >= share else Eligible.MAYBE


def share_interval(good: int, n: int, *, n_eff: float) -> Proportion:
    """Return the share of `good` in `n` requests (at least 1), with the 95 % interval of `n_eff` independent ones."""
    found = wilson(good, n, n_eff=n_eff)
    assert found is not None, "n is positive"
    end = _ERROR ** (1 / n_eff)
    return replace(found, low=end if good == n else found.low, high=1 - end if good == 0 else found.high)


@cache
def needed(share: float) -> int:
    """Return the number of requests from which `share` can be certain, if all are answered in time: 59 for 0.95."""
    return next(n for n in count(1) if share_interval(n, n, n_eff=n).low >= share)


def effective_sizes(rows: Sequence[Flags], history: VarianceInflation | None = None) -> Reals:
    """Return the effective number of the requests of each row, in order; `history` is that of `inflation_of_flags`."""
    series = ragged([row.astype(np.float64) for row in rows])
    found = np.zeros(len(rows))
    for places, own in series.portions(cells=_CELLS):
        n = own.shape[1]
        found[places] = inflation_of_flags(own, history and history.at(places)).effective_n(n)
    return found


def unseen_memory(rows: Sequence[Flags], memories: Sequence[Callable[[int], VarianceInflation]]) -> VarianceInflation:
    """Return the inflation of each row of flags, true for a good request, while there is no history.

    A clean window is the typical one if failures come in runs. The probability that one is followed by another is that
    of all rows, with the prior of two runs of ten (beta-binomial); a chain with the persistence r has the inflation
    (1+r)/(1-r). Latencies carry the memory of their ranks to the limit: `memories` return it for so many flags.
    """
    bad = [~row.astype(np.bool_) for row in rows]
    followed = sum(int(np.count_nonzero(row[:-1] & row[1:])) for row in bad)
    begun = sum(int(np.count_nonzero(row[:-1])) for row in bad)
    rate = sum(int(np.count_nonzero(row)) for row in bad) / max(sum(map(len, bad)), 1)
    again = (followed + _PRIOR_RUNS * (_PRIOR_RUN - 1)) / (begun + _PRIOR_RUNS * _PRIOR_RUN)
    persistence = max(again - rate, 0.0) / max(1 - rate, 1 / _PRIOR_RUN)
    counts = [max(len(row), 1) for row in rows]
    runs = min((1 + persistence) / max(1 - persistence, 1e-9), float(max(counts, default=1)))
    found = VarianceInflation(ratio=np.full(len(rows), runs), freedom=np.full(len(rows), np.inf))
    for memory in memories:
        found = found.wider(stacked([memory(n) for n in counts])) if counts else found
    return found


class Ending(IntEnum):
    """The ending of a round. `NONE`: no request was due, or the agent itself ended it."""

    ANSWERED = 0
    FAILED = 1
    THROTTLED = 2
    NONE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """One row per round and stream; durations are NaN if unknown, and `ceiling_us` is the time waited in vain."""

    regions: tuple[str, ...]
    target_id: Integers
    region: Integers
    round_at: Integers
    ending: Kinds
    ttft_us: Reals
    e2e_us: Reals
    ceiling_us: Reals
    tokens_per_second: Reals

    def __len__(self) -> int:
        return len(self.target_id)

    def take(self, places: Integers) -> "Requests":
        """Return these rows, in this order."""
        columns = [field.name for field in fields(self) if field.name != "regions"]
        return replace(self, **{name: getattr(self, name)[places] for name in columns})

    def latency_us(self, metric: Metric) -> Reals:
        """Return the column of `Metric.TTFT` or `Metric.E2E`."""
        return self.e2e_us if metric is Metric.E2E else self.ttft_us

    def values(self, metric: Metric) -> Values:
        """Return the distribution of a metric, of rows in order; requests that were given up are censored."""
        latency_us = self.latency_us(metric)
        censored = np.isnan(latency_us)
        known = ~censored | ~np.isnan(self.ceiling_us)
        return Values(values=np.where(censored, self.ceiling_us, latency_us)[known], censored=censored[known])

    def speeds(self) -> Values:
        """Return the distribution of the tokens per second, of rows in order."""
        return Values.uncensored(self.tokens_per_second[~np.isnan(self.tokens_per_second)])

    def judged(
        self,
        limits_us: Mapping[Metric, float],
        *,
        min_speed: float = 0.0,
        n_eff: float | None = None,
    ) -> RequestCounts:
        """Count the requests answered within all limits, at `min_speed` tokens per second or more; rows in order. The
        default of `n_eff` is that of this window.
        """
        good, possible, planned = self._flags(limits_us, min_speed)
        flags = good[planned]
        return RequestCounts(
            planned=len(flags),
            good=int(np.count_nonzero(flags)),
            possible=int(np.count_nonzero(possible[planned])),
            n_eff=float(effective_sizes([flags])[0]) if n_eff is None else n_eff,
            failed=int(np.count_nonzero((self.ending == Ending.FAILED) & np.isnan(self.ceiling_us))),
            throttled=int(np.count_nonzero(self.ending == Ending.THROTTLED)),
        )

    def planned_flags(self, limits_us: Mapping[Metric, float], min_speed: float = 0.0) -> Flags:
        """Return which planned requests were answered within all limits."""
        good, _, planned = self._flags(limits_us, min_speed)
        return good[planned]

    def _flags(self, limits_us: Mapping[Metric, float], min_speed: float) -> tuple[Flags, Flags, Flags]:
        """Return which rows were good, were possibly good, and were planned requests."""
        answered = self.ending == Ending.ANSWERED
        unmeasured = np.isnan(self.tokens_per_second) if min_speed else np.zeros(len(self), np.bool_)
        in_time = ~(self.tokens_per_second < min_speed)
        for metric, limit_us in limits_us.items():
            unmeasured |= np.isnan(self.latency_us(metric))
            in_time &= self.latency_us(metric) <= limit_us
        planned = (self.ending != Ending.NONE) & ~(answered & unmeasured)
        good = answered & in_time
        given_up = (self.ending == Ending.FAILED) & (self.ceiling_us < min(limits_us.values(), default=0.0))
        return good, good | given_up, planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits `us` on latencies in microseconds, and a minimum of tokens per second, which a `share` has to keep."""

    us: Mapping[Metric, float]
    min_speed: float = 0.0
    share: float = 0.95


def lasting_sizes(
    rows: Sequence[Requests], limits: Sequence[Limits], histories: Sequence[VarianceInflation]
) -> list[Reals]:
    """Return the effective number of the requests of each row, by limits; `histories` are those of keeping each limit.

    Without history, it is at most what the memory leaves that rows with the same interval show together.
    """
    flags = [[row.planned_flags(one.us, one.min_speed) for row in rows] for one in limits]
    found = [effective_sizes(own, history) for own, history in zip(flags, histories, strict=True)]
    unknown = [np.isnan(history.ratio) for history in histories]
    by_interval: dict[int, list[int]] = {}
    for place, row in enumerate(rows) if any(own.any() for own in unknown) else ():
        gaps = np.diff(row.round_at)
        by_interval.setdefault(int(np.median(gaps)) if len(gaps) else 0, []).append(place)
    for places in by_interval.values():
        weights = {
            metric: model_weights(ragged([rows[place].values(metric).values for place in places]))
            for metric in {metric for one in limits for metric in one.us}
        }
        memory = cache(lambda metric, share, n, known=weights: unseen_inflation_of_flags(known[metric], n, share))
        for one, own, is_unknown, sizes in zip(limits, flags, unknown, found, strict=True):
            alike = [own[place] for place in places]
            unseen = unseen_memory(alike, [partial(memory, metric, one.share) for metric in one.us])
            least = np.minimum(sizes[places], unseen.effective_n(np.array([len(row) for row in alike])))
            sizes[places] = np.where(is_unknown[places], least, sizes[places])
    return found


def summarised_requests(values: Distribution, outcomes: OutcomeCounts, limit_us: float) -> RequestCounts:
    """Count requests of summaries, without `n_eff`. One that failed after its first token counts as too slow."""
    in_time, possible = values.within(limit_us)
    counts = (outcomes.ok, outcomes.failed, outcomes.throttled)
    planned, certain = map(int, planned_and_good(values.known, in_time, *counts))
    _, good = map(int, planned_and_good(values.known, values.up_to(limit_us), *counts))
    broken = max(0, values.known - outcomes.ok)
    return RequestCounts(
        planned=planned,
        good=good,
        certain=certain,
        possible=min(possible, planned),
        failed=max(0, outcomes.failed - broken - (values.n - values.known)),
        throttled=outcomes.throttled,
    )


Counts = Integers | int
"""A number, or one for each of many series."""


def planned_and_good(
    known: Counts, in_time: Counts, ok: Counts, failed: Counts, throttled: Counts
) -> tuple[Integers, Integers]:
    """Return the numbers of planned requests and of those in time, as `summarised_requests` counts them."""
    planned = np.minimum(ok, known) + failed + throttled
    good = in_time - np.maximum(np.subtract(known, ok), 0)
    return np.asarray(planned), np.maximum(good, 0)


Series = tuple[int, str, int | None]
"""A target's id, a region, and an hour of the day (UTC) or `None` for all."""


def by_series(requests: Requests, *, by_hour: bool) -> Iterator[tuple[Series, Requests]]:
    """Yield the requests of each target and region, `by_hour` of each hour of the day, in the order of their rounds."""
    hours = requests.round_at % DAY_US // HOUR_US if by_hour else np.full(len(requests), -1)
    order = np.lexsort((requests.round_at, hours, requests.region, requests.target_id))
    keys = np.stack([requests.target_id, requests.region, hours])[:, order]
    # One part begins at each change of a key; without any request there is none.
    starts = np.flatnonzero(np.r_[True, (np.diff(keys) != 0).any(axis=0)][: len(order)])
    parts = np.split(order, starts[1:])[: len(starts)]
    for places, (target_id, region, hour) in zip(parts, keys[:, starts].T.tolist(), strict=True):
        yield (target_id, requests.regions[region], hour if by_hour else None), requests.take(places)
