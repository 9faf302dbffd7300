"""Inputs of a route, region by region, computed from the plan and the probes.

Two members are compared by slots as long as the longer of their intervals, because each target has its own rounds. Of
the member that is probed more often only the first round of a slot counts: a median of several rounds is less skewed
than a single value, which would look like a shift. Whether they stall together is counted in joint rounds only.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations, islice

import numpy as np

from isochrone_collector.analysis.histogram import buckets_of
from isochrone_collector.analysis.history import NO_HISTORY, History, SeriesLevels, median_of
from isochrone_collector.analysis.probes import sign_is_known
from isochrone_collector.analysis.stats.arrays import Flags, Integers, Reals, ragged
from isochrone_collector.analysis.stats.long_run_variance import VarianceInflation
from isochrone_collector.analysis.stats.shifts import paired_shifts
from isochrone_collector.routing.evidence import (
    Failing,
    ProbeTable,
    evidence_of,
    failing_runs,
    regions_of,
    reporting,
    suspects,
)
from isochrone_collector.routing.inputs import Comparison, Evidence, Inputs, JointRounds, Rules, rules_for
from isochrone_collector.routing.long_run import Week
from isochrone_wire.answers import Metric, Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import Plan, Route, Target

_SHARE = 0.95

Drift = Callable[[Sequence[tuple[int, int]], int], VarianceInflation]
"""Returns, for each pair of members, how far their difference over a window (microseconds) may be from that of the long
run, as known from the past week: the variance of its level; NaN if it is unknown.
"""


def comparisons_of(
    probes: ProbeTable,
    members: Sequence[int],
    *,
    slot_us: Sequence[int],
    rules: Rules,
    drift: Drift | None = None,
) -> list[Comparison]:
    """Compare every pair of `members`, given the probes of one region; `slot_us` are the intervals by member."""
    pairs = list(combinations(members, 2))
    if not pairs:
        return []
    rounds = cache(partial(_first_rounds, probes, _Cells.of(probes)))
    slots = [max(slot_us[left], slot_us[right]) for left, right in pairs]
    shared = [_paired(rounds, *pair, us) for pair, us in zip(pairs, slots, strict=True)]
    joint = [_paired(rounds, *pair, 1) for pair in pairs]
    differences = [one.differences() for one in shared]
    values = ragged([values for _, values in differences])
    shifts = paired_shifts(values, history=drift and drift(pairs, rules.window_us)).listed()
    return [
        Comparison(
            left=probes.members[left],
            right=probes.members[right],
            n=len(one.slot_at),
            window=window,
            **both.slow(),
        )
        for (left, right), one, both, window in zip(pairs, shared, joint, shifts, strict=True)
    ]


Series = tuple[Integers, Reals]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """The slots in which one vantage has a value of both members, ascending, and which values are limits."""

    slot_at: Integers
    left: Reals
    left_limits: Flags
    right: Reals
    right_limits: Flags

    def differences(self) -> Series:
        """Return the slots with a difference of known sign, and the median of the differences of all vantages there."""
        known = sign_is_known(self.left, self.left_limits, self.right, self.right_limits)
        return _medians(self.slot_at[known], (self.left - self.right)[known])

    def slow(self) -> dict[str, int]:
        """Count the slots, those in which either member exceeded its own p95, and those in which both did."""
        left, right = (of > np.quantile(of, _SHARE) if len(of) else of.astype(bool) for of in (self.left, self.right))
        slow_left, slow_right, slow_both = (int(np.count_nonzero(of)) for of in (left, right, left & right))
        return {"joint": len(left), "slow_left": slow_left, "slow_right": slow_right, "slow_both": slow_both}


def joint_rounds(probes: ProbeTable, members: Sequence[int]) -> JointRounds:
    """Return the rounds of `members`, given the probes of one region; of a burst the median counts."""
    cells = _Cells.of(probes)
    series = {probes.members[member]: _ranked_series(probes, cells.at(probes.round_at), member) for member in members}
    found = np.unique(np.concatenate([np.empty(0, np.int64), *(own for own, _ in series.values())]))
    columns = {}
    for name, (own, values) in series.items():
        buckets = dict(zip(own.tolist(), buckets_of(values).tolist(), strict=True))
        columns[name] = tuple(buckets.get(cell) for cell in found.tolist())
    return JointRounds(round_at=tuple(cells.slot_at(found).tolist()), ttft=columns)


def _ranked_series(probes: ProbeTable, cells: Integers, member: int) -> Series:
    """Return the cells with a TTFT and the median there; a timeout counts at least as much as the largest value."""
    own = (probes.member == member) & ~np.isnan(probes.ttft_us)
    values, censored = probes.ttft_us[own], probes.censored[own]
    largest = values[~censored].max(initial=0.0)
    return _medians(cells[own], np.where(censored, np.maximum(values, largest), values))


@dataclass(frozen=True, slots=True, kw_only=True)
class _FirstRounds:
    """A member's first rounds by vantage and slot, as ascending cells, with medians and whether they are limits."""

    cells: Integers
    slot_at: Integers
    ttft_us: Reals
    limits: Flags


