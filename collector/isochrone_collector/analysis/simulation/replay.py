"""Replay of recorded rounds under other policies. Pure.

The laws:

1. Every policy is scored on the same rounds: those in which every member was probed. A failed member counts as failed,
   not as missing; a throttled one reflects the agent's own quota, so its round is left out.
2. Members are not assumed to be independent. A policy's requests get the results recorded in that very round, so common
   stalls are included where the rounds are joint (`shared_rounds`).
3. No policy looks ahead. Its choice in a round follows from earlier rounds; the first rounds of each vantage are for
   learning only, and are not scored.

Each vantage is replayed as a separate client, and the vantages of a region are pooled.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from isochrone_collector.analysis.distribution import Values
from isochrone_wire.model import MINUTE_US

Reals = NDArray[np.float64]
Places = NDArray[np.int64]

LOOKBACK_ROUNDS = 60
"""The number of earlier rounds that a choice is based on."""

MIN_LEARNING_ROUNDS = 6
_LEARNING_SHARE = 4
# Rounds that are ranked at once; each takes the memory of sixty.
_AT_ONCE = 4_096
# The duration of a failure without a recorded limit: the time that a probe waits for a first token.
_FAILED_US = float(MINUTE_US)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRounds:
    """The rounds of one vantage in which all members were probed: a row per round, in order, a column per member.

    `ttft_us` is NaN without a first token, `limit_us` is then the time waited (0: unknown); `cost_usd` is NaN if
    unknown; a failed request without a known cost counts as free.
    """

    region: str
    ttft_us: Reals
    limit_us: Reals
    cost_usd: Reals

    def __len__(self) -> int:
        return len(self.ttft_us)

    @property
    def learning(self) -> int:
        """The number of rounds for learning only: a quarter, but at least 6 and at most 60."""
        wanted = max(MIN_LEARNING_ROUNDS, min(len(self) // _LEARNING_SHARE, LOOKBACK_ROUNDS))
        return min(wanted, len(self))

    @property
    def effective_us(self) -> Reals:
        """TTFT for choosing among members; a failure counts as its limit, at least a minute."""
        failed = np.maximum(self.limit_us, _FAILED_US)
        effective: Reals = np.where(np.isnan(self.ttft_us), failed, self.ttft_us)
        return effective


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The result of a policy over the scored rounds: their times to the first token, in microseconds, or the limits of
    rounds without any; `usd` is NaN if the cost of a request is unknown.
    """

    ttft: Values
    requests: int
    switches: int
    usd: float


def pooled(replays: Sequence[Replay]) -> Replay:
    """Pool the replays of several vantages. Rounds at the same place of each are next to each other, because what slows
    one vantage down may slow the others down too.
    """
    parts = [replay.ttft for replay in replays]
    places = np.concatenate([(np.arange(part.n) + 0.5) / max(part.n, 1) for part in parts])
    order = np.argsort(places, kind="stable")
    return Replay(
        ttft=Values(
            values=np.concatenate([part.values for part in parts])[order],
            censored=np.concatenate([part.censored for part in parts])[order],
        ),
        requests=sum(replay.requests for replay in replays),
        switches=sum(replay.switches for replay in replays),
        usd=float(sum(replay.usd for replay in replays)),
    )


def rank_members(recorded: RecordedRounds) -> Places:
    """Rank the members before each round, from the lowest median of the rounds looked back at to the highest.

    Before the first round, and among equals, the members are in their own order.
    """
    effective = recorded.effective_us
    ranks = np.tile(np.arange(effective.shape[1]), (len(effective), 1))
    for place in range(1, min(LOOKBACK_ROUNDS, len(effective))):
        ranks[place] = np.argsort(np.median(effective[:place], axis=0), kind="stable")
    if len(effective) > LOOKBACK_ROUNDS:
        memories = sliding_window_view(effective, LOOKBACK_ROUNDS, axis=0)[:-1]
        for start in range(0, len(memories), _AT_ONCE):
            medians = np.median(memories[start : start + _AT_ONCE], axis=2)
            begin = LOOKBACK_ROUNDS + start
            ranks[begin : begin + len(medians)] = np.argsort(medians, axis=1, kind="stable")
    return ranks


def race(recorded: RecordedRounds, chosen: Places) -> Replay:
    """Replay requests to all members `chosen` in a round (a row each) at once; the first token wins."""
    rows = np.arange(len(recorded))[:, None]
    ttft = recorded.ttft_us[rows, chosen]
    first = np.fmin.reduce(ttft, axis=1)
    sent = np.ones_like(chosen, dtype=np.bool_)
    return _scored(recorded, chosen, first, recorded.limit_us[rows, chosen].max(axis=1), sent)


def fall_back(recorded: RecordedRounds, chosen: Places, delay_us: float) -> Replay:
    """Replay a request to the first member `chosen`, and to the second too if there is no token after `delay_us` (even
    if the first failed earlier); then the first token wins.
    """
    rows = np.arange(len(recorded))
    first, second = (recorded.ttft_us[rows, chosen[:, place]] for place in (0, 1))
    late = ~(first <= delay_us)
    ttft = np.where(late, np.fmin(first, delay_us + second), first)
    limits = (recorded.limit_us[rows, chosen[:, place]] for place in (0, 1))
    waited = np.maximum(next(limits), delay_us + next(limits))
    return _scored(recorded, chosen, ttft, waited, np.column_stack([np.ones_like(late), late]))


def _scored(recorded: RecordedRounds, chosen: Places, ttft: Reals, waited: Reals, sent: NDArray[np.bool_]) -> Replay:
    """Score the rounds after learning, from each round's TTFT, or the time waited if there was no token."""
    scored = slice(recorded.learning, len(recorded))
    cost = np.take_along_axis(recorded.cost_usd, chosen, axis=1)
    answered = ~np.isnan(np.take_along_axis(recorded.ttft_us, chosen, axis=1))
    charged = np.where(np.isnan(cost) & ~answered, 0.0, cost)
    none = np.isnan(ttft[scored])
    firsts = chosen[max(0, recorded.learning - 1) :, 0]
    return Replay(
        ttft=Values(values=np.where(none, waited[scored], ttft[scored]), censored=none),
        requests=int(sent[scored].sum()),
        switches=int(np.count_nonzero(firsts[1:] != firsts[:-1])),
        usd=float(np.where(sent[scored], charged[scored], 0.0).sum()),
    )
