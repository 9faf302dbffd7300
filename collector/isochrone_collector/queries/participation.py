"""Participation for queries that compare regions, and the regions with a problem of their own."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from isochrone_collector.analysis.differential import participation
from isochrone_collector.analysis.differential.panel import TargetRegion
from isochrone_collector.analysis.differential.participation import Participation, PlanSpan, Presence, active_window
from isochrone_collector.analysis.history import NO_HISTORY, History
from isochrone_collector.analysis.probes import Probes
from isochrone_collector.store.rows import VantageRow
from isochrone_wire.answers import Window
from isochrone_wire.model import Plan

Control = tuple[int, str]
"""The control target's id and name."""


def control_of(plan: Plan | None) -> Control | None:
    """Return the control target of a plan, if it has one."""
    named = [target for target in plan.targets if target.name == plan.control] if plan else []
    return (named[0].id, named[0].name) if named else None


def participations(
    probes: Probes,
    vantages: Iterable[VantageRow],
    spans: Sequence[PlanSpan],
    *,
    target_ids: Collection[int],
    window: Window,
    now_at: int,
    history: History = NO_HISTORY,
) -> dict[TargetRegion, Participation]:
    """Return the participation of each of these targets in each region, over all its vantages. `history` has the
    success of the past week.
    """
    oldest = participation.oldest_rounds(probes)
    presences = [_presence(vantage, window, oldest.get(vantage.id), now_at) for vantage in vantages]
    return participation.participations(probes, participation.planned(presences, spans, target_ids), history)


def planned_probes(
    vantages: Iterable[VantageRow],
    spans: Sequence[PlanSpan],
    *,
    target_ids: Iterable[int],
    window: Window,
    now_at: int,
) -> dict[TargetRegion, int]:
    """Return the probes of each target that the plans asked the vantages of each region for, by what is known without
    their samples.
    """
    presences = [_presence(vantage, window, None, now_at) for vantage in vantages]
    return participation.planned(presences, spans, target_ids)


def region_problems(
    control: Control | None, found: Mapping[TargetRegion, Participation], regions: Iterable[str]
) -> dict[str, str]:
    """Map each region that is unfit itself to the reason."""
    if control is None:
        return {}
    target_id, name = control
    reasons = {
        region: found.get((target_id, region), Participation()).control_problem(region, name) for region in regions
    }
    return {region: reason for region, reason in reasons.items() if reason}


def unfit(found: Mapping[TargetRegion, Participation], region_problem: Mapping[str, str]) -> dict[TargetRegion, str]:
    """Map a target and region to why they are not compared: the region's own problem, too little recorded, or too many
    failures.
    """
    reasons = {
        key: region_problem.get(key[1]) or participation.coverage_problem(key[1]) or participation.losses(key[1])
        for key, participation in found.items()
    }
    return {key: reason for key, reason in reasons.items() if reason}


def _presence(vantage: VantageRow, window: Window, oldest_at: int | None, now_at: int) -> Presence:
    part = active_window(
        window,
        first_seen_at=vantage.first_seen_at,
        last_seen_at=vantage.last_seen_at,
        oldest_at=oldest_at,
        now_at=now_at,
    )
    return Presence(region=vantage.region, part=part)
