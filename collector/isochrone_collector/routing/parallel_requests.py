"""Parallel requests: hedges, races, and the joint rounds that show what they gain.

1. *Hedge*: the second choice is requested after a delay, the first choice's 95th percentile, so that one request in
   twenty is doubled (J. Dean and L. A. Barroso, The Tail at Scale, Communications of the ACM 56(2), 2013). The gain is
   measured in joint rounds, so that independence is not assumed. Members that stall together are not hedged.
2. A few of some hundred rounds decide whether the upper bound of a p99 shows a gain. A gain that was certain once
   therefore holds while the p99 itself shows it; otherwise a hedge would come and go with single rounds.
3. *Tails*: an interval of a p99 takes 299 joint rounds, four times as many as the window of one vantage holds. So
   rounds of two members are counted, and those in which the first one was slow, the slowest tenth of its window, are
   kept with the latency of a hedge with the delay of that time: both p99s are among them. A round counts once, however
   many vantages probe in it, because they meet the same stalls. It is counted when it is an epoch old, or as old as a
   timeout if that is longer, because late samples are those of stalls.
4. *Race*: several members are requested at once. The race set is the one whose soonest answer had the lowest p95 in
   the joint rounds of its members. A price counts as the objective of the route says, in milliseconds per dollar. Of
   the sets within the margin of the soonest a smallest one is chosen: a request that gains nothing is not sent.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil

import numpy as np

from isochrone_collector.analysis.histogram import buckets_of, values_of
from isochrone_collector.analysis.stats.binomial import interval_ranks
from isochrone_collector.routing.inputs import Comparison, Inputs, Rules
from isochrone_collector.routing.objective import US_PER_MS, usd_ms, well
from isochrone_wire.routes import Hedge, RaceSet

P99_ROUNDS = 299
"""Joint rounds from which on the interval of a p99 is finite: 0.99^299 < 5 %."""

P95_ROUNDS = 59
"""Rounds from which on the interval of a p95 is finite, and the p95 is the delay of a hedge; timeouts count."""

_P99, _P95 = 0.99, 0.95
# Below the delay, which is a p95, so that a round which is not kept is as slow with a hedge as without.
_KEPT_FROM = 0.9
# The other members, in rank order, whose rounds with the first choice are remembered.
_MAX_OTHERS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The slow ones of `n` pairs in `rounds` joint rounds: TTFTs of the first member and of the hedge, as buckets."""

    rounds: int = 0
    n: int = 0
    alone: tuple[int, ...] = ()
    hedged: tuple[int, ...] = ()


Tails = Mapping[str, Mapping[str, tuple[Tail, ...]]]
"""First member → second member → the newest rounds, and the 299 or so before them."""


def extended(tails: Tails, inputs: Inputs, ranked: Sequence[str], *, since_at: int, until_at: int) -> Tails:
    """Add the rounds of [since_at, until_at); keep the pairs of the first one of `ranked` with the next ones."""
    found: dict[str, dict[str, tuple[Tail, ...]]] = {}
    for other in ranked[1 : 1 + _MAX_OTHERS]:
        # Both ways, so that a switch between the two starts with known rounds.
        for first, second in ((ranked[0], other), (other, ranked[0])):
            before = tails.get(first, {}).get(second, ())
            found.setdefault(first, {})[second] = _extended(before, inputs, (first, second), since_at, until_at)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class P99s:
    """The p99 alone, the p99 of the hedged request and the upper bound of its 95 % interval, in microseconds."""

    alone_us: float
    hedged_us: float
    hedged_high_us: float


def p99s(tails: Sequence[Tail]) -> P99s | None:
    """Return the p99s; `None` with fewer than 299 joint rounds. For the interval each round counts once."""
    rounds, n = count_rounds(tails), sum(tail.n for tail in tails)
    ranks = interval_ranks(rounds, _P99)
    if rounds < P99_ROUNDS or ranks is None:
        return None
    from_top, high_from_top = n - ceil(_P99 * n) + 1, (rounds - ranks[1] + 1) * n // rounds
    alone = sorted(one for tail in tails for one in tail.alone)
    hedged = sorted(one for tail in tails for one in tail.hedged)
    values = values_of([alone[-from_top], hedged[-from_top], hedged[-high_from_top]]).tolist()
    return P99s(alone_us=values[0], hedged_us=values[1], hedged_high_us=values[2])


def count_rounds(tails: Sequence[Tail]) -> int:
    """Return the number of joint rounds."""
    return sum(tail.rounds for tail in tails)


def _extended(
    before: tuple[Tail, ...], inputs: Inputs, pair: tuple[str, str], since_at: int, until_at: int
) -> tuple[Tail, ...]:
    delay = inputs.of(pair[0]).ttft_p95_us
    rounds_at, ttft_us = inputs.joint.of(*pair)
    fresh = (rounds_at >= since_at) & (rounds_at < until_at)
    if delay is None or inputs.of(pair[0]).timed < P95_ROUNDS or not fresh.any():
        return before
    alone_us, other_us = ttft_us[fresh].T
    place = ceil(_KEPT_FROM * (len(ttft_us) - 1))
    slow = alone_us >= np.partition(ttft_us[:, 0], place)[place]
    hedged_us = np.minimum(alone_us, delay.value + other_us)
    last = before[0] if before else Tail()
    newest = Tail(
        rounds=last.rounds + len(np.unique(rounds_at[fresh])),
        n=last.n + int(fresh.sum()),
        alone=(*last.alone, *buckets_of(alone_us[slow]).tolist()),
        hedged=(*last.hedged, *buckets_of(hedged_us[slow]).tolist()),
    )
    return (newest, *before[1:]) if newest.rounds < P99_ROUNDS else (Tail(), newest)


