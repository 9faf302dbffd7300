"""Participation of regions: probes sent and failed, planned rounds recorded, and the health of the control target.

A comparison of latencies covers only the probes that succeeded, so both sides' failures are shown beside it, and with
too little recorded nothing is decided. Coverage is the share of planned rounds that have a sample; rounds without one
count as missed by the vantage.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor

import numpy as np

from isochrone_collector.analysis.differential.panel import TargetRegion
from isochrone_collector.analysis.goodput import effective_sizes
from isochrone_collector.analysis.history import NO_HISTORY, SUCCESS, History
from isochrone_collector.analysis.probes import Kind, Probes
from isochrone_collector.analysis.stats.arrays import Integers, Reals, beginnings, order_by
from isochrone_collector.analysis.stats.binomial import wilson
from isochrone_collector.analysis.stats.long_run_variance import VarianceInflation
from isochrone_wire.answers import Proportion, Side, Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import MINUTE_US
from isochrone_wire.rounds import rounds_between

MAX_SILENCE_US = 5 * MINUTE_US
"""How long an active vantage may be silent, in microseconds; agents send heartbeats more often than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSpan:
    """A plan in force over [from_at, until_at): intervals by target, and the ids that set the phase of others."""

    from_at: int
    until_at: int | None
    every_us: Mapping[int, int]
    phase_ids: Mapping[int, int] = field(default_factory=dict)


def planned_rounds(target_id: int, spans: Sequence[PlanSpan], window: Window) -> int:
    """Count the rounds that the plans ask of one vantage for one target within the window."""
    rounds = 0
    for span in spans:
        if target_id in span.every_us:
            until_at = window.until_at if span.until_at is None else min(window.until_at, span.until_at)
            phase_id, every_us = span.phase_ids.get(target_id, target_id), span.every_us[target_id]
            from_at = max(window.from_at, span.from_at)
            rounds += rounds_between(from_at, until_at, target_id=phase_id, every_us=every_us)
    return rounds


def active_window(
    window: Window, *, first_seen_at: int, last_seen_at: int, oldest_at: int | None, now_at: int
) -> Window:
    """Return the part of a window in which a vantage was active; it ends before it begins if there is none.

    A vantage is active from its first push, or from the oldest round of that push (`oldest_at`, within the window),
    until `now_at`, so that coverage shows its absence; but one last seen before the window without a round in it is
    not.
    """
    gone_at = last_seen_at + MAX_SILENCE_US
    if oldest_at is None and gone_at < window.from_at:
        return Window(from_at=window.from_at, until_at=gone_at)
    there_from_at = first_seen_at if oldest_at is None else min(first_seen_at, oldest_at)
    return Window(from_at=max(window.from_at, there_from_at), until_at=min(window.until_at, now_at))


MIN_COVERAGE = 0.5
"""The share of planned rounds that a region must have recorded for a decision."""

MAX_LEFT_OUT = 0.5
"""If more of the probes that succeeded cannot be compared, because the machine was busy, nothing is decided."""

MAX_FAILURES = 0.5
"""If certainly more of the probes failed, nothing is decided in the region's favour."""

MIN_CONTROL_SUCCESS = 0.9
"""If the control target certainly succeeds less often than this, the region itself has a problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Participation:
    """Participation of one target in one region. `tried` counts the probes that were sent and not throttled, worth
    so many `independent` ones, `left_out` those that succeeded and cannot be compared, `recorded` the rounds of all
    vantages with any sample, `planned` those of the plans.
    """

    tried: int = 0
    failed: int = 0
    left_out: int = 0
    independent: float | None = None
    recorded: int = 0
    planned: int = 0

    @property
    def coverage(self) -> float | None:
        """The share of planned rounds that was recorded; `None` if none was planned."""
        return min(1.0, self.recorded / self.planned) if self.planned else None

    def side(self, n: int) -> Side:
        """Return the side of a differential with n rounds that have a value."""
        return Side(n=n, coverage=self.coverage, failures=self.failures, left_out=self.left_out_share)

    @property
    def left_out_share(self) -> float | None:
        """The share of the probes that succeeded that cannot be compared; `None` if none succeeded."""
        succeeded = self.tried - self.failed
        return self.left_out / succeeded if succeeded else None

    def busy_problem(self, region: str) -> str:
        """Return why a region was too busy for a decision; empty if it was not."""
        share = self.left_out_share or 0.0
        return f"{region} was busy: {percent(share)} of its probes are not compared" if share > MAX_LEFT_OUT else ""

    @property
    def failures(self) -> Proportion | None:
        """The share of failed probes; `None` if none was tried."""
        return wilson(self.failed, self.tried, n_eff=self.independent)

    def coverage_problem(self, region: str) -> str:
        """Return why too little was recorded for a decision; empty if enough was."""
        if self.coverage is None or self.coverage >= MIN_COVERAGE:
            return ""
        return f"{region} recorded {percent(self.coverage)} of its rounds; {percent(MIN_COVERAGE)} needed"

    def losses(self, region: str) -> str:
        """Return the reason if certainly most probes failed, so that nothing is decided in the region's favour."""
        # A statement on the window, so each probe counts.
        failures = wilson(self.failed, self.tried)
        return f"most probes of {region} failed" if failures and failures.low > MAX_FAILURES else ""

    def control_problem(self, region: str, control: str) -> str:
        """Return the region's own problem, given its participation in the control target; empty without one."""
        success = wilson(self.tried - self.failed, self.tried)
        if success and success.high < MIN_CONTROL_SUCCESS:
            share = percent(success.value)
            return f"{region} has a problem of its own: {share} of {success.n} probes of {control} succeeded"
        if self.planned and not self.recorded:
            return f"{region} recorded nothing of the control target {control}"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """A vantage's region, and the part of the window in which the vantage was active."""

    region: str
    part: Window


