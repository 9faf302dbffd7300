"""Memory of slow joint rounds, from which the p99 of a hedge is known.

A p99 needs 299 joint rounds for an interval, four times as many as the window of one vantage holds. So the rounds of
two members are counted, and those in which the first one was slow, the slowest tenth of its window, are kept with the
latency that a hedge with the delay of that time would have had: both p99s are among them. However many vantages probe
in a round, it counts once, because they meet the same stalls. It is counted when it is an epoch old, or as old as a
timeout if that is longer, so that late samples are included: those of stalls come last.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from isochrone_collector.analysis.histogram import buckets_of, values_of
from isochrone_collector.analysis.stats.binomial import interval_ranks
from isochrone_collector.routing.inputs import Inputs

MIN_ROUNDS = 299
"""Joint rounds from which on the interval of a p99 is finite: 0.99^299 < 5 %."""

LEAST_FOR_DELAY = 59
"""First tokens and timeouts from which on their p95 is the delay of a hedge; a timeout is slower than any first token.
Without an interval: the p99 with it is tested.
"""

_SHARE = 0.99
# Below the delay, which is a p95, so that a round which is not kept is as slow with a hedge as without.
_KEPT_FROM = 0.9
# The other members, in rank order, whose rounds with the first choice are remembered.
_MAX_OTHERS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The slow ones of `n` pairs of probes in `rounds` joint rounds: the TTFT of the first member alone and that of the
    hedged request, as histogram buckets.
    """

    rounds: int = 0
    n: int = 0
    alone: tuple[int, ...] = ()
    hedged: tuple[int, ...] = ()


Tails = Mapping[str, Mapping[str, tuple[Tail, ...]]]
"""First member → second member → the newest rounds, and the 299 or so before them."""


def extended(tails: Tails, inputs: Inputs, ranked: Sequence[str], *, since_at: int, until_at: int) -> Tails:
    """Add the rounds of [since_at, until_at); keep the pairs of the first one of `ranked` with the next ones."""
    found: dict[str, dict[str, tuple[Tail, ...]]] = {}
    for first, second in _pairs(ranked):
        before = tails.get(first, {}).get(second, ())
        found.setdefault(first, {})[second] = _extended(before, inputs, (first, second), since_at, until_at)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class P99s:
    """The p99 of the first member alone and that of the hedged request with the upper bound of its 95 % interval, in
    microseconds.
    """

    alone_us: float
    hedged_us: float
    hedged_high_us: float


def p99s(tails: Sequence[Tail]) -> P99s | None:
    """Return the p99s; `None` with fewer than 299 joint rounds. For the interval each round counts once."""
    rounds, n = count_rounds(tails), sum(tail.n for tail in tails)
    ranks = interval_ranks(rounds, _SHARE)
    if rounds < MIN_ROUNDS or ranks is None:
        return None
    from_top, high_from_top = n - ceil(_SHARE * n) + 1, (rounds - ranks[1] + 1) * n // rounds
    alone, hedged = (sorted(one for tail in tails for one in of(tail)) for of in (_alone, _hedged))
    values = values_of([alone[-from_top], hedged[-from_top], hedged[-high_from_top]]).tolist()
    return P99s(alone_us=values[0], hedged_us=values[1], hedged_high_us=values[2])


def count_rounds(tails: Sequence[Tail]) -> int:
    """Return the number of joint rounds."""
    return sum(tail.rounds for tail in tails)


def _alone(tail: Tail) -> tuple[int, ...]:
    return tail.alone


def _hedged(tail: Tail) -> tuple[int, ...]:
    return tail.hedged


def _pairs(ranked: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of the first choice with others, both ways, so that a switch between the two starts with known
    rounds.
    """
    for other in ranked[1 : 1 + _MAX_OTHERS]:
        yield ranked[0], other
        yield other, ranked[0]


def _extended(
    before: tuple[Tail, ...], inputs: Inputs, pair: tuple[str, str], since_at: int, until_at: int
) -> tuple[Tail, ...]:
    delay = inputs.of(pair[0]).ttft_p95_us
    rounds_at, ttft_us = inputs.joint.of(*pair)
    fresh = (rounds_at >= since_at) & (rounds_at < until_at)
    if delay is None or inputs.of(pair[0]).timed < LEAST_FOR_DELAY or not fresh.any():
        return before
    alone_us, other_us = ttft_us[fresh].T
    slow = alone_us >= np.quantile(ttft_us[:, 0], _KEPT_FROM)
    hedged_us = np.minimum(alone_us, delay.value + other_us)
    last = before[0] if before else Tail()
    newest = Tail(
        rounds=last.rounds + len(np.unique(rounds_at[fresh])),
        n=last.n + int(fresh.sum()),
        alone=(*last.alone, *buckets_of(alone_us[slow]).tolist()),
        hedged=(*last.hedged, *buckets_of(hedged_us[slow]).tolist()),
    )
    return (newest, *before[1:]) if newest.rounds < MIN_ROUNDS else (Tail(), newest)
