"""Builder of a route's inputs, region by region, from the plan and the probes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from isochrone_collector.analysis.history import SeriesLevels
from isochrone_collector.analysis.stats.long_run_variance import Inflation
from isochrone_collector.routing.evidence import (
    Failing,
    ProbeTable,
    evidence_of,
    failing_runs,
    regions_of,
    reporting,
    suspects,
)
from isochrone_collector.routing.inputs import Evidence, Inputs, Rules, rules_for
from isochrone_collector.routing.member_pairs import Drift, comparisons_of, joint_rounds
from isochrone_wire.answers import Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.model import Plan, Route, Target


def rules_of(route: Route, plan: Plan) -> Rules:
    """Return the rules of a route, from the intervals of its members."""
    return rules_for([target.every_us for target in members_of(route, plan)])


def members_of(route: Route, plan: Plan) -> list[Target]:
    """Return the targets of a route, in its order."""
    by_name = {target.name: target for target in plan.targets}
    return [by_name[name] for name in route.members if name in by_name]


def build_inputs(
    route: Route,
    plan: Plan,
    probes: ProbeTable,
    *,
    regions: Iterable[str],
    at: int,
    levels: SeriesLevels | None = None,
) -> Iterator[Inputs]:
    """Yield the inputs for each of `regions`. `probes` are of all targets of the plan, to distinguish a vantage where
    everything fails from a target that fails everywhere. Probes before the route's window are left out, and so are
    those after `at`, which come from a clock that is ahead. `levels` are the hourly medians of TTFT of the past week.
    """
    rules = rules_of(route, plan)
    recent = probes.where((probes.round_at >= at - rules.window_us) & (probes.round_at <= at))
    runs = failing_runs(recent)
    provider_of = {target.name: target.provider for target in plan.targets}
    control = recent.members.index(plan.control) if plan.control in recent.members else None
    providers = [provider_of[name] for name in recent.members]
    every_us = {target.name: target.every_us for target in plan.targets}
    fleet = _Fleet(
        route=route,
        plan=plan,
        recent=recent,
        members=[
            recent.members.index(target.name) for target in members_of(route, plan) if target.name in recent.members
        ],
        every_us=[every_us[name] for name in recent.members],
        runs=runs,
        suspect_ids=suspects(runs, providers, regions_of(recent), rules, control=control),
        reporting_ids=reporting(recent, since_at=at - _silence_us(route, plan, rules)),
        at=at,
        rules=rules,
    )
    known = [region for region in regions if region in recent.regions]
    for region, evidence in zip(known, fleet.evidence(known), strict=True):
        yield fleet.inputs(region, evidence, levels)


def _silence_us(route: Route, plan: Plan, rules: Rules) -> int:
    """Return how long a reporting vantage may be silent, in microseconds: an epoch, or two rounds if these take longer
    than the longest epoch.
    """
    return max([rules.epoch_us, *(2 * target.every_us for target in members_of(route, plan))])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fleet:
    """The probes of all vantages in the window of a route, with what is known of the vantages. `members` are those of
    the route in its order, as indices of the probes' members; `every_us` are the intervals of the probes' members.
    """

    route: Route
    plan: Plan
    recent: ProbeTable
    members: Sequence[int]
    every_us: Sequence[int]
    runs: Failing
    suspect_ids: set[int]
    reporting_ids: set[int]
    at: int
    rules: Rules

    def evidence(self, regions: Sequence[str]) -> Iterator[tuple[Evidence, ...]]:
        """Yield the evidence of each region."""
        found = evidence_of(
            self.recent,
            [(member, self.recent.regions.index(region)) for region in regions for member in self.members],
            every_us=self.every_us,
            trusted={key: run for key, run in self.runs.items() if key[1] not in self.suspect_ids},
            reporting_ids=self.reporting_ids,
            rules=self.rules,
            slo=self.route.slo,
        )
        one_by_one = iter(found)
        return (tuple(islice(one_by_one, len(self.members))) for _ in regions)

    def inputs(self, region: str, evidence: tuple[Evidence, ...], levels: SeriesLevels | None) -> Inputs:
        """Return the inputs of a region."""
        local = self.recent.where(self.recent.region == self.recent.regions.index(region))
        watching = self.reporting_ids & set(np.unique(local.vantage_id).tolist())
        comparable = local.where(local.comparable & ~np.isin(local.vantage_id, list(self.suspect_ids)))
        comparisons = comparisons_of(
            comparable,
            self.members,
            slot_us=self.every_us,
            at=self.at,
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
        id_of = {target.name: target.id for target in self.plan.targets}
        keys = [(id_of[name], region) for name in self.recent.members]

        def drift(pairs: Sequence[tuple[int, int]], span_us: int) -> Inflation:
            left, right = (
                levels.of([keys[place] for place in places], [0] * len(pairs)) for places in zip(*pairs, strict=True)
            )
            return left.minus(right).variances(np.full(len(pairs), span_us / HOUR_US))

        return drift
