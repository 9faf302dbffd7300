"""Builder of a route's inputs, region by region, from the plan and the probes."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from isochrone_collector.analysis.history import SeriesLevels
from isochrone_collector.analysis.stats.long_run_variance import Inflation
from isochrone_collector.routing.evidence import (
    Drift,
    Failing,
    ProbeTable,
    comparisons_of,
    evidence_of,
    failing_runs,
    joint_rounds,
    regions_of,
    reporting,
    suspects,
)
from isochrone_collector.routing.inputs import Inputs, Rules, rules_for
from isochrone_wire.answers import Window
from isochrone_wire.model import SECOND_US, Plan, Route, Target

_HOUR_US = 3600 * SECOND_US


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
    suspect_ids = suspects(runs, providers, regions_of(recent), rules, control=control)
    reporting_ids = reporting(recent, since_at=at - _silence_us(route, plan, rules))
    for region in regions:
        if region in recent.regions:
            yield _region_inputs(
                route,
                plan,
                recent,
                runs=runs,
                suspect_ids=suspect_ids,
                reporting_ids=reporting_ids,
                region=region,
                at=at,
                rules=rules,
                levels=levels,
            )


def _silence_us(route: Route, plan: Plan, rules: Rules) -> int:
    """Return how long a reporting vantage may be silent, in microseconds: an epoch, or two rounds if these take longer
    than the longest epoch.
    """
    return max([rules.epoch_us, *(2 * target.every_us for target in members_of(route, plan))])


def _region_inputs(
    route: Route,
    plan: Plan,
    recent: ProbeTable,
    *,
    runs: Failing,
    suspect_ids: set[int],
    reporting_ids: set[int],
    region: str,
    at: int,
    rules: Rules,
    levels: SeriesLevels | None,
) -> Inputs:
    region_place = recent.regions.index(region)
    local = recent.where(recent.region == region_place)
    watching = reporting_ids & set(np.unique(local.vantage_id).tolist())
    comparable = local.where(local.comparable & ~np.isin(local.vantage_id, list(suspect_ids)))
    trusted = {key: run for key, run in runs.items() if key[1] not in suspect_ids}
    members = members_of(route, plan)
    places = [recent.members.index(target.name) for target in members if target.name in recent.members]
    every_us = {target.name: target.every_us for target in plan.targets}
    id_of = {target.name: target.id for target in plan.targets}
    intervals = [every_us[name] for name in recent.members]
    return Inputs(
        at=at,
        client_region=region,
        route=route,
        plan_version=plan.version,
        window=Window(from_at=at - rules.window_us, until_at=at),
        rules=rules,
        targets=tuple(members),
        evidence=tuple(
            evidence_of(
                recent,
                place,
                region_place=region_place,
                every_us=intervals[place],
                trusted=trusted,
                reporting_ids=reporting_ids,
                rules=rules,
                slo=route.slo,
            )
            for place in places
        ),
        comparisons=tuple(
            comparisons_of(
                comparable,
                places,
                slot_us=intervals,
                at=at,
                rules=rules,
                drift=_drift(levels, [id_of[name] for name in recent.members], region),
            )
        ),
        vantages=len(reporting_ids & {vantage for _, vantage in runs}),
        suspects=len(reporting_ids & suspect_ids),
        vantages_here=len(watching),
        suspects_here=len(watching & suspect_ids),
        joint=joint_rounds(comparable, places),
    )


def _drift(levels: SeriesLevels | None, target_ids: Sequence[int], region: str) -> Drift:
    def drift(left: int, right: int, span_us: int) -> Inflation | None:
        if levels is None:
            return None
        left_levels, right_levels = (levels.of([(target_ids[place], region)], [0]) for place in (left, right))
        return left_levels.minus(right_levels).variances(np.array([span_us / _HOUR_US]))

    return drift
