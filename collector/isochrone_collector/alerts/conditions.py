"""Conditions that raise alerts: of vantages that are absent, spend their budgets or have wrong clocks, and of routes.
Pure; instants are microseconds of the collector's clock.

The laws:

1. A vantage is absent if it has missed three of its announced heartbeats, and is at least two minutes late. Lateness
   counts only from `since_at`, when the collector began to watch: before that no heartbeat could arrive.
   A vantage whose agent was stopped is absent after an hour instead: a machine that does not come back from a restart
   also stops its agent in an orderly way.
2. An absence is raised once, and a return only after a raised absence. A vantage that was last seen a day ago or
   earlier is not reported as absent.
3. There is one alert a day (UTC) for each budget that is used up and for each wrong clock.
4. A switch of the first choice of a route by one of the three rules, and a freeze, have one alert each.
5. A breach of an objective is raised when the whole 95 % interval is below the objective, and its end when the whole
   interval meets it; between the two nothing changes. It has no alert if an incident explains it: the target failed, or
   was throttled, from the region within the window of the table. A frozen table shows no breach.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from isochrone_collector.alerts.message import AlertMessage, alert, of_absence, of_return
from isochrone_collector.fleet_state import LATE_GRACE_US, Spender, VantageState, budget_of
from isochrone_wire import durations
from isochrone_wire.insights import AlertKind, Eligible
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Budget, Plan, Slo, Spend, Target, day_of
from isochrone_wire.operations import alert_name
from isochrone_wire.routes import ChangeKind, RouteEntry, RouteState, RouteTable
from isochrone_wire.workloads import estimate_request

ABSENCE_KINDS = (AlertKind.VANTAGE_ABSENT, AlertKind.VANTAGE_BACK)
"""The kinds of the alerts on a vantage's absence and return."""

_MIN_TOLERANCE_US = 2 * MINUTE_US
_MISSED_HEARTBEATS = 3
_STOPPED_TOLERANCE_US = 60 * MINUTE_US


class LastAlert(NamedTuple):
    """The last alert on a vantage's absence or return."""

    kind: AlertKind
    alert_id: int
    raised_at: int


def absence_alerts(
    vantages: Iterable[VantageState], last_alerts: Mapping[str, LastAlert], *, now_at: int, since_at: int
) -> Iterator[AlertMessage]:
    """Yield the alerts to raise now. `last_alerts` are by vantage name; `since_at` is when watching began."""
    for vantage in vantages:
        last = last_alerts.get(vantage.name)
        was_absent = last is not None and last.kind is AlertKind.VANTAGE_ABSENT
        if is_absent(vantage, now_at=now_at, since_at=since_at):
            # The alert is of this absence if it was raised after the vantage was last seen.
            is_raised = was_absent and last is not None and last.raised_at >= vantage.last_seen_at
            if now_at - vantage.last_seen_at < DAY_US and not is_raised:
                name, region, stopped = vantage.name, vantage.region, vantage.stopped
                yield of_absence(name, region, last_seen_at=vantage.last_seen_at, raised_at=now_at, stopped=stopped)
        elif last and was_absent and now_at <= vantage.due_at + LATE_GRACE_US:
            back = {"absence": last.alert_id, "absent_at": last.raised_at, "raised_at": now_at}
            yield of_return(vantage.name, vantage.region, **back)


def is_absent(vantage: VantageState, *, now_at: int, since_at: int = 0) -> bool:
    """Return whether a vantage is absent; `since_at` is when watching began."""
    missed_us = _MISSED_HEARTBEATS * max(0, vantage.due_at - vantage.last_seen_at)
    tolerance_us = _STOPPED_TOLERANCE_US if vantage.stopped else max(missed_us, _MIN_TOLERANCE_US)
    return now_at - max(vantage.due_at, since_at) > tolerance_us


CLOCK_WRONG_US = 10 * SECOND_US
"""The error of a clock, in microseconds, from which on the vantage accuses no target."""


def budget_alerts(spenders: Iterable[Spender], plan: Plan, *, now_at: int) -> Iterator[AlertMessage]:
    """Yield an alert for each vantage and provider whose budget of today has no room for another round."""
    day_at = day_of(now_at)
    targets = [target for target in plan.targets if not target.paused]
    for spender in spenders:
        for spent in spender.reported:
            own = [target for target in targets if target.provider == spent.provider]
            budget = budget_of(plan.budgets, provider=spent.provider, vantage=spender.vantage)
            if spent.day_at != day_at or budget is None or not own:
                continue
            if limits := _reached(spent, budget, own):
                yield alert(
                    AlertKind.BUDGET_EXHAUSTED,
                    f"{spent.provider} from {spender.vantage}",
                    f"the budget of today has no room for another round: {'; '.join(limits)}",
                    key=(spender.vantage, spent.provider, day_at),
                    raised_at=now_at,
                    vantage=spender.vantage,
                    region=spender.region,
                    provider=spent.provider,
                    day=rfc3339(day_at),
                    usd=spent.usd,
                    tokens=spent.tokens,
                    requests=spent.requests,
                )


