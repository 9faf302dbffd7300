"""Evidence for and against targets: from which regions a target fails, by the newest rounds of each vantage. Pure.

The laws:

1. A vantage accuses a target if three of its rounds in a row failed, or two while another vantage's do too; more in a
   series that often fails. A target that never worked has no such series: two failures are enough. A round in which
   the agent only waits after a failure is not sent, and is no evidence.
2. A region fails if most vantages there that report and are trusted accuse the target; it is answered if at most of
   them the failures have ended for some rounds.
3. A vantage is not trusted where it is more likely to be at fault itself: the failures began together with those of at
   least two thirds of its targets, of at least two providers, and the control target does not answer; or together with
   those of the control target; or its clock is wrong. Targets that failed before, or never worked, are no evidence, and
   neither are those that most vantages of other regions see fail too: they fail, or a network that all regions share.
4. Throttled rounds are another kind: they are neither failures nor answers. Rounds held back lengthen a run of them,
   which needs two refusals, or one from the only vantage that measures the target: there may be no other for an hour.
5. Two thresholds are three and two failures for a series that fails in one of a hundred rounds, independently. A
   series that fails more often, or whose failures come in bursts, needs more, so that chance reaches them as seldom.
   With p the share of rounds that begin a run of failures, q the share of runs that get a second failure, and r that
   of those that get another one, a round begins a run of k by chance with the probability p · q · r^(k-2). The three
   shares are of about the last day of one-minute rounds, each with a prior of few observations.
6. A vantage also accuses a target if the CUSUM of its failures is over its limit (`failure_cusum`), or if that of all
   vantages is, and its own is over a quarter. It goes on to do so, down to half of the limit, until it has had
   `_PARTIAL_CLEAR` rounds without a failure. It is not trusted where the control target, or two thirds of its targets
   of at least two providers that do not fail elsewhere, have CUSUMs over a quarter of the limit too.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto

import numpy as np

from isochrone_collector.alerts.failure_cusum import FailureCusum, alarm_limit
from isochrone_collector.analysis.probe_records import BLOCKED, Records, by_outcome, has, outcomes
from isochrone_wire.insights import AlertKind
from isochrone_wire.model import MINUTE_US, Outcome

ALONE = 1e-5
"""Chance per round that a single vantage may have of reaching its threshold."""
TOGETHER = 8e-4
"""As `ALONE`, for each of two vantages at once: its square over the pairs of a dozen vantages is smaller still."""

MOST = 6
_LEAST = {ALONE: 3, TOGETHER: 2}
_KEEP = 1 - 1 / 1440
_PRIOR_RUNS, _PRIOR_ROUNDS = 1.0, 100.0
_PRIOR_NEXT, _PRIOR_LENGTHS = 0.6, 20.0


@dataclass(slots=True, kw_only=True)
class Streak:
    """The `length` newest rounds of a series with a failure, or the `clear` ones without; of these, `requests` sent."""

    length: int = 0
    requests: int = 0
    clear: int = 0
    since_at: int = 0
    until_at: int = 0
    _rounds: float = 0.0
    _runs: float = 0.0
    _seconds: float = 0.0
    _thirds: float = 0.0

    def extend(self, at: int, *, sent: bool = True) -> None:
        """Add a round with the failure; `sent` is false if no request was sent because of earlier ones."""
        if not self.length:
            self.since_at = at
        self.length += 1
        self.requests += sent
        self.until_at = at
        self.clear = 0

    def end(self) -> None:
        """Add a round without the failure."""
        # Failures that are no chance are not learned as chance.
        if 0 < self.length < self.needed(ALONE):
            self._runs += 1
            self._seconds += self.length > 1
            self._thirds += max(self.length - 2, 0)
        self.length = self.requests = 0
        self.clear += 1
        self._rounds = self._rounds * _KEEP + 1
        self._runs *= _KEEP
        self._seconds *= _KEEP
        self._thirds *= _KEEP

    def needed(self, chance: float) -> int:
        """Return the length from which on the failures are no chance: at least three or two, at most `MOST`."""
        first = (self._runs + _PRIOR_RUNS) / (self._rounds + _PRIOR_ROUNDS)
        second = (self._seconds + _PRIOR_NEXT) / (self._runs + _PRIOR_LENGTHS)
        further = (self._thirds + _PRIOR_NEXT) / (self._seconds + self._thirds + _PRIOR_LENGTHS)
        length, probability = 2, first * second
        while length < MOST and (length < _LEAST[chance] or probability > chance):
            length, probability = length + 1, probability * further
        return length


SUSPICIOUS_SHARE = 2 / 3
# Longer than the time limits of a probe: a vantage whose request hangs reports nothing of that target.
_SILENCE_US = 5 * MINUTE_US
_SILENT_ROUNDS = 3
# A region that was silent for so long is left out of the evidence.
_GONE_US = 60 * MINUTE_US
_TOGETHER_ROUNDS = 3
_TWO = 2
# A share of failures of 20 % leaves so many rounds in a row without one once in a thousand times.
_PARTIAL_CLEAR = 30
_QUARTER, _HALF = 0.25, 0.5


class RoundKind(IntEnum):
    """The best result of a vantage's probes in a round; those `HELD` were not sent: the agent waits after a failure."""

    OK = 0
    FAILED = 1
    THROTTLED = 2
    HELD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """One round of a target from a vantage."""

    target_id: int
    vantage_id: int
    region: str
    round_at: int
    kind: RoundKind


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedTarget:
    """A target of the plan. `has_worked` is false if it never worked from any vantage."""

    id: int
    name: str
    provider: str
    every_us: int
    has_worked: bool = True

    @property
    def silence_us(self) -> int:
        """The age of the newest round, in microseconds, from which on a vantage no longer reports the target."""
        return max(_SILENT_ROUNDS * self.every_us, _SILENCE_US)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The measured fleet: the targets by id, the id of the plan's control target (0: none), and the ids of the vantages
    whose clocks are wrong. `faults` are those of vantages, and `elsewhere` the targets that fail outside of a region,
    as far as they were computed for one step.
    """

    targets: Mapping[int, WatchedTarget]
    control: int = 0
    distrusted: Collection[int] = ()
    faults: dict[tuple[int, int, int, bool], bool] = field(default_factory=dict, compare=False, repr=False)
    elsewhere: dict[tuple[int, str], bool] = field(default_factory=dict, compare=False, repr=False)


class RegionState(Enum):
    """The state of a target as seen from a region."""

    FAILING = auto()
    ANSWERED = auto()
    UNCLEAR = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The regions that measure a target, and the failed rounds that accuse it: the first and the newest. `is_complete`
    unless a vantage has yet to report the newest failed round, which may be the one with which it accuses the target.
    """

    regions: Mapping[str, RegionState]
    first_failed_at: int = 0
    last_failed_at: int = 0
    is_complete: bool = False

    @property
    def failing(self) -> frozenset[str]:
        """The regions from which the target fails."""
        return frozenset(name for name, state in self.regions.items() if state is RegionState.FAILING)


