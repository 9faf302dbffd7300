"""Hedging: the delay after which to start the second choice, and the expected gain.

With delay d the hedged request takes longer than t with probability S(t) = A(t) for t <= d, and A(t) · B(t - d) after,
where A and B are the survival functions of first and second choice, provided that they do not stall together. The delay
is the first choice's 95th percentile, so that one request in twenty is doubled (J. Dean and L. A. Barroso, The Tail at
Scale, Communications of the ACM 56(2), 2013). If they stall together, hedging gains nothing at any delay and is not
recommended.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isochrone_collector.analysis.histogram import values_of
from isochrone_collector.routing.inputs import Comparison, Evidence, Inputs
from isochrone_wire.routes import Hedge

Reals = NDArray[np.float64]

_ROUNDING = 1e-9
_TAIL = 0.01
_MIN_SLOW = 3
# One round in which both were slow is chance: with three slow rounds of sixty each it happens to one pair in seven.
_MIN_BOTH = 2


@dataclass(frozen=True, slots=True)
class Latencies:
    """The distribution of one member's TTFT: ascending values in microseconds, and the number of probes up to each.

    Timeouts rank above all others, at the larger of their limit and the largest value.
    """

    values_us: Reals
    at_most: Reals
    n: int

    def survival(self, at_us: Reals) -> Reals:
        """Return the share of probes that took longer than each duration."""
        below = np.searchsorted(self.values_us, at_us, side="right")
        return 1.0 - np.concatenate([[0.0], self.at_most])[below] / self.n

    def quantile_us(self, share: float) -> float:
        """Return the nearest-rank quantile in microseconds."""
        place = int(np.searchsorted(self.at_most, (share - _ROUNDING) * self.n))
        return float(self.values_us[min(place, len(self.values_us) - 1)])


def latencies_of(evidence: Evidence) -> Latencies | None:
    """Return the TTFT distribution of a member's evidence; `None` without values."""
    counts = _sorted(evidence.histogram)
    late = _sorted(evidence.censored)
    if not counts:
        return None
    last = max(counts[-1][0], late[-1][0]) if late else counts[-1][0]
    merged = [*counts, (last, sum(count for _, count in late))] if late else counts
    values = values_of([bucket for bucket, _ in merged])
    totals = np.cumsum([count for _, count in merged]).astype(np.float64)
    return Latencies(values, totals, int(totals[-1]))


def hedge(inputs: Inputs, first: str, second: str) -> Hedge:
    """Return the hedge of the first choice by the second, or the reason for none."""
    one, other = inputs.of(first), inputs.of(second)
    comparison = inputs.against(first, second)
    lift = stall_lift(comparison)
    delay, p50 = one.ttft_p95_us, other.ttft_p50_us
    left, right = latencies_of(one), latencies_of(other)
    if delay is None or delay.low is None or left is None:
        return Hedge(target=second, stall_lift=lift, reason=f"too few samples: {one.n} of 59 for a 95th percentile")
    if p50 is None or right is None:
        return Hedge(target=second, stall_lift=lift, reason="the second choice has given no token yet")
    without = left.quantile_us(1 - _TAIL)
    with_hedge = hedged_quantile_us(left, right, delay.value)
    reason = (
        _cannot_win(inputs, delay.value, p50.value)
        or _stalls_together(inputs, comparison, lift)
        or ("it would not shorten the tail" if with_hedge >= without else "")
    )
    return Hedge(
        target=second,
        delay_us=None if reason else round(delay.value),
        expected_p99_without_us=round(without),
        expected_p99_with_us=round(with_hedge),
        stall_lift=lift,
        reason=reason,
    )


def _cannot_win(inputs: Inputs, delay_us: float, p50_us: float) -> str:
    slo_us = inputs.route.slo.ttft_p95_us
    if slo_us is None or delay_us <= slo_us - p50_us:
        return ""
    return "too late to win: what is left of the objective after the delay is less than its median"


def _stalls_together(inputs: Inputs, comparison: Comparison, lift: float | None) -> str:
    if lift is None or lift <= inputs.rules.max_stall_lift or comparison.slow_both < _MIN_BOTH:
        return ""
    return f"the two stall together, {lift:.1f} times as often as if they had nothing in common"


def stall_lift(comparison: Comparison) -> float | None:
    """Return P(right slow | left slow) / P(right slow) over shared rounds; `None` with fewer than three slow ones."""
    if comparison.slow_left < _MIN_SLOW or comparison.slow_right < _MIN_SLOW:
        return None
    return round(comparison.slow_both * comparison.n / (comparison.slow_left * comparison.slow_right), 3)


def hedged_quantile_us(first: Latencies, second: Latencies, delay_us: float, *, tail: float = _TAIL) -> float:
    """Return the duration, in microseconds, that a share `tail` of the hedged requests exceeds."""

    def survival(at_us: Reals) -> Reals:
        apart = np.where(at_us > delay_us, second.survival(np.maximum(at_us - delay_us, 0.0)), 1.0)
        return first.survival(at_us) * apart

    return survival_quantile(survival, np.concatenate([first.values_us, second.values_us + delay_us]), tail)


def survival_quantile(survival: Callable[[Reals], Reals], steps_us: Reals, tail: float) -> float:
    """Return where a survival function that steps at `steps_us` falls to `tail`; the last step if it never does."""
    ordered = np.sort(steps_us)
    under = np.flatnonzero(survival(ordered) <= tail + _ROUNDING)
    return float(ordered[under[0] if len(under) else -1])


def _sorted(histogram: Mapping[int, int]) -> list[tuple[int, int]]:
    return sorted(histogram.items())
