"""State and spend of vantages. Pure; instants are the collector's clock.

The laws of liveness:

1. Each heartbeat announces when the next one is due. A vantage past that is late, however fresh its samples are.
2. Online means that samples arrive. A vantage that sends heartbeats but no samples is silent.
3. A vantage without planned targets cannot be silent: it is empty.
4. A vantage whose agent was stopped is not late: it is stopped until the agent is heard again.

The forecast of a day (UTC) is the spend so far plus the requests still planned until midnight, each at the mean cost of
those made so far; if nothing was spent yet, at the plan's estimate, which assumes that every answer uses all its
tokens. Budgets do not limit the forecast: a forecast above the budget means that rounds will be skipped.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from isochrone_wire import durations
from isochrone_wire.fleet import Liveness, SpendLine
from isochrone_wire.model import DAY_US, MINUTE_US, SECOND_US, Budget, Plan, Spend, Target, day_of
from isochrone_wire.rounds import rounds_between
from isochrone_wire.workloads import estimate_request

LATE_GRACE_US = 5 * SECOND_US
"""Tolerance after a due heartbeat, in microseconds, for a slow network or commit."""

# The interval assumed for an agent that announces none.
_DEFAULT_HEARTBEAT_US = MINUTE_US
_FRESH_ROUNDS = 3
_FRESH_US = MINUTE_US


@dataclass(frozen=True, slots=True, kw_only=True)
class VantageState:
    """A vantage with its newest heartbeat, and the samples in the ledger of the epoch that the heartbeat counts.
    `left_out` is the share of its newest probes that cannot be compared, because its machine was busy.
    """

    name: str
    region: str
    first_seen_at: int
    last_seen_at: int
    newest_sample_at: int | None = None
    next_heartbeat_at: int | None = None
    agent_version: str = ""
    plan_version: int = 0
    refused_plan_version: int | None = None
    refused_plan_reason: str | None = None
    spool_depth: int = 0
    spool_oldest_at: int | None = None
    quarantined: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    clock_offset_us: int | None = None
    clock_uncertainty_us: int | None = None
    loop_lag_us: int | None = None
    finished: int = 0
    ledgered: int = 0
    rounds_missed: int = 0
    missing_keys: str | None = None
    refused_targets: str | None = None
    stopped: bool = False
    duplicate_at: int | None = None
    left_out: float | None = None

    @property
    def due_at(self) -> int:
        """The instant at which the next heartbeat is due."""
        return self.next_heartbeat_at or self.last_seen_at + _DEFAULT_HEARTBEAT_US


def classify(state: VantageState, *, now_at: int, plan: Plan | None) -> tuple[Liveness, str]:
    """Return the liveness at `now_at` (microseconds since the epoch) under the plan in force, with the reason."""
    if state.stopped:
        waiting = f"; {state.spool_depth} samples wait in its spool" if state.spool_depth else ""
        since = durations.rough(now_at - state.last_seen_at)
        return Liveness.STOPPED, f"its agent was stopped {since} ago{waiting}"
    if now_at > state.due_at + LATE_GRACE_US:
        last, due = durations.rough(now_at - state.last_seen_at), durations.rough(now_at - state.due_at)
        return Liveness.LATE, f"last heartbeat {last} ago; the next was due {due} ago"
    newest_at = state.newest_sample_at
    if newest_at is not None and now_at - newest_at <= fresh_us(plan):
        return Liveness.ONLINE, "samples arrive"
    nothing = _why_nothing_planned(plan)
    if nothing:
        return Liveness.EMPTY, nothing
    last = f"last heartbeat {durations.rough(now_at - state.last_seen_at)} ago"
    joined = f"no sample since it joined {durations.rough(now_at - state.first_seen_at)} ago"
    old = joined if newest_at is None else f"its newest sample is {durations.rough(now_at - newest_at)} old"
    version = plan.version if plan else 0
    # The most likely cause: the first that applies.
    clues = (
        (state.refused_plan_version == version, f"it refuses plan {version}"),
        (not state.plan_version, f"it does not run plan {version}"),
        (state.spool_depth > 0, f"{state.spool_depth} samples wait in its spool"),
    )
    clue = next((clue for holds, clue in clues if holds), "see its log for the probes")
    return Liveness.SILENT, f"{last}, but {old}; {clue}"


def fresh_us(plan: Plan | None) -> int:
    """Return the maximum age, in microseconds, of an online vantage's newest sample: three rounds, at least 60 s."""
    targets = plan.targets if plan else ()
    intervals = [target.every_us for target in targets if not target.paused] or [t.every_us for t in targets]
    return max(_FRESH_ROUNDS * min(intervals, default=0), _FRESH_US)


