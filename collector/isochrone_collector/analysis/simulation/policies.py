"""Policies by which a client could choose among members, as people write them, and what each gives. Pure.

static            the member that was best over the learning rounds of all regions; the same everywhere, and for good
static:TARGET     this member
nearest           per region the member that was best over its learning rounds, for good
routed            the best, changed only for good reason (see `incumbent`)
race:K            the K best so far at once; the first token wins
fallback:MS       the best so far, and the second too when there is no token after so many milliseconds
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from isochrone_collector.analysis.simulation.incumbent import incumbents
from isochrone_collector.analysis.simulation.replay import Places, Replay, Track, fallen_back, raced, ranking
from isochrone_collector.names import unknown

DEFAULTS = ("static", "nearest", "routed", "race:2", "fallback:200")
KINDS = ("static", "nearest", "routed", "race", "fallback")
_US_PER_MS = 1000
_MAX_DELAY_MS = 600_000
_DELAY = re.compile(r"(\d{1,6})\s*(?:ms)?")
_CHARGED = "usd counts every request that was begun as charged in full, as a cancelled stream may be"


class PolicyError(ValueError):
    """A policy that cannot be played. Act: whoever asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """A vantage's rounds with the ranking before each of them, and the member that is best over all regions."""

    track: Track
    ranking: Places
    best: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy by its full name, how it is played, and what is to be noted of it."""

    name: str
    play: Callable[[Ground], Replay]
    note: str = ""


def grounds(tracks: Sequence[Track]) -> list[Ground]:
    """The tracks made ready for every policy."""
    learnt = np.concatenate([track.felt_us[: track.learning] for track in tracks])
    best = int(np.argmin(np.median(learnt, axis=0)))
    return [Ground(track=track, ranking=ranking(track), best=best) for track in tracks]


def policy(text: str, members: Sequence[str], *, best: int = 0) -> Policy:
    """The policy that `text` names, among members by name; `best` is the one that is best over all regions.

    Raises `PolicyError` with a sentence.
    """
    kind, _, told = text.strip().partition(":")
    if kind not in KINDS:
        raise PolicyError(unknown("policy", kind, KINDS))
    if kind not in _TAKING and told:
        raise PolicyError(f"{kind} takes nothing behind a colon, not {told!r}")
    return _MAKERS[kind](told.strip(), members, best)


def _static(told: str, members: Sequence[str], best: int) -> Policy:
    member = _member(told, members) if told else best
    return Policy(name=f"static:{members[member]}", play=lambda ground: raced(ground.track, _always(ground, member)))


def _member(told: str, members: Sequence[str]) -> int:
    """The member of that name, or the only one whose model is called or begins so."""
    fits = (
        [name for name in members if name == told],
        [name for name in members if name.rpartition("/")[2] == told],
        [name for name in members if name.rpartition("/")[2].startswith(told)],
    )
    found = next(filter(None, fits), [])
    if len(found) != 1:
        raise PolicyError(unknown("member", told, members))
    return list(members).index(found[0])


def _nearest(_told: str, _members: Sequence[str], _best: int) -> Policy:
    def play(ground: Ground) -> Replay:
        learnt = ground.track.felt_us[: ground.track.learning]
        return raced(ground.track, _always(ground, int(np.argmin(np.median(learnt, axis=0)))))

    return Policy(name="nearest", play=play)


def _routed(_told: str, _members: Sequence[str], _best: int) -> Policy:
    return Policy(
        name="routed",
        play=lambda ground: raced(ground.track, incumbents(ground.track, ground.ranking)[:, None]),
    )


def _race(told: str, members: Sequence[str], _best: int) -> Policy:
    if not told.isdecimal() or not 2 <= int(told) <= len(members):  # noqa: PLR2004  # one alone is no race
        raise PolicyError(f"race takes how many of the {len(members)} members run, from 2 on, not {told!r}")
    count = int(told)
    return Policy(
        name=f"race:{count}", play=lambda ground: raced(ground.track, ground.ranking[:, :count]), note=_CHARGED
    )


def _fallback(told: str, _members: Sequence[str], _best: int) -> Policy:
    match = _DELAY.fullmatch(told)
    if match is None or not 0 < int(match[1]) <= _MAX_DELAY_MS:
        raise PolicyError(f"fallback takes milliseconds, from 1 to {_MAX_DELAY_MS}, not {told!r}")
    delay_ms = int(match[1])
    return Policy(
        name=f"fallback:{delay_ms}",
        play=lambda ground: fallen_back(ground.track, ground.ranking[:, :2], float(delay_ms * _US_PER_MS)),
        note=_CHARGED,
    )


def _always(ground: Ground, member: int) -> Places:
    return np.full((len(ground.track), 1), member)


_TAKING = ("static", "race", "fallback")
_MAKERS: Mapping[str, Callable[[str, Sequence[str], int], Policy]] = {
    "static": _static,
    "nearest": _nearest,
    "routed": _routed,
    "race": _race,
    "fallback": _fallback,
}
