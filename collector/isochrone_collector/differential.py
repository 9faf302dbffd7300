"""Differentials: what one region adds to, or saves on, what the baseline region sees, target by target.

The laws:

1. Only rounds in which both regions have a value count, and the medians shown are those of these rounds: two regions
   that were awake at different hours are not compared.
2. A round in which both ran into a timeout says nothing of their difference and is left out. Where only one did, its
   limit stands in: the true difference is larger still, on the same side.
3. `faster` and `slower` need an interval off zero and a shift that matters; `equivalent` needs the whole interval to be
   too small to matter; everything else is `undecided`, with the reason in words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from isochrone_collector.stats.paired import Shift, Values, hodges_lehmann
from isochrone_wire.answers import Decision, Differential, Metric

MIN_ROUNDS = 6
MARGIN_US = 20_000
MARGIN_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One value per round, rounds ascending; `censored` rounds hold the limit of a timeout instead."""

    rounds: Sequence[int] = ()
    values: Sequence[float] = ()
    censored: Sequence[bool] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """The values of both regions in the rounds they share."""

    rounds: Sequence[int]
    baseline: Values
    region: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a differential is of: a target, a metric and two regions."""

    target: str
    provider: str
    model: str
    metric: Metric
    baseline: str
    region: str


def pair(baseline: Series, region: Series) -> Pairs:
    """The rounds both series have, without those that both lost to a timeout."""
    shared, left, right = np.intersect1d(
        np.asarray(baseline.rounds, dtype=np.int64),
        np.asarray(region.rounds, dtype=np.int64),
        assume_unique=True,
        return_indices=True,
    )
    both_censored = np.asarray(baseline.censored, dtype=bool)[left] & np.asarray(region.censored, dtype=bool)[right]
    return Pairs(
        rounds=list(compress(shared.tolist(), ~both_censored)),
        baseline=np.asarray(baseline.values, dtype=np.float64)[left][~both_censored],
        region=np.asarray(region.values, dtype=np.float64)[right][~both_censored],
    )


def differential(subject: Subject, baseline: Series, region: Series) -> Differential:
    """Region minus baseline with its interval and what it lets us say."""
    pairs = pair(baseline, region)
    shift = hodges_lehmann(pairs.region - pairs.baseline)
    n = len(pairs.rounds)
    shown = {
        "target": subject.target,
        "provider": subject.provider,
        "model": subject.model,
        "metric": subject.metric,
        "unit": subject.metric.unit,
        "baseline": subject.baseline,
        "region": subject.region,
        "n": n,
        "baseline_n": len(baseline.rounds),
        "region_n": len(region.rounds),
    }
    if shift is None:
        return Differential(**shown, reason=_why_empty(subject, baseline, region))  # type: ignore[arg-type]  # a dict of mixed values
    baseline_median = float(np.median(pairs.baseline))
    decision, reason = decide(shift, n=n, margin=margin_of(subject.metric, baseline_median), metric=subject.metric)
    return Differential(
        **shown,  # type: ignore[arg-type]  # as above
        baseline_median=baseline_median,
        region_median=float(np.median(pairs.region)),
        shift=shift.estimate,
        shift_low=shift.low,
        shift_high=shift.high,
        shift_percent=100 * shift.estimate / baseline_median if baseline_median else None,
        decision=decision,
        reason=reason,
        newest_at=pairs.rounds[-1],
    )


def margin_of(metric: Metric, baseline_median: float) -> float:
    """The smallest difference that matters: 20 ms or 5 % of the baseline, whichever is larger; for a rate 5 %."""
    share = MARGIN_SHARE * abs(baseline_median)
    return share if metric.more_is_better else max(MARGIN_US, share)


def decide(shift: Shift, *, n: int, margin: float, metric: Metric) -> tuple[Decision, str]:
    """What the shift lets us say, and for `undecided` why."""
    low, high = shift.low, shift.high
    if low is None or high is None:
        return Decision.UNDECIDED, f"{n} of {MIN_ROUNDS} rounds needed"
    if -margin <= low and high <= margin:
        return Decision.EQUIVALENT, ""
    if low <= 0 <= high:
        return Decision.UNDECIDED, "interval holds zero and exceeds the margin"
    if abs(shift.estimate) < margin:
        return Decision.UNDECIDED, "interval is off zero and exceeds the margin, and the shift is within it"
    better = (shift.estimate > 0) == metric.more_is_better
    return (Decision.FASTER if better else Decision.SLOWER), ""


def _why_empty(subject: Subject, baseline: Series, region: Series) -> str:
    for name, series in ((subject.baseline, baseline), (subject.region, region)):
        if not series.rounds:
            return f"no {subject.metric.value} from {name}"
    return "no round has a value from both regions"
