"""Margins: the smallest difference of each metric that matters.

A difference matters from `least` on, and from a share of the smaller of the two medians on: for a share of 5 %, from a
ratio of 1.05. Both are symmetric in the two sides, so that the decision does not depend on which one is the baseline.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from isochrone_wire.answers import Metric
from isochrone_wire.model import MarginRule

_PERCENT = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """The smallest difference that matters: `least` in the metric's unit, or `share` of the smaller median (0.05 is
    5 %), whichever is larger.
    """

    least: float
    share: float = 0.05

    def size(self, one_median: float, other_median: float) -> float:
        """Return the margin between two sides with these medians."""
        return max(self.least, self.share * min(abs(one_median), abs(other_median)))


# A round trip is a matter of milliseconds; connecting takes several.
_DEFAULTS = {
    Metric.TTFT: Margin(least=20_000),
    Metric.TTFT_COLD: Margin(least=20_000),
    Metric.TTFAT: Margin(least=20_000),
    Metric.E2E: Margin(least=20_000),
    Metric.TOKENS_PER_SECOND: Margin(least=0),
    Metric.CONNECT: Margin(least=3_000),
    Metric.RTT: Margin(least=1_000),
}


def margin_of(metric: Metric, rules: Iterable[MarginRule] = ()) -> Margin:
    """Return the margin of a metric: the default, with what a plan's rule for the metric sets instead."""
    default = _DEFAULTS[metric]
    rule = next((rule for rule in rules if rule.metric == metric.value), None)
    if rule is None:
        return default
    return Margin(
        least=default.least if rule.least is None else rule.least,
        share=default.share if rule.percent is None else rule.percent / _PERCENT,
    )