def _reached(spent: Spend, budget: Budget, targets: Sequence[Target]) -> list[str]:
    estimates = [(target, estimate_request(target)) for target in targets]
    streams = {target.id: target.workload.concurrency for target in targets}
    usd = min(one.cost_usd(target.price) * streams[target.id] if target.price else 0.0 for target, one in estimates)
    tokens = min(one.tokens * streams[target.id] for target, one in estimates)
    found = []
    if budget.usd_per_day is not None and spent.usd + usd > budget.usd_per_day:
        found.append(f"{spent.usd:.2f} of {budget.usd_per_day:.2f} USD spent")
    if budget.tokens_per_day is not None and spent.tokens + tokens > budget.tokens_per_day:
        found.append(f"{spent.tokens} of {budget.tokens_per_day} tokens used")
    if budget.requests_per_day is not None and spent.requests + min(streams.values()) > budget.requests_per_day:
        found.append(f"{spent.requests} of {budget.requests_per_day} requests sent")
    return found


def is_clock_wrong(offset_us: int | None, uncertainty_us: int | None) -> bool:
    """Return whether a clock with this offset is certainly wrong; an unknown offset is not."""
    return abs(offset_us or 0) - (uncertainty_us or 0) > CLOCK_WRONG_US


def of_vantage_clock(vantage: str, region: str, offset_us: int, *, raised_at: int) -> AlertMessage:
    """Return the alert for a vantage whose clock is `offset_us` ahead of the collector's."""
    off = f"{abs(offset_us) / SECOND_US:.0f} s {'ahead of' if offset_us > 0 else 'behind'} the collector's"
    return alert(
        AlertKind.CLOCK_WRONG,
        f"clock of {vantage}",
        f"the clock of {vantage} in {region} is {off}: its rounds count for no incident until it is right",
        key=(vantage, day_of(raised_at)),
        raised_at=raised_at,
        vantage=vantage,
        region=region,
        offset_us=offset_us,
    )


_KIND_OF = {
    **dict.fromkeys((ChangeKind.SOFT, ChangeKind.FAST, ChangeKind.HARD), AlertKind.ROUTE_SWITCHED),
    ChangeKind.FREEZE: AlertKind.ROUTE_FROZEN,
}


def of_change(table: RouteTable, *, raised_at: int) -> AlertMessage | None:
    """Return the alert for the change that led to a table, if it has one."""
    kind = _KIND_OF.get(table.change)
    if kind is None:
        return None
    return alert(
        kind,
        f"{table.route} from {table.client_region}",
        table.sentence,
        key=(table.client_region, table.route, table.generation, table.built_at),
        raised_at=raised_at,
        **_details(table),
        rule=table.change.value,
        first=table.entries[0].target if table.entries else None,
    )


def objective_alerts(
    table: RouteTable, last_alerts: Mapping[str, LastAlert], explained: Collection[str], *, raised_at: int
) -> Iterator[AlertMessage]:
    """Yield the alerts for members that miss their objective, or meet it again; `last_alerts` are by subject."""
    if table.state is RouteState.FROZEN:
        return
    for entry in table.entries:
        subject = f"{entry.target} in {table.route} from {table.client_region}"
        last = last_alerts.get(subject)
        breach = last if last and last.kind is AlertKind.SLO_BREACHED else None
        details = _details(table) | {"target": entry.target, "slo": table.slo.name}
        if entry.slo_in_window is Eligible.NO and breach is None and entry.target not in explained:
            yield alert(
                AlertKind.SLO_BREACHED,
                subject,
                f"misses its objective: {_shares(entry, table.slo)}",
                key=(subject, table.generation, table.built_at),
                raised_at=raised_at,
                **details,
                goodput=entry.goodput and entry.goodput.value,
                success=entry.success and entry.success.value,
            )
        elif entry.slo_in_window is Eligible.YES and breach is not None:
            lasted = durations.rough(raised_at - breach.raised_at)
            yield alert(
                AlertKind.SLO_RESTORED,
                subject,
                f"meets its objective again, {lasted} after the breach was reported",
                key=(subject, breach.alert_id),
                raised_at=raised_at,
                **details,
                breach=alert_name(breach.alert_id),
            )


def _details(table: RouteTable) -> dict[str, Any]:
    return {"route": table.route, "region": table.client_region, "generation": table.generation}


def _shares(entry: RouteEntry, slo: Slo) -> str:
    parts = []
    if entry.goodput is not None:
        parts.append(
            f"{entry.goodput.value:.1%} of {entry.goodput.n} requests kept its limits, {slo.min_goodput:.1%} needed"
        )
    if entry.success is not None and slo.min_success:
        parts.append(f"{entry.success.value:.1%} of {entry.success.n} succeeded, {slo.min_success:.1%} needed")
    return "; ".join(parts) or "too many requests are too slow"