_MIN_SLOW = 3
# One round in which both were slow is chance: with three slow rounds of sixty each it happens to one pair in seven.
_MIN_BOTH = 2

Gains = Mapping[str, tuple[str, ...]]
"""First member → second members that shorten its p99."""


def known_gains(tails: Tails, rules: Rules, before: Gains) -> dict[str, tuple[str, ...]]:
    """Return the pairs whose hedge certainly shortens the p99, and those of `before` that still seem to."""
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
    """Return the hedge of the first choice, or the reason for none; `is_known` if the gain was certain earlier."""
    comparison, found = inputs.against(first, second), p99s(tails)
    reason = _obstacle(inputs, first, second, count_rounds(tails)) or _gains_nothing(
        inputs.rules, found, is_known=is_known
    )
    delay = inputs.of(first).ttft_p95_us
    return Hedge(
        target=second,
        delay_us=None if reason or delay is None else round(delay.value),
        expected_p99_without_us=round(found.alone_us) if found else None,
        expected_p99_with_us=round(found.hedged_us) if found else None,
        stall_lift=stall_lift(comparison),
        reason=reason,
        joint_rounds=count_rounds(tails),
    )


def _obstacle(inputs: Inputs, first: str, second: str, rounds: int) -> str:
    """Return why a hedge is not possible, whatever it would gain; empty if it is."""
    comparison, slo_us = inputs.against(first, second), inputs.route.slo.ttft_p95_us
    delay, p50, lift = inputs.of(first).ttft_p95_us, inputs.of(second).ttft_p50_us, stall_lift(comparison)
    if delay is None or inputs.of(first).timed < P95_ROUNDS:
        return f"too few samples: {inputs.of(first).timed} of {P95_ROUNDS} for a 95th percentile"
    if p50 is None:
        return "the second choice has given no token yet"
    if slo_us is not None and delay.value > slo_us - p50.value:
        return "too late to win: what is left of the objective after the delay is less than its median"
    if lift is not None and lift > inputs.rules.max_stall_lift and comparison.slow_both >= _MIN_BOTH:
        return f"the two stall together, {lift:.1f} times as often as if they had nothing in common"
    if not comparison.joint:
        return "the two are not probed in the same rounds, so that common stalls would not show"
    return f"too few joint rounds: {rounds} of {P99_ROUNDS} for a 99th percentile" if rounds < P99_ROUNDS else ""


def _gains_nothing(rules: Rules, found: P99s | None, *, is_known: bool) -> str:
    """Return the reason unless the p99 is shorter by the margin: certainly, or apparently if the gain is known."""
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


MemberSet = tuple[str, ...]

_MAX_RACED = 3
_MAX_CANDIDATES = 6


def race_set(inputs: Inputs, members: Sequence[str]) -> RaceSet | None:
    """Return the best set of `members`, in rank order; `None` while the best healthy one has too few samples."""
    candidates = well(inputs, members)[:_MAX_CANDIDATES]
    sets = [chosen for k in range(1, _MAX_RACED + 1) for chosen in combinations(candidates, k)]
    expected = {chosen: p95_us for chosen in sets if (p95_us := _p95_us(inputs, chosen)) is not None}
    if not candidates or (candidates[0],) not in expected:
        return None
    usd = {target: usd_ms(inputs.described(target), inputs.route.objective) for target in candidates}
    scores = {chosen: p95_us + US_PER_MS * sum(map(usd.__getitem__, chosen)) for chosen, p95_us in expected.items()}
    soonest = min(scores.values())
    near = soonest + max(inputs.rules.margin_us, inputs.rules.margin_share * soonest)
    best = min((chosen for chosen in scores if scores[chosen] <= near), key=lambda one: (len(one), scores[one], one))
    factor, reason = _cost_factor(inputs, best, first=candidates[0])
    return RaceSet(
        targets=best,
        expected_p95_us=round(expected[best]),
        usd_factor=factor,
        reason=reason if len(best) > 1 else _why_alone(best[0], candidates, expected),
    )


def _cost_factor(inputs: Inputs, chosen: MemberSet, *, first: str) -> tuple[float, str]:
    """Return the cost of a set as a multiple of the first choice's; the number of requests if a price is unknown."""
    prices = [inputs.described(target).price for target in (first, *chosen)]
    known = [price.usd_per_m_output for price in prices if price]
    if len(known) < len(prices) or not known[0]:
        return float(len(chosen)), "prices are not all known: each request counts the same"
    return round(sum(known[1:]) / known[0], 3), ""


def _why_alone(target: str, well: Sequence[str], expected: Collection[MemberSet]) -> str:
    """Return why a set has only one member."""
    others = [other for other in well if other != target]
    raced = {member for chosen in expected if target in chosen for member in chosen}
    few = [other for other in others if (other,) not in expected]
    apart = [other for other in others if other not in raced and other not in few]
    reasons = [
        "no request beside it would be answered sooner" if len(raced) > 1 else "",
        f"fewer than {P95_ROUNDS} samples of {', '.join(few)}" if few else "",
        f"fewer than {P95_ROUNDS} joint rounds with {', '.join(apart)}" if apart else "",
    ]
    return f"{target} alone: {'; '.join(filter(None, reasons)) or 'no other member can answer'}"


def _p95_us(inputs: Inputs, chosen: MemberSet) -> float | None:
    """Return the p95 of the soonest answer, in microseconds; `None` with fewer than 59 joint rounds."""
    _, ttft_us = inputs.joint.of(*chosen)
    if len(ttft_us) < P95_ROUNDS:
        return None
    soonest = np.sort(ttft_us.min(axis=1))
    return float(soonest[ceil(_P95 * len(soonest)) - 1])
