"""Simulated policies of a client that chooses among members, and their syntax. Pure.

static            always the member that was best over the learning rounds of all regions
static:TARGET     always this member
nearest           in each region, always the member that was best over its learning rounds
routed            the best so far, switched only under the rules below
race:K            the K best so far at once; the first token wins
fallback:MS       the best so far, and the second best too if there is no token after MS milliseconds

`routed` is a simple form of the routing rules. A challenger takes over if the 95 % interval of incumbent minus
challenger, paired by round over the rounds looked back at, lies above zero and the shift is at least max(20 ms, 5 % of
the incumbent's median), three rounds running. After three failures in a row the next best member takes over at once.
Without such rules two equally good members would alternate all day without any gain.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from isochrone_collector.analysis.simulation.replay import (
    LOOKBACK_ROUNDS,
    MIN_LEARNING_ROUNDS,
    Places,
    Reals,
    RecordedRounds,
    Replay,
    fall_back,
    race,
    rank_members,
)
from isochrone_collector.analysis.stats.long_run_variance import inflation
from isochrone_collector.analysis.stats.paired import Shift, hodges_lehmann
from isochrone_collector.analysis.stats.ragged import ragged
from isochrone_collector.analysis.stats.signed_rank import interval_depth
from isochrone_wire.text import unknown

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
    """A policy with its full name, its replay function, and a note on its figures. One with `several` requests per
    round depends on what their members do at the same time, so that it takes joint rounds.
    """

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
    """Parse a policy; `members` are names, `best` is the place of the best one over all regions.

    Raises `PolicyError`.
    """
    kind, _, argument = text.strip().partition(":")
    if kind not in KINDS:
        raise PolicyError(unknown("policy", kind, KINDS))
    if kind not in _TAKES_ARGUMENT and argument:
        raise PolicyError(f"{kind} takes nothing behind a colon, not {argument!r}")
    return _MAKERS[kind](argument.strip(), members, best)


def _static_policy(argument: str, members: Sequence[str], best: int) -> Policy:
    member = _member(argument, members) if argument else best
    return Policy(name=f"static:{members[member]}", play=lambda given: race(given.recorded, _always(given, member)))


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


def _nearest_policy(_argument: str, _members: Sequence[str], _best: int) -> Policy:
    def play(given: PolicyInput) -> Replay:
        learning = given.recorded.effective_us[: given.recorded.learning]
        return race(given.recorded, _always(given, int(np.argmin(np.median(learning, axis=0)))))

    return Policy(name="nearest", play=play)


def _routed_policy(_argument: str, _members: Sequence[str], _best: int) -> Policy:
    return Policy(
        name="routed",
        play=lambda given: race(given.recorded, incumbents(given.recorded, given.ranking)[:, None]),
    )


def _race_policy(argument: str, members: Sequence[str], _best: int) -> Policy:
    if not argument.isdecimal() or not 2 <= int(argument) <= len(members):  # noqa: PLR2004  # one alone is no race
        raise PolicyError(f"race takes how many of the {len(members)} members run, from 2 on, not {argument!r}")
    count = int(argument)
    return Policy(
        name=f"race:{count}",
        play=lambda given: race(given.recorded, given.ranking[:, :count]),
        note=_CHARGED,
        several=True,
    )


def _fallback_policy(argument: str, _members: Sequence[str], _best: int) -> Policy:
    match = _DELAY.fullmatch(argument)
    if match is None or not 0 < int(match[1]) <= _MAX_DELAY_MS:
        raise PolicyError(f"fallback takes milliseconds, from 1 to {_MAX_DELAY_MS}, not {argument!r}")
    delay_ms = int(match[1])
    return Policy(
        name=f"fallback:{delay_ms}",
        play=lambda given: fall_back(given.recorded, given.ranking[:, :2], float(delay_ms * _US_PER_MS)),
        note=_CHARGED,
        several=True,
    )


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
    shift = _shift(differences)
    margin = max(_MARGIN_US, _MARGIN_SHARE * float(np.median(incumbent)))
    return shift is not None and shift.low is not None and shift.low > 0 and shift.estimate >= margin


def _shift(differences: Reals) -> Shift | None:
    """Return the shift, with an interval that is at least as wide as that of independent differences."""
    found = hodges_lehmann(differences)
    return found and found.widened(max(float(inflation(ragged([differences])).factor[0]), 1.0))


def _may_be_above_zero(differences: Reals) -> bool:
    """Return whether the interval could lie above zero: a necessary condition that takes a hundredth of the time.

    Before widening, the interval's lower bound is the Walsh average at a certain depth, so fewer averages than that may
    be at or below zero; and each difference at or below zero makes as many of them as its rank by absolute size.
    """
    depth = interval_depth(len(differences))
    ranks = np.argsort(np.argsort(np.abs(differences))) + 1
    return depth is not None and int(ranks[differences <= 0].sum()) < depth


_TAKES_ARGUMENT = ("static", "race", "fallback")
_MAKERS: Mapping[str, Callable[[str, Sequence[str], int], Policy]] = {
    "static": _static_policy,
    "nearest": _nearest_policy,
    "routed": _routed_policy,
    "race": _race_policy,
    "fallback": _fallback_policy,
}
