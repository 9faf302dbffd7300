"""Replay of recorded rounds under other policies. Pure.

The laws:

1. Every policy is scored on the same rounds: those in which every member was probed. A failed member counts as failed,
   not as missing; a throttled one reflects the agent's own quota, so its round is left out.
2. Members are not assumed to be independent. A policy's requests get the results recorded in that very round, so common
   stalls are included where the rounds are joint (see below).
3. No policy looks ahead. Its choice in a round follows from earlier rounds; the first rounds of each vantage are for
   learning only, and are not scored.

Each vantage is replayed as a separate client, and the vantages of a region are pooled.

Probes of several targets are grouped into shared rounds. Targets of one route have the same rounds
(`isochrone_wire.rounds`): these are *joint* rounds, in which a stall that the targets share meets all of them. Other
targets share slots only. A slot is as long as the longest interval, so that it holds a round of every target; of
several rounds of a target the first counts. So the targets of a slot were probed within one interval of each other,
though not at the same instant.

The policies of a client that chooses among members:

static            always the member that was best over the learning rounds of all regions
static:TARGET     always this member
nearest           in each region, always the member that was best over its learning rounds
routed            the best so far, switched only under the rules below
race:K            the K best so far at once; the first token wins
fallback:MS       the best so far, and the second best too if there is no token after MS milliseconds

`routed` is a simple form of the routing rules. A challenger takes over if the 95 % interval of incumbent minus
challenger, paired by round over the rounds looked back at, lies above zero and the shift is at least max(20 ms, 5 % of
the incumbent's median), three rounds running. After three failures in a row the next best member takes over at once.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from isochrone_collector.analysis.distribution import Values
from isochrone_collector.analysis.stats.arrays import Flags, Integers, Reals, ragged
from isochrone_collector.analysis.stats.long_run_variance import independent, inflation
from isochrone_collector.analysis.stats.shifts import interval_depth, paired_shifts
from isochrone_wire.model import MINUTE_US, SECOND_US
from isochrone_wire.text import unknown

Places = Integers

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
    `ttft_us` is NaN without a first token, `limit_us` is then the time waited (0: unknown); unknown costs are NaN.
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
    """The result of a policy over the scored rounds: their TTFT or limits, and US dollars, NaN if a cost is unknown."""

    ttft: Values
    requests: int
    switches: int
    usd: float


def pooled(replays: Sequence[Replay]) -> Replay:
    """Pool the replays of several vantages: rounds at the same place, which may be slow together, are neighbours."""
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
    """Rank the members before each round by the median of the rounds looked back at; equals stay in order."""
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
    """Replay requests to the first member `chosen`, and without a token after `delay_us` to the second one too."""
    rows = np.arange(len(recorded))
    first, second = recorded.ttft_us[rows, chosen[:, :2].T]
    late = ~(first <= delay_us)
    ttft = np.where(late, np.fmin(first, delay_us + second), first)
    limit, second_limit = recorded.limit_us[rows, chosen[:, :2].T]
    waited = np.maximum(limit, delay_us + second_limit)
    return _scored(recorded, chosen, ttft, waited, np.column_stack([np.ones_like(late), late]))


def _scored(recorded: RecordedRounds, chosen: Places, ttft: Reals, waited: Reals, sent: Flags) -> Replay:
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


_TOGETHER_US = SECOND_US


@dataclass(frozen=True, slots=True, kw_only=True)
class SentProbes:
    """One row per probe that was sent, unordered; columns as of `RecordedRounds`."""

    target_id: Integers
    vantage_id: Integers
    round_at: Integers
    dispatched_at: Integers
    throttled: Flags
    ttft_us: Reals
    limit_us: Reals
    cost_usd: Reals

    def __len__(self) -> int:
        return len(self.target_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRounds:
    """The rounds of one vantage in which every member was probed, the number of the rest, and members never probed."""

    recorded: RecordedRounds
    left_out: int
    absent: tuple[int, ...] = ()


def find_shared_rounds(
    sent: SentProbes, members: Sequence[int], region_of: Mapping[int, str], *, slot_us: int | None = None
) -> list[SharedRounds]:
    """Return each vantage's slots that all members share; without `slot_us` joint rounds, begun within a second."""
    order = np.lexsort((sent.dispatched_at, sent.round_at))
    return [
        _of_vantage(sent, order[sent.vantage_id[order] == vantage_id], members, region_of[int(vantage_id)], slot_us)
        for vantage_id in np.unique(sent.vantage_id)
    ]


