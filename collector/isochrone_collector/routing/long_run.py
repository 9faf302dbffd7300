"""Shares of requests in the long run, which the verdicts of a route table claim. What a route does follows the window
alone, so that an outage of some days ago keeps no member out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from isochrone_collector.analysis.goodput import Limits, Requests, lasting_sizes
from isochrone_collector.analysis.history import (
    NO_HISTORY,
    SHARES,
    SUCCESS,
    History,
    Quantity,
    above_quantile,
    in_time,
    nearest_share,
)
from isochrone_collector.analysis.stats.arrays import Integers
from isochrone_collector.analysis.stats.long_run_variance import VarianceInflation
from isochrone_collector.routing.inputs import LongRun, has_limits, limits_of
from isochrone_wire.answers import Metric
from isochrone_wire.model import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """The past week of series, a target's id and a region each, for windows of so many hours."""

    series: Sequence[tuple[int, str]]
    hours: float
    history: History = NO_HISTORY

    def of(self, quantity: Quantity) -> VarianceInflation:
        """Return the variance of the level of such windows, NaN where it is unknown."""
        return self.history.of(quantity, self.series, np.full(len(self.series), self.hours))

    def of_quantiles(self, metric: Metric, shares: Iterable[float]) -> dict[float, VarianceInflation]:
        """Return that of the values above quantiles, by their shares."""
        return {share: self.of(above_quantile(metric, share)) for share in shares}


def quantities(slo: Slo) -> tuple[Quantity, ...]:
    """Return the quantities whose week the evidence of a route reads."""
    answers = (Metric.E2E,) if slo.answer_tokens else ()
    return (SUCCESS, *_above(dict.fromkeys((Metric.TTFT, *answers, *limits_of(slo)))))


def _above(metrics: Iterable[Metric]) -> tuple[Quantity, ...]:
    return tuple(above_quantile(metric, share) for metric in metrics for share in SHARES)


def shares_of(requests: Sequence[Requests], slo: Slo, week: Week) -> list[LongRun]:
    """Return the shares of each series that the objective limits. Without a week the members of a region show their
    memory together.
    """
    asked = {}
    if slo.min_success:
        asked["success"] = Limits(us={}, share=slo.min_success)
    if has_limits(slo):
        asked["goodput"] = Limits(us=limits_of(slo), min_speed=slo.min_tokens_per_second or 0.0, share=slo.min_goodput)
    pasts = [_past(requests, one.us, week) for one in asked.values()]
    sizes = np.full((len(asked), len(requests)), np.nan)
    for region in {region for _, region in week.series} if asked else ():
        places = np.array([place for place, (_, one) in enumerate(week.series) if one == region])
        rows = [requests[place] for place in places.tolist()]
        sizes[:, places] = lasting_sizes(rows, [*asked.values()], [past.at(places) for past in pasts])
    return [
        LongRun(
            **{
                name: row.judged(one.us, min_speed=one.min_speed, n_eff=n_eff).goodput
                for (name, one), n_eff in zip(asked.items(), own, strict=True)
            }
        )
        for row, own in zip(requests, sizes.T.tolist(), strict=True)
    ]


def _past(requests: Sequence[Requests], limits_us: Mapping[Metric, float], week: Week) -> VarianceInflation:
    """Return the history of keeping limits: of the one that varies most."""
    known = {quantity: week.of(quantity) for quantity in (SUCCESS, *_above(limits_us))}
    found = known[SUCCESS]
    for metric, limit_us in limits_us.items():
        found = found.wider(in_time(metric, _near(requests, metric, limit_us, week), known))
    return found


def _near(requests: Sequence[Requests], metric: Metric, limit_us: float, week: Week) -> Integers:
    """Return the quantile of the week near a limit; of answers, whose length differs, that near the share in time."""
    if metric is not Metric.E2E:
        return week.history.nearest(metric, week.series, limit_us)
    values = [row.values(metric) for row in requests]
    return np.array([nearest_share(own.up_to(limit_us) / max(own.n, 1)) for own in values], np.int64)
