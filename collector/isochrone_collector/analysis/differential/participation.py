"""Who was there: how many probes each region sent and lost, of how many planned rounds it recorded, and whether the
control target says that the region itself is well.

A comparison of latencies speaks only of the probes that came through. If a region fails often, or was away for most of
the time, what is left is not what its users see; so both sides' failures are shown beside every comparison, and with
too little recorded nothing is decided at all.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor

import numpy as np

from isochrone_collector.analysis.coverage import PlanSpan, planned_rounds
from isochrone_collector.analysis.differential.pairing import TargetRegion
from isochrone_collector.analysis.probes import Integers, Kind, Probes
from isochrone_collector.analysis.sorting import beginnings, order_by
from isochrone_collector.analysis.stats.proportion import wilson
from isochrone_wire.answers import Side, Window

MIN_COVERAGE = 0.5
"""Of its planned rounds a region must have recorded so many, or nothing is decided."""

MAX_FAILURES = 0.5
"""Where surely more of the probes failed, the few that came through are no merit of the region."""

MIN_CONTROL_SUCCESS = 0.9
"""Where the control target surely succeeds less often than this, the trouble is the region's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Participation:
    """What became of one target as seen from one region. `tried` counts probes that were sent and not throttled,
    `recorded` the rounds of all its vantages that left a sample of any kind, `planned` those that were asked for.
    """

    tried: int = 0
    failed: int = 0
    recorded: int = 0
    planned: int = 0

    @property
    def coverage(self) -> float | None:
        """The share of planned rounds that was recorded; `None` where none was planned."""
        return min(1.0, self.recorded / self.planned) if self.planned else None

    def side(self, n: int) -> Side:
        """Its part in a differential, with n rounds that have a value."""
        return Side(n=n, coverage=self.coverage, failures=wilson(self.failed, self.tried))

    def coverage_problem(self, region: str) -> str:
        """Why too little was recorded to decide anything; empty when it was not."""
        if self.coverage is None or self.coverage >= MIN_COVERAGE:
            return ""
        return f"{region} recorded {_percent(self.coverage)} of its rounds; {_percent(MIN_COVERAGE)} needed"

    def losses(self, region: str) -> str:
        """That surely most of what was tried failed, so that nothing is to be said in its favour; empty otherwise."""
        failures = wilson(self.failed, self.tried)
        return f"most probes of {region} failed" if failures and failures.low > MAX_FAILURES else ""

    def control_problem(self, region: str, control: str) -> str:
        """Why the region is not to be trusted, if this is its turnout of the control target; empty when it is."""
        success = wilson(self.tried - self.failed, self.tried)
        if success and success.high < MIN_CONTROL_SUCCESS:
            share = _percent(success.value)
            return f"{region} is in trouble itself: {share} of {success.n} probes of {control} succeeded"
        if self.planned and not self.recorded:
            return f"{region} recorded nothing of the control target {control}"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """A vantage's region, and the part of the window in which it was there."""

    region: str
    part: Window


def planned(
    presences: Iterable[Presence], spans: Sequence[PlanSpan], target_ids: Iterable[int]
) -> dict[TargetRegion, int]:
    """How many rounds were planned of each target in each region, by all its vantages together."""
    ids = list(target_ids)
    found: dict[TargetRegion, int] = {}
    # Most vantages were there all the time.
    for presence, vantages in Counter(presences).items():
        for target_id in ids:
            key = (target_id, presence.region)
            rounds = planned_rounds(target_id, spans, presence.part)
            found[key] = found.get(key, 0) + rounds * vantages
    return found


def participations(probes: Probes, plans: Mapping[TargetRegion, int]) -> dict[TargetRegion, Participation]:
    """The turnout of every target and region that has probes, or was to have some."""
    target_ids, target = np.unique(probes.target_id, return_inverse=True)
    regions = len(probes.regions)
    group = target * regions + probes.region
    groups = len(target_ids) * regions
    failed = np.bincount(group[probes.kind == Kind.FAILED], minlength=groups)
    tried = np.bincount(group[probes.kind == Kind.OK], minlength=groups) + failed
    recorded = _rounds(probes, group, groups)
    found = {key: Participation(planned=count) for key, count in plans.items()}
    for place in np.flatnonzero(recorded).tolist():
        key = (int(target_ids[place // regions]), probes.regions[place % regions])
        found[key] = Participation(
            tried=int(tried[place]),
            failed=int(failed[place]),
            recorded=int(recorded[place]),
            planned=plans.get(key, 0),
        )
    return found


def oldest_rounds(probes: Probes) -> dict[int, int]:
    """The oldest round of each vantage, by its id."""
    vantage_ids, vantage = np.unique(probes.vantage_id, return_inverse=True)
    oldest = np.full(len(vantage_ids), np.iinfo(np.int64).max)
    np.minimum.at(oldest, vantage, probes.round_at)
    return dict(zip(vantage_ids.tolist(), oldest.tolist(), strict=True))


def _percent(share: float) -> str:
    """Rounded down, so that what is below a limit never reads as the limit."""
    return f"{floor(100 * share)} %"


def _rounds(probes: Probes, group: Integers, groups: int) -> Integers:
    """How many rounds each group has, those of two vantages counted twice."""
    vantage_ids, vantage = np.unique(probes.vantage_id, return_inverse=True)
    own = group * len(vantage_ids) + vantage
    order = order_by(own, probes.round_at)
    firsts = order[beginnings(own[order], probes.round_at[order])]
    return np.bincount(group[firsts], minlength=groups)
