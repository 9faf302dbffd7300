"""Hedging: the delay after which to start the second choice, and the expected gain.

The delay is the first choice's 95th percentile, so that one request in twenty is doubled (J. Dean and L. A. Barroso,
The Tail at Scale, Communications of the ACM 56(2), 2013). The gain is that of the joint rounds in which the first
choice was slower than that: what the second one took in the same round is known, so that independence is not assumed.
If they stall together, hedging gains nothing at any delay and is not recommended.

The p99 is that of some hundred rounds, so a few of them decide whether its upper bound shows a gain. A gain that was
certain once is therefore a known one, and holds while the p99 itself shows it; otherwise a hedge would come and go with
single rounds.
"""

from collections.abc import Mapping, Sequence

from isochrone_collector.routing.inputs import Comparison, Inputs, Rules
from isochrone_collector.routing.tails import LEAST_FOR_DELAY, MIN_ROUNDS, P99s, Tail, Tails, count_rounds, p99s
from isochrone_wire.routes import Hedge

_MIN_SLOW = 3
# One round in which both were slow is chance: with three slow rounds of sixty each it happens to one pair in seven.
_MIN_BOTH = 2

Gains = Mapping[str, tuple[str, ...]]
"""First member → second members that shorten its p99."""


def known_gains(tails: Tails, rules: Rules, before: Gains) -> dict[str, tuple[str, ...]]:
    """Return the pairs whose hedge certainly shortens the p99, and of those known `before` the ones that still seem
    to.
    """
    found = {
        first: tuple(
            second
            for second, own in others.items()
            if not _gains_nothing(rules, p99s(own), is_known=second in before.get(first, ()))
        )
        for first, others in tails.items()
    }
    return {first: seconds for first, seconds in found.items() if seconds}


def hedge(inputs: Inputs, tails: Sequence[Tail], first: str, second: str, *, is_known: bool = False) -> Hedge:
    """Return the hedge of the first choice by the second, or the reason for none. `tails` are their joint rounds;
    `is_known` means that the gain was certain in earlier ones.
    """
    comparison = inputs.against(first, second)
    delay, p50 = inputs.of(first).ttft_p95_us, inputs.of(second).ttft_p50_us
    found = p99s(tails)
    if delay is None or inputs.of(first).timed < LEAST_FOR_DELAY:
        reason = f"too few samples: {inputs.of(first).timed} of {LEAST_FOR_DELAY} for a 95th percentile"
    elif p50 is None:
        reason = "the second choice has given no token yet"
    else:
        reason = (
            _cannot_win(inputs, delay.value, p50.value)
            or _stalls_together(inputs, comparison)
            or _lacks_rounds(comparison, count_rounds(tails))
            or _gains_nothing(inputs.rules, found, is_known=is_known)
        )
    return Hedge(
        target=second,
        delay_us=None if reason or delay is None else round(delay.value),
        expected_p99_without_us=round(found.alone_us) if found else None,
        expected_p99_with_us=round(found.hedged_us) if found else None,
        stall_lift=stall_lift(comparison),
        reason=reason,
        joint_rounds=count_rounds(tails),
    )


def _cannot_win(inputs: Inputs, delay_us: float, p50_us: float) -> str:
    slo_us = inputs.route.slo.ttft_p95_us
    if slo_us is None or delay_us <= slo_us - p50_us:
        return ""
    return "too late to win: what is left of the objective after the delay is less than its median"


def _stalls_together(inputs: Inputs, comparison: Comparison) -> str:
    lift = stall_lift(comparison)
    if lift is None or lift <= inputs.rules.max_stall_lift or comparison.slow_both < _MIN_BOTH:
        return ""
    return f"the two stall together, {lift:.1f} times as often as if they had nothing in common"


def _lacks_rounds(comparison: Comparison, rounds: int) -> str:
    if not comparison.joint:
        return "the two are not probed in the same rounds, so that common stalls would not show"
    return f"too few joint rounds: {rounds} of {MIN_ROUNDS} for a 99th percentile" if rounds < MIN_ROUNDS else ""


def _gains_nothing(rules: Rules, found: P99s | None, *, is_known: bool) -> str:
    """Return the reason unless the p99 is shorter by the margin: with certainty, or a gain that is known seems to
    last.
    """
    margin_us = max(rules.margin_us, rules.margin_share * found.alone_us) if found else 0.0
    if found is None or found.hedged_us > found.alone_us - margin_us:
        return "it would not shorten the tail"
    if not is_known and found.hedged_high_us > found.alone_us - margin_us:
        return "it is not certain to shorten the tail"
    return ""


def stall_lift(comparison: Comparison) -> float | None:
    """Return P(right slow | left slow) / P(right slow) over joint rounds; `None` with fewer than three slow ones."""
    if comparison.slow_left < _MIN_SLOW or comparison.slow_right < _MIN_SLOW:
        return None
    return round(comparison.slow_both * comparison.joint / (comparison.slow_left * comparison.slow_right), 3)
