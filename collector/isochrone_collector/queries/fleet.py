"""Queries for the state and the spend of vantages."""

from dataclasses import asdict, fields, replace

from isochrone_collector.fleet_state import Spender, VantageSignals, classify, reported, spend_lines
from isochrone_collector.queries.context import QueryContext, resolve_names
from isochrone_collector.region_places import RegionPlace, place_of
from isochrone_collector.store import vantages
from isochrone_collector.store.rows import VantageStateRow
from isochrone_wire.answers import Selection
from isochrone_wire.fleet import SpendList, VantageList, VantageStatus
from isochrone_wire.model import Plan

_SIGNALS = [field.name for field in fields(VantageSignals)]
_STATUS_FIELDS = {field.name for field in fields(VantageStatus)}


async def vantage_list(context: QueryContext) -> VantageList:
    """Return every known vantage with its state."""
    async with context.database.connection() as connection:
        rows = await vantages.states(connection, now_at=context.clock())
    now_at, plan = context.clock(), context.plans.current
    statuses = tuple(
        _status(row, now_at=now_at, plan=plan, place=place_of(row.region, context.region_places)) for row in rows
    )
    return VantageList(
        plan_version=context.plans.version, answered_at=now_at, vantages=statuses, paused=context.paused()
    )


async def spend(context: QueryContext, selection: Selection) -> SpendList:
    """Return today's spend (UTC) of each selected vantage per provider; the window is ignored."""
    async with context.database.connection() as connection:
        resolved = await resolve_names(connection, selection)
        rows = await vantages.spenders(connection)
    regions = resolved.scope.regions
    providers = {row.provider for row in resolved.targets.values()} if selection.targets else None
    present = [row for row in rows if regions is None or row.region in regions]
    spenders = [Spender(vantage=row.name, region=row.region, reported=reported(row.spend)) for row in present]
    plan, now_at = context.plans.current or Plan(version=0, baseline=""), context.clock()
    lines = (spend_lines(spender, plan=plan, now_at=now_at, providers=providers) for spender in spenders)
    return SpendList(spend=tuple(line for of_one in lines for line in of_one))


def _status(row: VantageStateRow, *, now_at: int, plan: Plan | None, place: RegionPlace | None) -> VantageStatus:
    values = asdict(row)
    liveness, reason = classify(VantageSignals(**{name: values[name] for name in _SIGNALS}), now_at=now_at, plan=plan)
    shown = {name: part for name, part in values.items() if name in _STATUS_FIELDS}
    status = VantageStatus(liveness=liveness, reason=reason, **shown)
    if place is None:
        return status
    return replace(status, latitude=place.latitude, longitude=place.longitude, place=place.city)