@dataclass(slots=True)
class Series:
    """The newest rounds of a target from one vantage."""

    region: str
    newest_at: int = 0
    has_answered: bool = False
    streaks: dict[AlertKind, Streak] = field(
        default_factory=lambda: {AlertKind.TARGET_FAILING: Streak(), AlertKind.TARGET_THROTTLED: Streak()}
    )
    partial: FailureCusum = field(default_factory=FailureCusum)

    def add(self, one: RoundResult, of_target: FailureCusum) -> None:
        """Add a round; an earlier one than the newest is ignored, unless it is the rest of that round. `of_target`
        includes the rounds of other vantages.
        """
        failed, throttled = self.streaks.values()
        if one.round_at < self.newest_at or (one.round_at == self.newest_at and one.kind is not RoundKind.OK):
            return
        if one.round_at == self.newest_at and failed.clear and throttled.clear:
            return
        if one.kind is RoundKind.HELD and not throttled.length:
            # A vantage that waits after a failure is not silent.
            self.newest_at = one.round_at if failed.length else self.newest_at
            return
        is_rest = one.round_at == self.newest_at
        if one.kind <= RoundKind.FAILED and not failed.length and not is_rest:
            for cusum in (self.partial, of_target):
                cusum.add(one.round_at, failed=one.kind is RoundKind.FAILED)
        self.region, self.newest_at = one.region, one.round_at
        if one.kind is RoundKind.OK:
            self.has_answered = True
            failed.end()
            throttled.end()
        elif one.kind is RoundKind.FAILED:
            failed.extend(one.round_at)
            throttled.end()
        else:
            throttled.extend(one.round_at, sent=one.kind is RoundKind.THROTTLED)