def planned(
    presences: Iterable[Presence], spans: Sequence[PlanSpan], target_ids: Iterable[int]
) -> dict[TargetRegion, int]:
    """Count the planned rounds of each target in each region, over all its vantages."""
    ids = list(target_ids)
    found: dict[TargetRegion, int] = {}
    # Few parts of the window differ.
    regions: dict[Window, Counter[str]] = {}
    for presence in presences:
        regions.setdefault(presence.part, Counter())[presence.region] += 1
    for part, vantages in regions.items():
        for target_id in ids:
            rounds = planned_rounds(target_id, spans, part)
            for region, count in vantages.items():
                key = (target_id, region)
                found[key] = found.get(key, 0) + rounds * count
    return found


def participations(
    probes: Probes, plans: Mapping[TargetRegion, int], history: History = NO_HISTORY
) -> dict[TargetRegion, Participation]:
    """Return the participation of every target and region that has probes or planned rounds."""
    target_ids, target = np.unique(probes.target_id, return_inverse=True)
    regions = len(probes.regions)
    group = target * regions + probes.region
    groups = len(target_ids) * regions
    failed = np.bincount(group[probes.kind == Kind.FAILED], minlength=groups)
    tried = np.bincount(group[probes.kind == Kind.OK], minlength=groups) + failed
    left_out = np.zeros(groups) if probes.left_out is None else np.bincount(group, probes.left_out, minlength=groups)
    recorded = _rounds(probes, group, groups)
    keys = [(target_id, region) for target_id in target_ids.tolist() for region in probes.regions]
    hours = np.ptp(probes.round_at) / HOUR_US if len(probes) else 0.0
    known = history.of(SUCCESS, keys, np.full(groups, hours))
    independent = _independent(probes, group, tried, failed, known)
    found = {key: Participation(planned=count) for key, count in plans.items()}
    for place in np.flatnonzero(recorded).tolist():
        key = keys[place]
        found[key] = Participation(
            tried=int(tried[place]),
            failed=int(failed[place]),
            left_out=int(left_out[place]),
            independent=float(independent[place]) if tried[place] else None,
            recorded=int(recorded[place]),
            planned=plans.get(key, 0),
        )
    return found


def oldest_rounds(probes: Probes) -> dict[int, int]:
    """Return the oldest round of each vantage, by its id."""
    vantage_ids, vantage = np.unique(probes.vantage_id, return_inverse=True)
    oldest = np.full(len(vantage_ids), np.iinfo(np.int64).max)
    np.minimum.at(oldest, vantage, probes.round_at)
    return dict(zip(vantage_ids.tolist(), oldest.tolist(), strict=True))


def percent(share: float) -> str:
    """Format a share, rounded down, so that a value below a limit never reads as the limit."""
    return f"{floor(100 * share)} %"


def _independent(probes: Probes, group: Integers, tried: Integers, failed: Integers, known: VarianceInflation) -> Reals:
    """Return the effective number of the probes of each group; by `known` alone if all succeeded, or all failed."""
    found = known.of_counts(tried)
    mixed = (failed > 0) & (failed < tried)
    own = mixed[group] & np.isin(probes.kind, (Kind.OK, Kind.FAILED))
    order = order_by(group[own], probes.round_at[own])
    succeeded = (probes.kind[own] == Kind.OK)[order]
    runs = np.split(succeeded, np.cumsum(tried[mixed])[:-1])
    found[mixed] = effective_sizes(runs, known.at(np.flatnonzero(mixed)))
    return found


def _rounds(probes: Probes, group: Integers, groups: int) -> Integers:
    """Count the rounds of each group, per vantage."""
    vantage_ids, vantage = np.unique(probes.vantage_id, return_inverse=True)
    own = group * len(vantage_ids) + vantage
    order = order_by(own, probes.round_at)
    firsts = order[beginnings(own[order], probes.round_at[order])]
    return np.bincount(group[firsts], minlength=groups)
