"""What other policies would have given: recorded rounds, played again under each of them. Pure.

The laws:

1. Every policy is scored on the same rounds: those in which each member was asked. A member that failed counts as
   failed, not as missing; a throttled one tells of the prober's own quota, so its round is left out.
2. Nothing is taken to be independent. What a policy's requests would have met is what was recorded of the members in
   that very round, so stalls that they share are in.
3. No policy looks ahead. What it does in a round follows from the rounds before; the first rounds of each vantage are
   for learning only, and are scored for none.

A vantage is played as a client of its own, and the vantages of a region are pooled.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from isochrone_wire.model import MINUTE_US

Reals = NDArray[np.float64]
Places = NDArray[np.int64]

LOOKBACK_ROUNDS = 60
"""How many of the rounds before a choice it is made from."""

MIN_LEARNING_ROUNDS = 6
_LEARNING_SHARE = 4
# Rounds that are ranked in one go; each takes the memory of sixty.
_AT_ONCE = 4_096
# How long a failure without a limit of its own counts in a choice: as long as a probe waits for a first token.
_FAILED_US = float(MINUTE_US)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRounds:
    """The rounds of one vantage in which all members were asked: a row per round, in their order, a column per member.

    `ttft_us` is NaN where there was no first token, `limit_us` how long the probe then waited (0: not known), and
    `cost_usd` is NaN where it is not known; a request that failed without a known cost was free.
    """

    region: str
    ttft_us: Reals
    limit_us: Reals
    cost_usd: Reals

    def __len__(self) -> int:
        return len(self.ttft_us)

    @property
    def learning(self) -> int:
        """How many of the rounds are for learning only: a quarter, but at least 6 and at most 60."""
        wanted = max(MIN_LEARNING_ROUNDS, min(len(self) // _LEARNING_SHARE, LOOKBACK_ROUNDS))
        return min(wanted, len(self))

    @property
    def effective_us(self) -> Reals:
        """What each member cost in time, for choosing among them: a failure counts as its limit, at least a minute."""
        failed = np.maximum(self.limit_us, _FAILED_US)
        effective: Reals = np.where(np.isnan(self.ttft_us), failed, self.ttft_us)
        return effective


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a policy gave in the scored rounds of some tracks. `censored_us` are the limits of rounds without any first
    token; `usd` is NaN where the cost of a request is not known.
    """

    ttft_us: Reals
    censored_us: Reals
    requests: int
    switches: int
    usd: float

    @property
    def rounds(self) -> int:
        """How many rounds were scored."""
        return len(self.ttft_us) + len(self.censored_us)


def pooled(replays: Sequence[Replay]) -> Replay:
    """The replays of several tracks as one."""
    return Replay(
        ttft_us=np.concatenate([replay.ttft_us for replay in replays]),
        censored_us=np.concatenate([replay.censored_us for replay in replays]),
        requests=sum(replay.requests for replay in replays),
        switches=sum(replay.switches for replay in replays),
        usd=float(sum(replay.usd for replay in replays)),
    )


def rank_members(recorded: RecordedRounds) -> Places:
    """Before each round, the members from the lowest median of the rounds remembered to the highest.

    Before the first round, and among equals, in the order of the members.
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
    """All members `chosen` in a round (a row each) are asked at once, and the first token wins."""
    rows = np.arange(len(recorded))[:, None]
    ttft = recorded.ttft_us[rows, chosen]
    first = np.fmin.reduce(ttft, axis=1)
    sent = np.ones_like(chosen, dtype=np.bool_)
    return _scored(recorded, chosen, first, recorded.limit_us[rows, chosen].max(axis=1), sent)


def fall_back(recorded: RecordedRounds, chosen: Places, delay_us: float) -> Replay:
    """The second member `chosen` is asked too when the first has given no token after `delay_us`, even if it failed
    earlier; then the first token wins.
    """
    rows = np.arange(len(recorded))
    first, second = (recorded.ttft_us[rows, chosen[:, place]] for place in (0, 1))
    late = ~(first <= delay_us)
    ttft = np.where(late, np.fmin(first, delay_us + second), first)
    limits = (recorded.limit_us[rows, chosen[:, place]] for place in (0, 1))
    waited = np.maximum(next(limits), delay_us + next(limits))
    return _scored(recorded, chosen, ttft, waited, np.column_stack([np.ones_like(late), late]))


def _scored(recorded: RecordedRounds, chosen: Places, ttft: Reals, waited: Reals, sent: NDArray[np.bool_]) -> Replay:
    """The replay of the rounds after learning, from each round's first token, or how long it was waited for in vain."""
    scored = slice(recorded.learning, len(recorded))
    cost = np.take_along_axis(recorded.cost_usd, chosen, axis=1)
    answered = ~np.isnan(np.take_along_axis(recorded.ttft_us, chosen, axis=1))
    charged = np.where(np.isnan(cost) & ~answered, 0.0, cost)
    none = np.isnan(ttft[scored])
    firsts = chosen[max(0, recorded.learning - 1) :, 0]
    return Replay(
        ttft_us=ttft[scored][~none],
        censored_us=waited[scored][none],
        requests=int(sent[scored].sum()),
        switches=int(np.count_nonzero(firsts[1:] != firsts[:-1])),
        usd=float(np.where(sent[scored], charged[scored], 0.0).sum()),
    )
