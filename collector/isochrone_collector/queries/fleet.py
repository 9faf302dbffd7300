"""How the vantages are doing, and what they have spent."""

from dataclasses import asdict, fields

from isochrone_collector.analysis.liveness import Signs, judge
from isochrone_collector.analysis.spend import Spender, reported, spend_lines
from isochrone_collector.queries.context import QueryContext, find
from isochrone_collector.store import vantages
from isochrone_collector.store.rows import VantageStateRow
from isochrone_wire.answers import Selection, SpendList, VantageList, VantageStatus
from isochrone_wire.model import Plan

_SIGNS = [field.name for field in fields(Signs)]
_VITALS = {field.name for field in fields(VantageStatus)}


async def vantage_list(desk: QueryContext) -> VantageList:
    """Every vantage ever heard of, and how it is doing."""
    async with desk.database.connection() as connection:
        rows = await vantages.states(connection)
    now_at, plan = desk.clock(), desk.plans.current
    statuses = tuple(_status(row, now_at=now_at, plan=plan) for row in rows)
    return VantageList(plan_version=desk.plans.version, answered_at=now_at, vantages=statuses)


async def spend(desk: QueryContext, selection: Selection) -> SpendList:
    """What each vantage of the selection has spent today (UTC) with each provider; the window is not looked at."""
    async with desk.database.connection() as connection:
        question = await find(connection, selection)
        rows = await vantages.spenders(connection)
    regions = question.scope.regions
    providers = {row.provider for row in question.targets.values()} if selection.targets else None
    present = [row for row in rows if regions is None or row.region in regions]
    spenders = [Spender(vantage=row.name, region=row.region, reported=reported(row.spend)) for row in present]
    plan, now_at = desk.plans.current or Plan(version=0, baseline=""), desk.clock()
    lines = (spend_lines(spender, plan=plan, now_at=now_at, providers=providers) for spender in spenders)
    return SpendList(spend=tuple(line for of_one in lines for line in of_one))


def _status(row: VantageStateRow, *, now_at: int, plan: Plan | None) -> VantageStatus:
    said = asdict(row)
    liveness, reason = judge(Signs(**{name: said[name] for name in _SIGNS}), now_at=now_at, plan=plan)
    kept = {name: part for name, part in said.items() if name in _VITALS}
    return VantageStatus(liveness=liveness, reason=reason, **kept)