class FailureEvidence:
    """The newest rounds of all targets from all vantages."""

    def __init__(self) -> None:
        self._series: dict[int, dict[int, Series]] = {}
        self._partial: dict[int, FailureCusum] = {}

    def add(self, rounds: Iterable[RoundResult]) -> None:
        """Add rounds, oldest first for each series."""
        for one in rounds:
            of_target = self._series.setdefault(one.target_id, {})
            partial = self._partial.setdefault(one.target_id, FailureCusum())
            of_target.setdefault(one.vantage_id, Series(one.region)).add(one, partial)

    def keep(self, target_ids: Collection[int]) -> None:
        """Forget the targets that are not among these."""
        self._series = {target_id: found for target_id, found in self._series.items() if target_id in target_ids}
        self._partial = {target_id: found for target_id, found in self._partial.items() if target_id in target_ids}

    def has_answered(self, target_id: int) -> bool:
        """Return whether a round of the target was answered since it was first added."""
        return any(series.has_answered for series in self._series.get(target_id, {}).values())

    def of(self, target: WatchedTarget, kind: AlertKind, fleet: Fleet, *, clear_rounds: int, now_at: int) -> Evidence:
        """Return the evidence on a target; its failures have ended after `clear_rounds` without one."""
        known, silent_at = self._series.get(target.id, {}), now_at - target.silence_us
        is_failing = kind is AlertKind.TARGET_FAILING
        trusted = {
            vantage_id: series
            for vantage_id, series in known.items()
            if series.newest_at >= silent_at
            and vantage_id not in fleet.distrusted
            and not (
                is_failing and series.streaks[kind].length and self._is_explained(target, vantage_id, fleet, now_at)
            )
        }
        measuring = [one for one in known.values() if now_at - one.newest_at <= _GONE_US]
        partial = [self._partial_of(target, trusted, fleet, share=one) if is_failing else {} for one in (1, _HALF)]
        in_row = _accusing(trusted, kind, target, requests=min(_TWO, len(measuring)))
        accusing: dict[int, Streak | FailureCusum] = {
            **partial[0],
            **{vantage_id: trusted[vantage_id].streaks[kind] for vantage_id in in_row},
        }
        regions = {one.region: RegionState.UNCLEAR for one in measuring}
        for region in {series.region for series in trusted.values()}:
            local = {vantage_id: one.streaks[kind] for vantage_id, one in trusted.items() if one.region == region}
            regions[region] = _state(local, accusing, partial[1], clear_rounds=clear_rounds)
        failing = {name for name, state in regions.items() if state is RegionState.FAILING}
        found = [one for vantage_id, one in accusing.items() if known[vantage_id].region in failing]
        last_failed_at = max((one.until_at for one in found), default=0)
        return Evidence(
            regions=regions,
            first_failed_at=min((one.since_at for one in found), default=0),
            last_failed_at=last_failed_at,
            is_complete=not any(
                _may_follow(one, one.streaks[kind], target, last_failed_at)
                for one in known.values()
                if silent_at <= one.newest_at < last_failed_at
            ),
        )

    def _partial_of(
        self, target: WatchedTarget, trusted: Mapping[int, Series], fleet: Fleet, *, share: float
    ) -> dict[int, FailureCusum]:
        """Return the CUSUMs of the vantages that see a partial failure, at a share of the limit."""
        if target.id not in self._partial or not target.has_worked:
            return {}
        limit = share * self._limit(target)
        least = limit if self._partial[target.id].value < limit else _QUARTER * limit
        return {
            vantage_id: one.partial
            for vantage_id, one in trusted.items()
            if one.partial.value >= least
            and one.streaks[AlertKind.TARGET_FAILING].clear < _PARTIAL_CLEAR
            and not self._is_lossy(target, vantage_id, fleet)
        }

    def _limit(self, target: WatchedTarget) -> float:
        return alarm_limit(every_us=target.every_us, vantages=len(self._series.get(target.id, {})))

    def _is_lossy(self, target: WatchedTarget, vantage_id: int, fleet: Fleet) -> bool:
        """Return whether a vantage, or its network, is more likely to cause the partial failures of a target."""
        # The answer is the same for all targets, except for the control target.
        key = (vantage_id, 0, 0, target.id == fleet.control)
        if key not in fleet.faults:
            fleet.faults[key] = self._has_losses(target, vantage_id, fleet)
        return fleet.faults[key]

    def _has_losses(self, target: WatchedTarget, vantage_id: int, fleet: Fleet) -> bool:
        probed = [
            one for one in fleet.targets.values() if vantage_id in self._series.get(one.id, {}) and one.has_worked
        ]
        suffering = {one: self._suffering(one) for one in probed}
        failing = [one for one in probed if vantage_id in suffering[one]]
        control = fleet.targets.get(fleet.control) if target.id != fleet.control else None
        if control in probed:
            return control in failing
        region = self._series[target.id][vantage_id].region
        own = []
        for one in probed:
            elsewhere = {other for other, series in self._series[one.id].items() if series.region != region}
            if _TWO * len(elsewhere & suffering[one]) <= len(elsewhere):
                own.append(one)
        return _are_most([one for one in own if one in failing], failing, own)

    def _suffering(self, target: WatchedTarget) -> set[int]:
        """Return the vantages whose CUSUMs of a target are over a quarter of the limit."""
        least, known = _QUARTER * self._limit(target), self._series[target.id]
        return {vantage_id for vantage_id, one in known.items() if one.partial.value >= least}

    def failing_everywhere(self, fleet: Fleet, now_at: int) -> int:
        """Return the number of targets that fail from most vantages, if these are most that have worked, else 0."""
        worked = [target for target in fleet.targets.values() if target.has_worked]
        failing = [target for target in worked if self._fails_elsewhere(target, "", fleet, now_at)]
        return len(failing) if _are_most(failing, failing, worked) else 0

    def _is_explained(self, target: WatchedTarget, vantage_id: int, fleet: Fleet, now_at: int) -> bool:
        """Return whether the vantage is more likely to be at fault than the target."""
        if not target.has_worked:
            return False
        streak = self._streak(target.id, vantage_id)
        # Targets that fail since the same round share the answer, also if they are many.
        key = (vantage_id, streak.since_at, target.every_us, target.id == fleet.control)
        if key not in fleet.faults:
            fleet.faults[key] = self._is_at_fault(target, vantage_id, fleet, now_at)
        return fleet.faults[key]

    def _is_at_fault(self, target: WatchedTarget, vantage_id: int, fleet: Fleet, now_at: int) -> bool:
        informative = [
            one for one in fleet.targets.values() if one.has_worked and self._is_evidence(one, target, vantage_id)
        ]
        failing = [one for one in informative if self._streak(one.id, vantage_id).length]
        control = fleet.targets.get(fleet.control) if target.id != fleet.control else None
        if control in informative:
            return control in failing
        region = self._series[target.id][vantage_id].region
        own = [one for one in informative if not self._fails_elsewhere(one, region, fleet, now_at)]
        return _are_most([one for one in own if one in failing], failing, own)

    def _fails_elsewhere(self, target: WatchedTarget, region: str, fleet: Fleet, now_at: int) -> bool:
        """Return whether a target fails from most vantages outside of a region, and from one at least."""
        key = (target.id, region)
        if key not in fleet.elsewhere:
            streaks = [
                series.streaks[AlertKind.TARGET_FAILING]
                for vantage_id, series in self._series.get(target.id, {}).items()
                if series.region != region
                and vantage_id not in fleet.distrusted
                and now_at - series.newest_at <= target.silence_us
            ]
            failing = sum(streak.length >= streak.needed(TOGETHER) for streak in streaks)
            fleet.elsewhere[key] = _TWO * failing > len(streaks)
        return fleet.elsewhere[key]

    def _is_evidence(self, other: WatchedTarget, target: WatchedTarget, vantage_id: int) -> bool:
        """Return whether another target was probed since the failures began, and did not fail long before."""
        if vantage_id not in self._series.get(other.id, {}):
            return False
        since_at = self._streak(target.id, vantage_id).since_at
        streak = self._streak(other.id, vantage_id)
        near_us = _TOGETHER_ROUNDS * max(other.every_us, target.every_us)
        was_probed = self._series[other.id][vantage_id].newest_at >= since_at
        return was_probed and (not streak.length or streak.since_at > since_at - near_us)

    def _streak(self, target_id: int, vantage_id: int) -> Streak:
        return self._series[target_id][vantage_id].streaks[AlertKind.TARGET_FAILING]


