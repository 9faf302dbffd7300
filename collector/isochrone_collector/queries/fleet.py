from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from itertools import chain

from isochrone_collector.analysis.differential.participation import PlanSpan, active_window, planned_rounds
from isochrone_collector.fleet_state import VantageState, classify, spend_lines
from isochrone_collector.queries.context import QueryContext, ResolvedSelection, resolve, resolve_names
from isochrone_collector.region_places import RegionPlace, place_of
from isochrone_collector.store import probe_queries, vantages
from isochrone_collector.store.postgres.pool import Connection
from isochrone_collector.store.postgres.values import fields_of
from isochrone_collector.store.probe_queries import RecordedRow, Scope
from isochrone_collector.store.vantages import VantageRow
from isochrone_wire.answers import Selection, Window
from isochrone_wire.fleet import Coverage, CoverageList, SpendList, VantageList, VantageStatus
from isochrone_wire.model import MINUTE_US, Plan, Vantage

_NEWEST_US = 15 * MINUTE_US
_STATUS_FIELDS = {field.name for field in fields(VantageStatus)}


async def vantage_list(context: QueryContext) -> VantageList:
    """Return every known vantage with its state."""
    async with context.database.connection() as connection:
        rows = await vantage_states(context, connection)
    now_at, plan = context.clock(), context.plans.current
    statuses = tuple(
        _status(row, now_at=now_at, plan=plan, place=place_of(row.region, context.region_places)) for row in rows
    )
    return VantageList(
        plan_version=context.plans.version, answered_at=now_at, vantages=statuses, paused=context.paused()
    )


async def vantage_states(context: QueryContext, connection: Connection) -> list[VantageState]:
    """Return every known vantage with its heartbeat, and with what its machine's load did to its newest probes."""
    now_at = context.clock()
    targets = tuple(target.id for target in context.targets().targets)
    newest = Scope(window=Window(from_at=now_at - _NEWEST_US, until_at=now_at), target_ids=targets)
    shares = await probe_queries.left_out(connection, newest)
    return [
        replace(row, left_out=shares.get(Vantage(name=row.name, region=row.region).id))
        for row in await vantages.states(connection, now_at=now_at)
    ]


async def spend(context: QueryContext, selection: Selection) -> SpendList:
    """Return today's spend (UTC) of each selected vantage per provider; the window is ignored."""
    async with context.database.connection() as connection:
        resolved = await resolve_names(connection, selection)
        spenders = await vantages.spenders(connection)
    regions = resolved.scope.regions
    providers = {row.provider for row in resolved.targets.values()} if selection.targets else None
    plan, now_at = context.plans.current or Plan(version=0, baseline=""), context.clock()
    lines = (
        spend_lines(spender, plan=plan, now_at=now_at, providers=providers)
        for spender in spenders
        if regions is None or spender.region in regions
    )
    return SpendList(spend=tuple(chain.from_iterable(lines)))


def _status(row: VantageState, *, now_at: int, plan: Plan | None, place: RegionPlace | None) -> VantageStatus:
    liveness, reason = classify(row, now_at=now_at, plan=plan)
    shown = {name: part for name, part in fields_of(row).items() if name in _STATUS_FIELDS}
    status = VantageStatus(liveness=liveness, reason=reason, **shown)
    if place is None:
        return status
    return replace(status, latitude=place.latitude, longitude=place.longitude, place=place.city)


def active_part(vantage: VantageRow, window: Window, oldest_at: int | None, now_at: int) -> Window:
    """Return the part of a window in which a vantage measured; its oldest round in it began at `oldest_at`."""
    seen = {"first_seen_at": vantage.first_seen_at, "last_seen_at": vantage.last_seen_at}
    return active_window(window, **seen, oldest_at=oldest_at, now_at=now_at)


async def coverage(context: QueryContext, selection: Selection) -> CoverageList:
    """Return the rounds planned until now and the rounds recorded, per vantage and target."""
    async with context.database.connection() as connection:
        resolved = await resolve(connection, selection)
        all_vantages = await vantages.vantages(connection)
        rows = await probe_queries.recorded(connection, resolved.scope)
        spans = await context.plans.spans(connection, selection.window)
    regions = resolved.scope.regions
    present = [vantage for vantage in all_vantages if regions is None or vantage.region in regions]
    lines = [line for vantage in present for line in _coverage(vantage, rows, spans, resolved, now_at=context.clock())]
    return CoverageList(window=selection.window, coverage=tuple(lines))


def _coverage(
    vantage: VantageRow,
    rows: Sequence[RecordedRow],
    spans: Sequence[PlanSpan],
    resolved: ResolvedSelection,
    *,
    now_at: int,
) -> Iterable[Coverage]:
    own = {row.target_id: row for row in rows if row.vantage_id == vantage.id}
    oldest_at = min((row.oldest_at for row in own.values()), default=None)
    part = active_part(vantage, resolved.scope.window, oldest_at, now_at)
    for target_id in resolved.targets:
        planned = planned_rounds(target_id, spans, part)
        row = own.get(target_id)
        if planned or row:
            yield Coverage(
                vantage=vantage.name,
                region=vantage.region,
                target=resolved.names[target_id],
                planned=planned,
                recorded=row.recorded if row else 0,
                outcomes=row.outcomes if row else {},
                newest_at=row.newest_at if row else None,
                oldest_at=row.oldest_at if row else None,
            )
