"""Alerts for vantages: budgets that are used up, and clocks that are wrong. Pure; instants are microseconds since the
epoch. There is one a day (UTC) for each subject.
"""

from collections.abc import Iterable, Iterator, Sequence

from isochrone_collector.alerts.message import AlertMessage, id_of
from isochrone_collector.fleet_state import Spender, budget_of
from isochrone_wire.insights import AlertKind
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import SECOND_US, Budget, Plan, Spend, Target, day_of
from isochrone_wire.workloads import estimate_request

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
                subject = f"{spent.provider} from {spender.vantage}"
                yield AlertMessage(
                    id=id_of(AlertKind.BUDGET_EXHAUSTED, spender.vantage, spent.provider, day_at),
                    kind=AlertKind.BUDGET_EXHAUSTED,
                    subject=subject,
                    sentence=f"the budget of today has no room for another round: {'; '.join(limits)}",
                    details={
                        "vantage": spender.vantage,
                        "region": spender.region,
                        "provider": spent.provider,
                        "day": rfc3339(day_at),
                        "usd": spent.usd,
                        "tokens": spent.tokens,
                        "requests": spent.requests,
                    },
                    raised_at=now_at,
                )


def _reached(spent: Spend, budget: Budget, targets: Sequence[Target]) -> list[str]:
    """Return the limits that the cheapest round would exceed."""
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
    direction = "ahead of" if offset_us > 0 else "behind"
    seconds = abs(offset_us) / SECOND_US
    return AlertMessage(
        id=id_of(AlertKind.CLOCK_WRONG, vantage, day_of(raised_at)),
        kind=AlertKind.CLOCK_WRONG,
        subject=f"clock of {vantage}",
        sentence=f"the clock of {vantage} in {region} is {seconds:.0f} s {direction} the collector's: its rounds count "
        "for no incident until it is right",
        details={"vantage": vantage, "region": region, "offset_us": offset_us},
        raised_at=raised_at,
    )
