"""Vantages by region, with their status; the best region of each provider, and how much slower the others are."""

from collections.abc import Callable, Iterator

from isochrone_client.errors import InsufficientError, NoSamplesError
from isochrone_client.formats import (
    UNKNOWN,
    Amount,
    age,
    amount,
    amount_interval,
    between,
    display_unit,
    displayed,
    milliseconds,
)
from isochrone_client.pages.cells import Footnotes, no_samples, without_size, worth
from isochrone_client.render.page import Column, Page, wire_fields
from isochrone_wire.answers import Decision, Metric, Window
from isochrone_wire.fleet import Liveness, VantageList, VantageStatus
from isochrone_wire.insights import RegionCost, RegionCostList
from isochrone_wire.json_format import minute, to_json_value
from isochrone_wire.model import Account
from isochrone_wire.queries.documents import FORMATS
from isochrone_wire.text import ESTIMAND

FORMAT = FORMATS["VantageList"]
_STYLE_OF = {Liveness.ONLINE: "green", Liveness.LATE: "red", Liveness.SILENT: "yellow", Liveness.EMPTY: "dim"}
_COMPLETE = "all accounted for"


def page(answer: VantageList) -> Page[VantageStatus]:
    """The page of all vantages, one table per region."""
    rows: tuple[VantageStatus, ...] = FORMAT.rows_of(answer)
    footnotes = Footnotes(_remark(row) for row in rows)
    return Page(
        schema=FORMAT.schema,
        title=f"vantages, plan {answer.plan_version or UNKNOWN} in force",
        facts=FORMAT.facts(answer),
        fields=wire_fields(VantageStatus),
        columns=_columns(footnotes, answer),
        rows=rows,
        group=lambda row: row.region,
        notes=(*_paused(answer), *footnotes.notes),
    )


def require_online(answer: VantageList) -> None:
    """Raises `InsufficientError` if no vantage delivers samples."""
    if not answer.vantages:
        raise NoSamplesError(
            "no vantage is known yet",
            window=Window(from_at=0, until_at=answer.answered_at),
            hint="add one with isochrone-collector vantage add NAME --region REGION, then start its agent",
        )
    if not any(row.liveness is Liveness.ONLINE for row in answer.vantages):
        raise InsufficientError(
            f"none of {len(answer.vantages)} vantages is online",
            hint="see the notes below the table, and run `isochrone-agent doctor` on the vantage's machine",
        )


def account_of(row: VantageStatus) -> str:
    """`all accounted for`, `3 lost`, `3 duplicate`, `two agents` on one credential, or unknown if the agent is too old
    to report the counts.

    The heartbeat of a push is older than its commit, so the ledger may be ahead by the spool's size at that time.
    """
    if row.rival_at is not None:
        return "two agents"
    if not row.finished:
        return UNKNOWN
    spooled = row.spool_depth + row.quarantined
    missing = Account(finished=row.finished, stored=row.ledgered, spooled=spooled, dropped=row.dropped).missing
    if missing > 0:
        return f"{missing} lost"
    return f"{-missing - row.spool_depth} duplicate" if -missing > row.spool_depth else _COMPLETE


def _columns(footnotes: Footnotes, answer: VantageList) -> tuple[Column[VantageStatus], ...]:
    now_at = answer.answered_at
    return (
        Column(heading="vantage", text=lambda row: row.name, wide=True),
        Column(
            heading="state",
            text=lambda row: footnotes.marked(row.liveness.phrase, _remark(row)),
            style=lambda row: _STYLE_OF[row.liveness],
            wide=True,
        ),
        Column(heading="newest", unit="ago", text=lambda row: age(row.newest_sample_at, now_at=now_at), priority=1),
        Column(
            heading="heartbeat", unit="due", text=lambda row: _due(row.next_heartbeat_at, now_at=now_at), priority=4
        ),
        Column(heading="clock", unit="ms", text=_clock, priority=3),
        Column(heading="spool", unit="samples", text=lambda row: str(row.spool_depth), priority=5),
        Column(heading="oldest", unit="ago", text=lambda row: age(row.spool_oldest_at, now_at=now_at), priority=6),
        Column(heading="agent", text=lambda row: row.agent_version or UNKNOWN, wide=True, priority=7),
        Column(
            heading="plan",
            text=lambda row: _plan(row, answer.plan_version),
            style=lambda row: "" if row.plan_version == answer.plan_version else "yellow",
            priority=2,
        ),
        Column(
            heading="samples",
            text=account_of,
            style=lambda row: "" if account_of(row) in (_COMPLETE, UNKNOWN) else "red",
            wide=True,
        ),
    )


def _due(at: int | None, *, now_at: int) -> str:
    if at is None:
        return UNKNOWN
    return f"in {age(now_at, now_at=at)}" if at >= now_at else f"{age(at, now_at=now_at)} ago"


def _clock(row: VantageStatus) -> Amount:
    offset, uncertainty = milliseconds(row.clock_offset_us), milliseconds(row.clock_uncertainty_us)
    if offset is None or uncertainty is None:
        return Amount((offset,), signed=1, rule=lambda _values: 1)
    return Amount((offset, uncertainty), "{} ± {}", signed=1, rule=lambda _values: 1)


def _plan(row: VantageStatus, in_force: int) -> str:
    """The version in use, and whether it is behind or refused."""
    running = str(row.plan_version or UNKNOWN)
    if row.plan_version == in_force:
        return running
    return f"{running} refuses {in_force}" if row.refused_plan_version == in_force else f"{running} behind"


