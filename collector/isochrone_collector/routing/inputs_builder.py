"""The inputs of a route's decisions, region by region, from the plan and what was seen."""

from collections.abc import Iterable, Iterator

import numpy as np

from isochrone_collector.routing.evidence import (
    Failing,
    ProbeTable,
    comparisons_of,
    evidence_of,
    failing_runs,
    reporting,
    suspects,
)
from isochrone_collector.routing.inputs import Inputs, Rules, rules_for
from isochrone_wire.answers import Window
from isochrone_wire.model import Plan, Route, Target


def rules_of(route: Route, plan: Plan) -> Rules:
    """The rules of a route, from how often its members are probed."""
    return rules_for([target.every_us for target in members_of(route, plan)])


def members_of(route: Route, plan: Plan) -> list[Target]:
    """The targets of a route, in its order."""
    by_name = {target.name: target for target in plan.targets}
    return [by_name[name] for name in route.members if name in by_name]


def briefs(route: Route, plan: Plan, sightings: ProbeTable, *, regions: Iterable[str], at: int) -> Iterator[Inputs]:
    """The inputs for each of `regions`. `sightings` are of all the plan's targets, so that a vantage where everything
    fails is told from a target that fails everywhere; those before the route's window are left out, and those from
    after `at`, of a clock that is ahead.
    """
    rules = rules_of(route, plan)
    seen = sightings.where((sightings.round_at >= at - rules.window_us) & (sightings.round_at <= at))
    runs = failing_runs(seen)
    provider_of = {target.name: target.provider for target in plan.targets}
    control = seen.members.index(plan.control) if plan.control in seen.members else None
    suspected = suspects(runs, [provider_of[name] for name in seen.members], rules, control=control)
    live = reporting(seen, since_at=at - _silence_us(route, plan, rules))
    for region in regions:
        if region in seen.regions:
            yield _brief(
                route, plan, seen, runs=runs, suspected=suspected, live=live, region=region, at=at, rules=rules
            )


def _silence_us(route: Route, plan: Plan, rules: Rules) -> int:
    """How long a vantage that still reports may have nothing to report: an epoch, or two rounds where these take longer
    than the longest epoch.
    """
    return max([rules.epoch_us, *(2 * target.every_us for target in members_of(route, plan))])


def _brief(
    route: Route,
    plan: Plan,
    seen: ProbeTable,
    *,
    runs: Failing,
    suspected: set[int],
    live: set[int],
    region: str,
    at: int,
    rules: Rules,
) -> Inputs:
    here = seen.regions.index(region)
    local = seen.where(seen.region == here)
    watching = live & set(np.unique(local.vantage_id).tolist())
    sound = local.where(~np.isin(local.vantage_id, list(suspected)))
    trusted = {key: run for key, run in runs.items() if key[1] not in suspected}
    members = members_of(route, plan)
    places = [seen.members.index(target.name) for target in members if target.name in seen.members]
    every_us = {target.name: target.every_us for target in plan.targets}
    intervals = [every_us[name] for name in seen.members]
    return Inputs(
        at=at,
        client_region=region,
        route=route,
        plan_version=plan.version,
        window=Window(from_at=at - rules.window_us, until_at=at),
        rules=rules,
        targets=tuple(members),
        evidence=tuple(
            evidence_of(seen, place, here=here, every_us=intervals[place], trusted=trusted, live=live, rules=rules)
            for place in places
        ),
        comparisons=tuple(comparisons_of(sound, places, slot_us=intervals, at=at, rules=rules)),
        vantages=len(live & {vantage for _, vantage in runs}),
        suspects=len(live & suspected),
        vantages_here=len(watching),
        suspects_here=len(watching & suspected),
    )