def _are_most(
    failing: Collection[WatchedTarget], together: Iterable[WatchedTarget], targets: Collection[WatchedTarget]
) -> bool:
    """Return whether `failing` are most of some targets, and those that fail `together` are of several providers."""
    several = len({one.provider for one in together}) > 1
    return bool(failing) and several and len(failing) >= SUSPICIOUS_SHARE * len(targets)


def _state(
    streaks: Mapping[int, Streak], accusing: Collection[int], unclear: Collection[int], *, clear_rounds: int
) -> RegionState:
    if _TWO * sum(vantage_id in accusing for vantage_id in streaks) > len(streaks):
        return RegionState.FAILING
    ended = sum(one.clear >= clear_rounds and vantage_id not in unclear for vantage_id, one in streaks.items())
    return RegionState.ANSWERED if _TWO * ended > len(streaks) else RegionState.UNCLEAR


def _may_follow(series: Series, streak: Streak, target: WatchedTarget, failed_at: int) -> bool:
    """Return whether a vantage would accuse a target if its rounds until `failed_at`, still unknown, failed too."""
    unknown = -(-(failed_at - series.newest_at) // target.every_us)
    return unknown > 0 and streak.length + unknown >= streak.needed(TOGETHER)


def _accusing(trusted: Mapping[int, Series], kind: AlertKind, target: WatchedTarget, *, requests: int) -> Iterator[int]:
    """Yield the vantages that accuse the target: alone with so many `requests` at least, or with another one."""
    streaks = {vantage_id: series.streaks[kind] for vantage_id, series in trusted.items()}
    if not target.has_worked and sum(streak.requests for streak in streaks.values()) >= _TWO:
        yield from (vantage_id for vantage_id, streak in streaks.items() if streak.length)
        return
    joint = {
        vantage_id
        for vantage_id, streak in streaks.items()
        if streak.requests and streak.length >= streak.needed(TOGETHER)
    }
    for vantage_id, streak in streaks.items():
        is_alone = streak.requests >= requests and streak.length >= streak.needed(ALONE)
        if is_alone or (len(joint) >= _TWO and vantage_id in joint):
            yield vantage_id


_NOT_SENT = -1
_KINDS = {Outcome.OK: RoundKind.OK, Outcome.THROTTLED: RoundKind.THROTTLED, Outcome.SKIPPED_THROTTLED: RoundKind.HELD}
_KIND_OF = by_outcome(lambda outcome: _KINDS.get(outcome, RoundKind.FAILED if outcome.failed else _NOT_SENT))


def round_results(records: Records, region_of: Mapping[int, str]) -> list[RoundResult]:
    """Return the best result of each vantage in each round, oldest first; of unsent rounds only those that waited."""
    traits = records["traits"]
    kind = _KIND_OF[outcomes(traits)]
    kind = np.where(has(traits, BLOCKED) & (kind != _NOT_SENT), RoundKind.HELD, kind)
    parts = np.stack((records["round_at"], records["target_id"], records["vantage_id"], kind))[:, kind != _NOT_SENT]
    parts = parts[:, np.lexsort(parts[::-1])]
    is_first = np.ones(parts.shape[1], np.bool_)
    is_first[1:] = (np.diff(parts[:-1]) != 0).any(axis=0)
    return [
        RoundResult(
            target_id=target_id,
            vantage_id=vantage_id,
            region=region_of[vantage_id],
            round_at=round_at,
            kind=RoundKind(kind),
        )
        for round_at, target_id, vantage_id, kind in parts[:, is_first].T.tolist()
    ]