def _of_vantage(
    sent: SentProbes, rows: Integers, members: Sequence[int], region: str, slot_us: int | None
) -> SharedRounds:
    slots, place = np.unique(sent.round_at[rows] // (slot_us or 1), return_inverse=True)
    # The row in `sent` per slot and member, or -1; writing backwards keeps the first.
    first = np.full((len(slots), len(members)), -1, np.int64)
    for column, member in enumerate(members):
        of_member = sent.target_id[rows] == member
        first[place[of_member][::-1], column] = rows[of_member][::-1]
    whole = (first >= 0).all(axis=1) & ~(sent.throttled[first] & (first >= 0)).any(axis=1)
    if slot_us is None:
        whole &= np.ptp(sent.dispatched_at[first], axis=1) <= _TOGETHER_US
    chosen = first[whole]
    recorded = RecordedRounds(
        region=region,
        ttft_us=sent.ttft_us[chosen],
        limit_us=sent.limit_us[chosen],
        cost_usd=sent.cost_usd[chosen],
    )
    absent = tuple(int(column) for column in np.flatnonzero((first < 0).all(axis=0)))
    return SharedRounds(recorded=recorded, left_out=int(len(slots) - whole.sum()), absent=absent)


DEFAULTS = ("static", "nearest", "routed", "race:2", "fallback:200")
KINDS = ("static", "nearest", "routed", "race", "fallback")
_US_PER_MS = 1000
_MAX_DELAY_MS = 600_000
_DELAY = re.compile(r"(\d{1,6})\s*(?:ms)?")
_CHARGED = "usd counts every request that was begun as charged in full, as a cancelled stream may be"
_ROUNDS_RUNNING = 3
_FAILURES_RUNNING = 3
_MARGIN_US = 20_000.0
_MARGIN_SHARE = 0.05


class PolicyError(ValueError):
    """An invalid policy. Act: the caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInput:
    """A vantage's recorded rounds, the ranking before each round, and the best member over all regions."""

    recorded: RecordedRounds
    ranking: Places
    best: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy with its full name, its replay, and a note; with `several` requests at once it needs joint rounds."""

    name: str
    play: Callable[[PolicyInput], Replay]
    note: str = ""
    several: bool = False


def policy_inputs(recordings: Sequence[RecordedRounds]) -> list[PolicyInput]:
    """Prepare recordings for the policies."""
    learning = np.concatenate([recorded.effective_us[: recorded.learning] for recorded in recordings])
    best = int(np.argmin(np.median(learning, axis=0)))
    return [PolicyInput(recorded=recorded, ranking=rank_members(recorded), best=best) for recorded in recordings]


def policy(text: str, members: Sequence[str], *, best: int = 0) -> Policy:
    """Parse a policy of these members, of which `best` is the best over all regions. Raises `PolicyError`."""
    kind, _, argument = text.strip().partition(":")
    argument = argument.strip()
    match kind:
        case "static":
            member = _member(argument, members) if argument else best
            return Policy(
                name=f"static:{members[member]}", play=lambda given: race(given.recorded, _always(given, member))
            )
        case "nearest" | "routed" if argument:
            raise PolicyError(f"{kind} takes nothing behind a colon, not {argument!r}")
        case "nearest":
            return Policy(name=kind, play=_nearest)
        case "routed":
            return Policy(
                name=kind,
                play=lambda given: race(given.recorded, incumbents(given.recorded, given.ranking)[:, None]),
            )
        case "race":
            if not argument.isdecimal() or not 2 <= int(argument) <= len(members):  # noqa: PLR2004  # one alone is no race
                raise PolicyError(f"race takes how many of the {len(members)} members run, from 2 on, not {argument!r}")
            count = int(argument)
            return _several(f"race:{count}", lambda given: race(given.recorded, given.ranking[:, :count]))
        case "fallback":
            match = _DELAY.fullmatch(argument)
            if match is None or not 0 < int(match[1]) <= _MAX_DELAY_MS:
                raise PolicyError(f"fallback takes milliseconds, from 1 to {_MAX_DELAY_MS}, not {argument!r}")
            delay_us = float(int(match[1]) * _US_PER_MS)
            return _several(
                f"fallback:{int(match[1])}",
                lambda given: fall_back(given.recorded, given.ranking[:, :2], delay_us),
            )
        case _:
            raise PolicyError(unknown("policy", kind, KINDS))


def _several(name: str, play: Callable[[PolicyInput], Replay]) -> Policy:
    return Policy(name=name, play=play, note=_CHARGED, several=True)


def _nearest(given: PolicyInput) -> Replay:
    learning = given.recorded.effective_us[: given.recorded.learning]
    return race(given.recorded, _always(given, int(np.argmin(np.median(learning, axis=0)))))


def _member(argument: str, members: Sequence[str]) -> int:
    """Return the place of the member of that name, or of the only one whose model has that name or prefix."""
    fits = (
        [name for name in members if name == argument],
        [name for name in members if name.rpartition("/")[2] == argument],
        [name for name in members if name.rpartition("/")[2].startswith(argument)],
    )
    found = next(filter(None, fits), [])
    if len(found) != 1:
        raise PolicyError(unknown("member", argument, members))
    return list(members).index(found[0])


def _always(given: PolicyInput, member: int) -> Places:
    return np.full((len(given.recorded), 1), member)


def incumbents(recorded: RecordedRounds, ranking: Places) -> Places:
    """Return the member in use in each round; the best so far until there are six rounds to compare."""
    effective, failed = recorded.effective_us, np.isnan(recorded.ttft_us)
    chosen = ranking[:, 0].copy()
    running = 0
    for place in range(MIN_LEARNING_ROUNDS, len(recorded)):
        current, challenger = int(chosen[place - 1]), int(ranking[place, 0])
        same = challenger == int(ranking[place - 1, 0])
        memory = effective[max(0, place - LOOKBACK_ROUNDS) : place]
        better = challenger != current and _is_better(memory[:, current], memory[:, challenger])
        running = (running if same else 0) + 1 if better else 0
        if failed[place - _FAILURES_RUNNING : place, current].all():
            # The failing member may still have the lowest median.
            challenger, running = next(int(member) for member in ranking[place] if member != current), _ROUNDS_RUNNING
        chosen[place] = challenger if running >= _ROUNDS_RUNNING else current
    return chosen


def _is_better(incumbent: Reals, challenger: Reals) -> bool:
    differences = incumbent - challenger
    if not _may_be_above_zero(differences):
        return False
    series = ragged([differences])
    # The interval is at least as wide as that of independent differences.
    found = paired_shifts(series, known=inflation(series).wider(independent(1)))
    margin = max(_MARGIN_US, _MARGIN_SHARE * float(np.median(incumbent)))
    return bool(found.low[0] > 0 and found.estimate[0] >= margin)


def _may_be_above_zero(differences: Reals) -> bool:
    """Return whether the interval could lie above zero, in a hundredth of the time: before widening, its lower bound is
    the Walsh average at a depth, and each difference at or below zero makes as many averages there as its rank by size.
    """
    depth = interval_depth(len(differences))
    ranks = np.argsort(np.argsort(np.abs(differences))) + 1
    return depth is not None and int(ranks[differences <= 0].sum()) < depth