def _paused(answer: VantageList) -> Iterator[str]:
    if answer.paused:
        yield f"jobs that delete, summarise, publish or alert are paused: {answer.paused}"


def _remark(row: VantageStatus) -> str:
    """The footnote of a vantage; empty if there is nothing to note."""
    return "; ".join(_remarks(row))


def _remarks(row: VantageStatus) -> Iterator[str]:
    if row.liveness is not Liveness.ONLINE:
        yield row.reason
    if row.refused_plan_version is not None:
        yield f"refused plan {row.refused_plan_version}: {row.refused_plan_reason or 'no reason given'}"
    if row.rival_at is not None:
        yield "a second agent uses this credential and is refused"
    if row.missing_keys:
        yield f"skips targets without a key: {row.missing_keys}"
    if row.refused_targets:
        yield f"skips targets refused by the agent's policy: {row.refused_targets}"
    if any(row.dropped.values()):
        yield "dropped " + ", ".join(f"{name} {count}" for name, count in sorted(row.dropped.items()) if count)
    if row.quarantined:
        yield f"{row.quarantined} samples in quarantine"
    if row.rounds_missed:
        yield f"{row.rounds_missed} rounds missed"


COSTS_SCHEMA = "isochrone.region-costs/1"
_SCALE = "latency"
_Scale = Callable[[float | None], float | None]
_DECISION_STYLES = {
    Decision.FASTER: "green",
    Decision.SLOWER: "red",
    Decision.MIXED: "yellow",
    Decision.UNDECIDED: "dim",
}
_QUANTITIES = ("median", "added", "added_low", "added_high")
_HOW = "slower by: than from the best region, paired by target and round; median: of the targets' medians"


def best_page(answer: RegionCostList, *, metric: Metric) -> Page[RegionCost]:
    """The page of an answer about `metric`, one table per provider, its best region first."""
    footnotes = Footnotes(map(_cost_remark, answer.costs))
    unit = "us" if metric.unit == "us" else "tokens_per_second"
    return Page(
        schema=COSTS_SCHEMA,
        title=f"best regions by {metric}, rounds between {between(answer.window)}",
        facts={"window": to_json_value(answer.window), "metric": metric.value},
        fields=wire_fields(RegionCost, units=dict.fromkeys(_QUANTITIES, unit)),
        columns=_cost_columns(metric, footnotes),
        rows=answer.costs,
        notes=(*footnotes.notes, _HOW, *([ESTIMAND] if any(row.added_low is not None for row in answer.costs) else ())),
    )


def require_best(answer: RegionCostList) -> None:
    """Raises `InsufficientError` if no region of any provider is decided."""
    if not answer.costs:
        raise no_samples(answer.window)
    if all(row.decision is Decision.UNDECIDED for row in answer.costs):
        nothing, regions = "nothing is decided for any provider", {row.region for row in answer.costs}
        if len(regions) == 1:
            hint = "compare at least two regions: omit --region, or add one with isochrone-collector vantage add"
            raise NoSamplesError(nothing, window=answer.window, besides=regions.pop(), hint=hint)
        raise InsufficientError(
            nothing, hint="more rounds narrow the intervals: wait or use a longer --window; see `isochrone coverage`"
        )


def _cost_columns(metric: Metric, footnotes: Footnotes) -> tuple[Column[RegionCost], ...]:
    unit = display_unit(metric.unit)

    def of(value: float | None) -> float | None:
        return displayed(value, metric.unit)

    return (
        Column(heading="provider", text=lambda row: row.provider, wide=True, once=True),
        Column(heading="region", text=lambda row: row.region, wide=True),
        Column(heading="median", unit=unit, text=lambda row: amount(of(row.median)), scale=_SCALE, priority=2),
        Column(heading="slower by", unit=unit, text=lambda row: _slower_by(row, of), scale=_SCALE),
        Column(
            heading="interval",
            unit=f"95 %, {unit}",
            text=lambda row: "" if _is_best(row) else amount_interval(*_bounds(row, of)),
            scale=_SCALE,
            priority=1,
        ),
        Column(heading="targets", text=lambda row: str(row.targets), priority=4),
        Column(
            heading="pairs ≈\nindependent",
            text=lambda row: "" if _is_best(row) else worth(row.n, row.n_eff),
            priority=3,
        ),
        Column(
            heading="decision",
            text=lambda row: footnotes.marked(_decision(row), _cost_remark(row)),
            style=lambda row: _DECISION_STYLES.get(row.decision, ""),
            wide=True,
        ),
    )


def _is_best(row: RegionCost) -> bool:
    return row.region == row.best_region


def _slower_by(row: RegionCost, of: _Scale) -> str | Amount:
    """Positive for a region that is slower: of a rate the smaller one. A number without an interval is not shown."""
    if _is_best(row):
        return amount(0.0)
    if row.added is None or row.added_low is None or row.added_high is None:
        return UNKNOWN
    return amount(of(-row.added if row.metric.more_is_better else row.added))


def _bounds(row: RegionCost, of: _Scale) -> tuple[float | None, float | None]:
    if row.added_low is None or row.added_high is None or not row.metric.more_is_better:
        return of(row.added_low), of(row.added_high)
    return of(-row.added_high), of(-row.added_low)


def _cost_remark(row: RegionCost) -> str:
    """The reason of a decision and, once per provider, the change that cut its rounds."""
    cut = f"only rounds since a change at {minute(row.since_at)}" if row.since_at and _is_best(row) else ""
    return "; ".join(filter(None, (without_size(row.reason), cut)))


def _decision(row: RegionCost) -> str:
    return "best" if _is_best(row) and row.decision is Decision.FASTER else row.decision.value
