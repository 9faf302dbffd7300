"""Inputs of a route, region by region, computed from the plan and the probes.

Two members are compared by slots as long as the longer of their intervals, because each target has its own rounds. Of
the member that is probed more often only the first round of a slot counts: a median of several rounds is less skewed
than a single value, which would look like a shift. Whether they stall together is counted in joint rounds only.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
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
    alike: dict[tuple[int, int], list[int]] = {}
    for left, right in pairs:
        alike.setdefault((left, max(slot_us[left], slot_us[right])), []).append(right)
    rounds = cache(partial(_first_rounds, probes, members))
    counts: dict[tuple[int, int], dict[str, int]] = {}
    differences = {}
    for (left, us), rights in alike.items():
        place, others = members.index(left), [members.index(right) for right in rights]
        # Where no instants are nearer than a slot, both are the same.
        is_sparse = not ((probes.round_at - probes.round_at[:1]) % us).any()
        shared, joint = (rounds(width).pairs(place, others) for width in (1 if is_sparse else us, 1))
        columns = shared.known.sum(axis=1).tolist(), shared.differences(), joint.slow()
        for right, n, own, slow in zip(rights, *columns, strict=True):
            counts[left, right], differences[left, right] = {"n": n, **slow}, own
    values = ragged([differences[pair] for pair in pairs])
    shifts = paired_shifts(values, history=drift and drift(pairs, rules.window_us)).listed() if pairs else []
    return [
        Comparison(left=probes.members[left], right=probes.members[right], window=window, **counts[left, right])
        for (left, right), window in zip(pairs, shifts, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pairs:
    """By pair and cell: the TTFTs of both members, whether these are limits, and whether both are known. `slot` is the
    number of each cell's slot, ascending.
    """

    slot: Integers
    known: Flags
    left: Reals
    left_limits: Flags
    right: Reals
    right_limits: Flags

    def differences(self) -> list[Reals]:
        """Return the differences of each pair whose sign is known, of all vantages of a slot their median."""
        known = self.known & sign_is_known(self.left, self.left_limits, self.right, self.right_limits)
        pair, cell = np.nonzero(known)
        slot = self.slot - self.slot[:1]
        width = int(slot.max(initial=0)) + 1
        found, medians = _medians(pair * width + slot[cell], (self.left - self.right)[known])
        return np.split(medians, np.searchsorted(found, width * np.arange(1, len(known))))

    def slow(self) -> list[dict[str, int]]:
        """Count the cells of each pair, those in which a member exceeded its own p95, and those in which both did."""
        left, right = (self._exceeds(of) for of in (self.left, self.right))
        counts = [of.sum(axis=1).tolist() for of in (self.known, left, right, left & right)]
        names = ("joint", "slow_left", "slow_right", "slow_both")
        return [dict(zip(names, row, strict=True)) for row in zip(*counts, strict=True)]

    def _exceeds(self, values: Reals) -> Flags:
        if not self.known.size:
            return self.known
        ordered = np.sort(np.where(self.known, values, np.inf), axis=1)
        place = (np.maximum(self.known.sum(axis=1) - 1, 0) * _SHARE).astype(np.int64)
        return self.known & (values > np.take_along_axis(ordered, place[:, np.newaxis], axis=1))


def joint_rounds(probes: ProbeTable, members: Sequence[int]) -> JointRounds:
    """Return the rounds of `members`, given the probes of one region; of a burst the median counts. A timeout counts at
    least as much as the member's largest value.
    """
    largest = np.zeros(len(probes.members))
    np.fmax.at(largest, probes.member[~probes.censored], probes.ttft_us[~probes.censored])
    raised = np.where(probes.censored, np.maximum(probes.ttft_us, largest[probes.member]), probes.ttft_us)
    found = _first_rounds(replace(probes, ttft_us=raised), members, 1, several=False)
    columns = buckets_of(found.ttft_us).astype(np.object_)
    columns[np.isnan(found.ttft_us)] = None
    names = [probes.members[member] for member in members]
    return JointRounds(round_at=tuple(found.slot.tolist()), ttft=dict(zip(names, map(tuple, columns), strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rounds:
    """The first rounds by member and cell, a slot at a vantage, in the order of slots: the TTFT, NaN without one, and
    whether it is a limit.
    """

    slot: Integers
    ttft_us: Reals
    limits: Flags

    def pairs(self, left: int, rights: Sequence[int]) -> _Pairs:
        """Return the pairs of a row with others."""
        of_left, of_right = self.ttft_us[[left]], self.ttft_us[rights]
        return _Pairs(
            slot=self.slot,
            known=~np.isnan(of_left) & ~np.isnan(of_right),
            left=of_left,
            left_limits=self.limits[[left]],
            right=of_right,
            right_limits=self.limits[rights],
        )


def _first_rounds(probes: ProbeTable, members: Sequence[int], slot_us: int, *, several: bool = True) -> _Rounds:
    """Return the first rounds of slots; with `several` only the cells in which more than one member has a TTFT."""
    places = np.full(len(probes.members), -1)
    places[list(members)] = np.arange(len(members))
    own = (places[probes.member] >= 0) & ~np.isnan(probes.ttft_us)
    round_at, member = probes.round_at[own], places[probes.member[own]]
    vantages, vantage = np.unique(probes.vantage_id[own], return_inverse=True)
    # Slots are counted from the first one: an instant times thousands of vantages would need more than 64 bits.
    first = int(round_at.min()) // slot_us if len(round_at) else 0
    cells, place, counts = np.unique(
        (round_at // slot_us - first) * len(vantages) + vantage, return_inverse=True, return_counts=True
    )
    kept = counts > several
    chosen = kept[place]
    member, place = member[chosen], (np.cumsum(kept) - 1)[place[chosen]]
    round_at, ttft_us, censored = round_at[chosen], probes.ttft_us[own][chosen], probes.censored[own][chosen]
    shape = len(members), int(kept.sum())
    group = member * shape[1] + place
    first_at = np.full(shape[0] * shape[1], np.iinfo(np.int64).max)
    np.minimum.at(first_at, group, round_at)
    early = round_at == first_at[group]
    medians, limits = np.full(len(first_at), np.nan), np.zeros(len(first_at), np.bool_)
    found, medians_of = _medians(group[early], ttft_us[early])
    medians[found] = medians_of
    limits[group[early & censored]] = True
    return _Rounds(
        slot=cells[kept] // max(len(vantages), 1) + first, ttft_us=medians.reshape(shape), limits=limits.reshape(shape)
    )


def _medians(groups: Integers, values: Reals) -> tuple[Integers, Reals]:
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