_Rounds = Callable[[int, int], _FirstRounds]


def _paired(rounds: _Rounds, left: int, right: int, slot_us: int) -> _Pairs:
    """Return the slots in which one vantage has a value of both members."""
    mine, theirs = rounds(left, slot_us), rounds(right, slot_us)
    _, of_mine, of_theirs = np.intersect1d(mine.cells, theirs.cells, assume_unique=True, return_indices=True)
    return _Pairs(
        slot_at=mine.slot_at[of_mine],
        left=mine.ttft_us[of_mine],
        left_limits=mine.limits[of_mine],
        right=theirs.ttft_us[of_theirs],
        right_limits=theirs.limits[of_theirs],
    )


@dataclass(frozen=True, slots=True)
class _Cells:
    """Numbers that each stand for a slot and a vantage: `place` is that of each probe's among the `vantages`. Slots are
    counted from that of `first_at`, because an instant times thousands of vantages would need more than 64 bits.
    """

    vantages: int
    place: Integers
    first_at: int

    @classmethod
    def of(cls, probes: ProbeTable) -> "_Cells":
        vantages, place = np.unique(probes.vantage_id, return_inverse=True)
        return cls(max(len(vantages), 1), place, int(probes.round_at.min()) if len(probes) else 0)

    def at(self, round_at: Integers, slot_us: int = 1) -> Integers:
        return (round_at // slot_us - self.first_at // slot_us) * self.vantages + self.place

    def slot_at(self, cells: Integers, slot_us: int = 1) -> Integers:
        return (cells // self.vantages + self.first_at // slot_us) * slot_us


def _first_rounds(probes: ProbeTable, cells: _Cells, member: int, slot_us: int) -> _FirstRounds:
    own = (probes.member == member) & ~np.isnan(probes.ttft_us)
    of_own = (probes.round_at, probes.ttft_us, probes.censored, cells.at(probes.round_at, slot_us))
    rounds_at, values, limits, within = (of[own] for of in of_own)
    order = np.argsort(rounds_at, kind="stable")
    _, first, inverse = np.unique(within[order], return_index=True, return_inverse=True)
    early = order[rounds_at[order] == rounds_at[order][first][inverse]]
    found, medians = _medians(within[early], values[early])
    return _FirstRounds(
        cells=found,
        slot_at=cells.slot_at(found, slot_us),
        ttft_us=medians,
        limits=_medians(within[early], limits[early].astype(np.float64))[1] > 0,
    )


def _medians(groups: Integers, values: Reals) -> Series:
    """Return the groups, ascending, and the median of each one's values."""
    order = np.lexsort((values, groups))
    found, starts, counts = np.unique(groups[order], return_index=True, return_counts=True)
    ordered = values[order]
    return found, np.asarray((ordered[starts + (counts - 1) // 2] + ordered[starts + counts // 2]) / 2)


def rules_of(route: Route, plan: Plan) -> Rules:
    """Return the rules of a route, from the intervals of its members."""
    return rules_for([target.every_us for target in members_of(route, plan)])


def members_of(route: Route, plan: Plan) -> list[Target]:
    """Return the targets of a route, in its order."""
    by_name = {target.name: target for target in plan.targets}
    return [by_name[name] for name in route.members if name in by_name]


def build_inputs(
    route: Route, plan: Plan, probes: ProbeTable, *, regions: Iterable[str], at: int, history: History = NO_HISTORY
) -> Iterator[Inputs]:
    """Yield the inputs for each of `regions`. `probes` are of all targets of the plan, to distinguish a vantage where
    everything fails from a target that fails everywhere. Probes before the route's window are left out, and so are
    those after `at`, which come from a clock that is ahead. `history` has the medians of TTFT, and the quantities of
    `long_run`.
    """
    rules, members = rules_of(route, plan), members_of(route, plan)
    recent = probes.where((probes.round_at >= at - rules.window_us) & (probes.round_at <= at))
    runs = failing_runs(recent)
    by_name = {target.name: target for target in plan.targets}
    control = recent.members.index(plan.control) if plan.control in recent.members else None
    providers = [by_name[name].provider for name in recent.members]
    # A reporting vantage may be silent for an epoch, or for two rounds if these take longer than the longest epoch.
    silence_us = max([rules.epoch_us, *(2 * target.every_us for target in members)])
    fleet = _Fleet(
        route=route,
        plan=plan,
        recent=recent,
        members=[recent.members.index(target.name) for target in members if target.name in recent.members],
        targets=[by_name[name] for name in recent.members],
        runs=runs,
        suspect_ids=suspects(runs, providers, regions_of(recent), rules, control=control),
        reporting_ids=reporting(recent, since_at=at - silence_us),
        at=at,
        rules=rules,
        history=history,
    )
    measured = [region for region in regions if region in recent.regions]
    for region, evidence in zip(measured, fleet.evidence(measured), strict=True):
        yield fleet.inputs(region, evidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fleet:
    """The probes of all vantages in a route's window; `members` and `targets` are by the probes' members."""

    route: Route
    plan: Plan
    recent: ProbeTable
    members: Sequence[int]
    targets: Sequence[Target]
    runs: Failing
    suspect_ids: set[int]
    reporting_ids: set[int]
    at: int
    rules: Rules
    history: History

    @property
    def every_us(self) -> list[int]:
        """The intervals by the probes' members."""
        return [target.every_us for target in self.targets]

    def evidence(self, regions: Sequence[str]) -> Iterator[tuple[Evidence, ...]]:
        """Yield the evidence of each region."""
        series = [(member, region) for region in regions for member in self.members]
        found = evidence_of(
            self.recent,
            [(member, self.recent.regions.index(region)) for member, region in series],
            every_us=self.every_us,
            trusted={key: run for key, run in self.runs.items() if key[1] not in self.suspect_ids},
            reporting_ids=self.reporting_ids,
            rules=self.rules,
            slo=self.route.slo,
            week=Week(
                series=[(self.targets[member].id, region) for member, region in series],
                hours=self.rules.window_us / HOUR_US,
                history=self.history,
            ),
        )
        one_by_one = iter(found)
        return (tuple(islice(one_by_one, len(self.members))) for _ in regions)

    def inputs(self, region: str, evidence: tuple[Evidence, ...]) -> Inputs:
        """Return the inputs of a region."""
        levels = self.history.levels.get(median_of(Metric.TTFT))
        local = self.recent.where(self.recent.region == self.recent.regions.index(region))
        watching = self.reporting_ids & set(np.unique(local.vantage_id).tolist())
        comparable = local.where(local.comparable & ~np.isin(local.vantage_id, list(self.suspect_ids)))
        comparisons = comparisons_of(
            comparable,
            self.members,
            slot_us=self.every_us,
            rules=self.rules,
            drift=None if levels is None else self._drift(levels, region),
        )
        return Inputs(
            at=self.at,
            client_region=region,
            route=self.route,
            plan_version=self.plan.version,
            window=Window(from_at=self.at - self.rules.window_us, until_at=self.at),
            rules=self.rules,
            targets=tuple(members_of(self.route, self.plan)),
            evidence=evidence,
            comparisons=tuple(comparisons),
            vantages=len(self.reporting_ids & {vantage for _, vantage in self.runs}),
            suspects=len(self.reporting_ids & self.suspect_ids),
            vantages_here=len(watching),
            suspects_here=len(watching & self.suspect_ids),
            joint=joint_rounds(comparable, self.members),
        )

    def _drift(self, levels: SeriesLevels, region: str) -> Drift:
        keys = [(target.id, region) for target in self.targets]

        def drift(pairs: Sequence[tuple[int, int]], span_us: int) -> VarianceInflation:
            left, right = (
                levels.of([keys[place] for place in places], [0] * len(pairs)) for places in zip(*pairs, strict=True)
            )
            return left.minus(right).variances(np.full(len(pairs), span_us / HOUR_US))

        return drift