def _why_nothing_planned(plan: Plan | None) -> str:
    if plan is None:
        return "no plan has been applied yet"
    if not plan.targets:
        return f"plan {plan.version} has no targets"
    if all(target.paused for target in plan.targets):
        return f"every target of plan {plan.version} is paused"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spender:
    """A vantage and the spend its agent reported, per provider, of this day or an earlier one."""

    vantage: str
    region: str
    reported: tuple[Spend, ...] = ()


def spend_lines(
    spender: Spender, *, plan: Plan, now_at: int, providers: Iterable[str] | None = None
) -> list[SpendLine]:
    """Return one line per provider that is planned or has spend today, by name; filtered by `providers` if given."""
    day_at = day_of(now_at)
    today = {spend.provider: spend for spend in spender.reported if spend.day_at == day_at}
    planned: dict[str, list[Target]] = {}
    for target in plan.targets:
        planned.setdefault(target.provider, []).append(target)
    names = sorted((today.keys() | planned.keys()) & (set(providers) if providers is not None else {*today, *planned}))
    return [
        _line(
            spender,
            today.get(name, Spend(provider=name, day_at=day_at)),
            targets=planned.get(name, ()),
            budget=budget_of(plan.budgets, provider=name, vantage=spender.vantage),
            now_at=now_at,
        )
        for name in names
    ]


def budget_of(budgets: Sequence[Budget], *, provider: str, vantage: str) -> Budget | None:
    """Return the budget of a vantage at a provider: its own, else the one for every vantage, else `None`."""
    found = {budget.vantage: budget for budget in budgets if budget.provider == provider}
    return found.get(vantage) or found.get(None)


def reported(parts: Iterable[Mapping[str, object]]) -> tuple[Spend, ...]:
    """Parse the spend that an agent reported, as stored; unknown fields are ignored."""
    return tuple(Spend(**{name: part[name] for name in Spend.__slots__ if name in part}) for part in parts)  # type: ignore[arg-type]  # each came out of a Spend


def _line(
    spender: Spender, spent: Spend, *, targets: Sequence[Target], budget: Budget | None, now_at: int
) -> SpendLine:
    ahead = _Ahead.of(targets, now_at=now_at)
    usd = None
    if ahead.usd is not None or spent.usd:
        usd = spent.usd + _at_mean(ahead.usd or 0.0, spent.usd, spent.requests, ahead.requests)
    return SpendLine(
        vantage=spender.vantage,
        region=spender.region,
        provider=spent.provider,
        day_at=spent.day_at,
        usd=spent.usd,
        tokens=spent.tokens,
        requests=spent.requests,
        forecast_usd=usd,
        forecast_tokens=spent.tokens + round(_at_mean(ahead.tokens, spent.tokens, spent.requests, ahead.requests)),
        forecast_requests=spent.requests + ahead.requests,
        budget=budget,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ahead:
    """The requests planned until midnight, with their estimated tokens and US dollars (`None` without any price)."""

    requests: int
    tokens: int
    usd: float | None

    @classmethod
    def of(cls, targets: Iterable[Target], *, now_at: int) -> "_Ahead":
        until_at = day_of(now_at) + DAY_US
        requests = {
            one: one.workload.concurrency * rounds_between(now_at, until_at, target_id=one.id, every_us=one.every_us)
            for one in targets
            if not one.paused
        }
        costs = [n * estimate_request(t).cost_usd(t.price) for t, n in requests.items() if t.price is not None]
        return cls(
            requests=sum(requests.values()),
            tokens=sum(n * estimate_request(target).tokens for target, n in requests.items()),
            usd=sum(costs) if costs else None,
        )


def _at_mean(estimate: float, spent: float, requests: int, ahead: int) -> float:
    """Return `ahead` requests at the mean of those made; the estimate if nothing was spent."""
    return spent / requests * ahead if spent and requests else estimate
