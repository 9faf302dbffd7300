from collections.abc import Callable

from isochrone_client import formats
from isochrone_client.errors import InsufficientError, NoSamplesError
from isochrone_client.pages.cells import FEW_LEFT_OUT, Footnotes, busy, target_column
from isochrone_client.render.page import Column, Page, answer_page
from isochrone_wire import fleet
from isochrone_wire.answers import Window
from isochrone_wire.insights import Exhaustion, RateLimitList, RateLimitSeries
from isochrone_wire.json_format import minute
from isochrone_wire.model import SECOND_US, Account, Outcome, Target
from isochrone_wire.queries.documents import FORMATS

_ALL_OF_IT = 100
_NO_PLAN_HINT = "an operator applies one with isochrone-collector apply plan.yaml"


def targets_page(answer: fleet.TargetList) -> Page[Target]:
    """The page of the plan's targets, by name; the model has a column only if a target's name does not end with it."""
    named = all(target.name == f"{target.provider}/{target.model}" for target in answer.targets)
    model: Column[Target] = Column("model", lambda row: row.model, wide=True, priority=2)
    return answer_page(
        answer,
        f"plan {answer.plan_version}, baseline {answer.baseline or formats.UNKNOWN}",
        (
            target_column(answer.targets, lambda row: row.name),
            *(() if named else (model,)),
            Column("dialect", lambda row: row.dialect, wide=True, priority=3),
            Column("every", lambda row: formats.span(row.every_us)),
            Column("parallel", lambda row: str(row.workload.concurrency), priority=5),
            Column(
                "output",
                lambda row: formats.amount_dollars(row.price.usd_per_m_output if row.price else None),
                unit="$/M",
                priority=1,
            ),
            Column("endpoint", lambda row: row.base_url, wide=True, priority=4),
        ),
    )


def require_targets(answer: fleet.TargetList) -> None:
    """Raises `InsufficientError` without a plan, or if it has no targets."""
    if not answer.plan_version:
        raise InsufficientError("no plan has been applied yet", hint=_NO_PLAN_HINT)
    if not answer.targets:
        raise InsufficientError(f"plan {answer.plan_version} has no targets", hint=_NO_PLAN_HINT)


_LIVENESS_STYLES = {
    fleet.Liveness.ONLINE: "green",
    fleet.Liveness.LATE: "red",
    fleet.Liveness.SILENT: "yellow",
    fleet.Liveness.EMPTY: "dim",
    fleet.Liveness.STOPPED: "dim",
}
_COMPLETE = "all accounted for"


def vantages_page(answer: fleet.VantageList) -> Page[fleet.VantageStatus]:
    """The page of all vantages, one table per region."""
    now_at, in_force = answer.answered_at, answer.plan_version
    footnotes = Footnotes(map(_remark, FORMATS["VantageList"].rows_of(answer)))

    def due(row: fleet.VantageStatus) -> str:
        at = row.next_heartbeat_at
        if at is None:
            return formats.UNKNOWN
        is_due = at < now_at
        return f"{formats.age(at, now_at=now_at)} ago" if is_due else f"in {formats.age(now_at, now_at=at)}"

    def plan(row: fleet.VantageStatus) -> str:
        running = str(row.plan_version or formats.UNKNOWN)
        behind = f" refuses {in_force}" if row.refused_plan_version == in_force else " behind"
        return running if row.plan_version == in_force else running + behind

    paused = f"jobs that delete, summarise, publish or alert are paused: {answer.paused}"
    return answer_page(
        answer,
        f"vantages, plan {in_force or formats.UNKNOWN} in force",
        (
            Column("vantage", lambda row: row.name, wide=True),
            Column(
                "state",
                lambda row: footnotes.marked(row.liveness.phrase, _remark(row)),
                style=lambda row: _LIVENESS_STYLES[row.liveness],
                wide=True,
            ),
            Column("newest", lambda row: formats.age(row.newest_sample_at, now_at=now_at), unit="ago", priority=1),
            Column("heartbeat", due, unit="due", priority=4),
            Column("clock", _clock, unit="ms", priority=3),
            Column("spool", lambda row: str(row.spool_depth), unit="samples", priority=5),
            Column("oldest", lambda row: formats.age(row.spool_oldest_at, now_at=now_at), unit="ago", priority=6),
            Column("agent", lambda row: row.agent_version or formats.UNKNOWN, wide=True, priority=7),
            Column("plan", plan, style=lambda row: "" if row.plan_version == in_force else "yellow", priority=2),
            Column(
                "samples",
                account_of,
                style=lambda row: "" if account_of(row) in (_COMPLETE, formats.UNKNOWN) else "red",
                wide=True,
            ),
        ),
        group=lambda row: row.region,
        notes=(*((paused,) if answer.paused else ()), *footnotes.notes),
    )


def require_online(answer: fleet.VantageList) -> None:
    """Raises `InsufficientError` if no vantage delivers samples."""
    if not answer.vantages:
        raise NoSamplesError(
            "no vantage is known yet",
            window=Window(from_at=0, until_at=answer.answered_at),
            hint="add one with isochrone-collector vantage add NAME --region REGION, then start its agent",
        )
    if not any(row.liveness is fleet.Liveness.ONLINE for row in answer.vantages):
        raise InsufficientError(
            f"none of {len(answer.vantages)} vantages is online",
            hint="see the notes below the table, and run `isochrone-agent doctor` on the vantage's machine",
        )


def account_of(row: fleet.VantageStatus) -> str:
    """`all accounted for`, `3 lost`, `3 duplicate`, `two agents` on one credential, or unknown before any count.

    The heartbeat of a push is older than its commit, so the ledger may be ahead by the spool's size at that time.
    """
    if row.duplicate_at is not None:
        return "two agents"
    if not row.finished:
        return formats.UNKNOWN
    spooled = row.spool_depth + row.quarantined
    missing = Account(finished=row.finished, stored=row.ledgered, spooled=spooled, dropped=row.dropped).missing
    if missing > 0:
        return f"{missing} lost"
    return f"{-missing - row.spool_depth} duplicate" if -missing > row.spool_depth else _COMPLETE


def _clock(row: fleet.VantageStatus) -> formats.Amount:
    offset, uncertainty = formats.milliseconds(row.clock_offset_us), formats.milliseconds(row.clock_uncertainty_us)
    if offset is None or uncertainty is None:
        return formats.Amount((offset,), signed=1, rule=lambda _values: 1)
    return formats.Amount((offset, uncertainty), "{} ± {}", signed=1, rule=lambda _values: 1)


def _remark(row: fleet.VantageStatus) -> str:
    """The footnote of a vantage; empty if there is nothing to note."""
    refused = f"refused plan {row.refused_plan_version}: {row.refused_plan_reason or 'no reason given'}"
    dropped = ", ".join(f"{name} {count}" for name, count in sorted(row.dropped.items()) if count)
    notes = (
        (row.liveness is not fleet.Liveness.ONLINE, row.reason),
        (row.refused_plan_version is not None, refused),
        (row.duplicate_at is not None, "a second agent uses this credential and is refused"),
        (row.missing_keys, f"skips targets without a key: {row.missing_keys}"),
        (row.refused_targets, f"skips targets refused by the agent's policy: {row.refused_targets}"),
        ((row.left_out or 0.0) > FEW_LEFT_OUT, busy(row.name, row.left_out or 0.0)),
        (dropped, f"dropped {dropped}"),
        (row.quarantined, f"{row.quarantined} samples in quarantine"),
        (row.rounds_missed, f"{row.rounds_missed} rounds missed"),
    )
    return "; ".join(note for holds, note in notes if holds)


def coverage_page(answer: fleet.CoverageList, *, now_at: int) -> Page[fleet.Coverage]:
    """The page of planned and recorded rounds with their outcomes, one table per vantage."""
    return answer_page(
        answer,
        f"coverage, rounds between {formats.between(answer.window)}",
        (
            target_column(answer.coverage, lambda row: row.target),
            Column("planned", lambda row: str(row.planned), unit="rounds", priority=3),
            Column("recorded", lambda row: str(row.recorded), unit="rounds", priority=2),
            Column(
                "recorded",
                lambda row: formats.share(row.recorded, row.planned),
                unit="%",
                style=lambda row: "red" if 2 * row.recorded < row.planned else "",
            ),
            Column("outcomes", _outcomes, prose=True, priority=1),
            Column("newest", lambda row: formats.age(row.newest_at, now_at=now_at), unit="ago", priority=4),
        ),
        group=lambda row: f"{row.vantage} in {row.region}",
    )


def require_rounds(answer: fleet.CoverageList) -> None:
    """Raises `NoSamplesError` if no round was planned or none was recorded."""
    if not answer.coverage:
        raise NoSamplesError(
            f"no round was planned between {formats.between(answer.window)}",
            window=answer.window,
            hint="use another --window: `isochrone vantages` shows the newest samples of each vantage",
        )
    if not any(row.recorded for row in answer.coverage):
        raise NoSamplesError(
            f"none of {sum(row.planned for row in answer.coverage)} planned rounds has a sample",
            window=answer.window,
            hint="is an agent running? it logs `batch.stored` for each batch that it delivers",
        )


def _outcomes(row: fleet.Coverage) -> str:
    """`ok 1402, timed_out 3`: `ok` first, then the others, most frequent first."""
    ordered = sorted(row.outcomes.items(), key=lambda item: (item[0] != Outcome.OK, -item[1], item[0]))
    return ", ".join(f"{name} {count}" for name, count in ordered) or formats.UNKNOWN


def spend_page(answer: fleet.SpendList) -> Page[fleet.SpendLine]:
    """The page of a spend answer, one table per vantage."""
    days = [row.day_at for row in answer.spend]
    over = "forecast above 100 %: the last rounds of the day will be skipped_budget"

    def share(heading: str, of: Callable[[fleet.SpendLine], float | None], priority: int) -> Column[fleet.SpendLine]:
        return Column(
            heading,
            lambda row: formats.amount(of(row)),
            unit="% of it",
            style=lambda row: "red" if (of(row) or 0.0) > _ALL_OF_IT else "",
            priority=priority,
        )

    return answer_page(
        answer,
        f"spend since {minute(max(days))} UTC, and forecast until midnight" if days else "spend",
        (
            Column("provider", lambda row: row.provider, wide=True),
            Column("requests", lambda row: str(row.requests), priority=4),
            Column("tokens", lambda row: str(row.tokens), priority=5),
            # Unknown without a price.
            Column(
                "spent",
                lambda row: formats.amount_dollars(row.usd if row.usd or row.forecast_usd is not None else None),
                unit="$",
                scale="$",
            ),
            Column("forecast", lambda row: formats.amount_dollars(row.forecast_usd), unit="$", scale="$", priority=1),
            Column("forecast", lambda row: str(row.forecast_tokens), unit="tokens", priority=6),
            Column("budget", _budget, unit="a day", prose=True, priority=3),
            share("spent", lambda row: _tightest(row, row.usd, row.tokens, row.requests), 2),
            share("forecast", _forecast, 0),
        ),
        group=lambda row: f"{row.vantage} in {row.region}",
        notes=(over,) if any((_forecast(row) or 0.0) > _ALL_OF_IT for row in answer.spend) else (),
    )


def require_spend(answer: fleet.SpendList) -> None:
    """Raises `InsufficientError` without vantages, or without a plan with targets."""
    if not answer.spend:
        raise InsufficientError(
            "there is no spend: no vantage, or no plan with targets",
            hint="see `isochrone vantages` for the vantages and `isochrone targets` for the plan",
        )


def _tightest(row: fleet.SpendLine, *spent: float | None) -> float | None:
    """The largest share in per cent of `spent` in the limits of the budget: dollars, tokens and requests."""
    if row.budget is None:
        return None
    limits = (row.budget.usd_per_day, row.budget.tokens_per_day, row.budget.requests_per_day)
    shares = [100.0 * part / limit for part, limit in zip(spent, limits, strict=True) if part is not None and limit]
    return max(shares, default=None)


def _forecast(row: fleet.SpendLine) -> float | None:
    return _tightest(row, row.forecast_usd, row.forecast_tokens, row.forecast_requests)


def _budget(row: fleet.SpendLine) -> str:
    if row.budget is None:
        return formats.UNKNOWN
    limits = (
        (row.budget.usd_per_day, f"{formats.alone(formats.amount_dollars(row.budget.usd_per_day))} $"),
        (row.budget.tokens_per_day, f"{row.budget.tokens_per_day} tokens"),
        (row.budget.requests_per_day, f"{row.budget.requests_per_day} requests"),
    )
    return ", ".join(text for limit, text in limits if limit is not None) or formats.UNKNOWN


_EXHAUSTION_STYLES = {Exhaustion.EXHAUSTED: "red", Exhaustion.EXPECTED: "red", Exhaustion.POSSIBLE: "yellow"}
_RATE_LIMIT_NOTES = (
    (
        "used up: when nothing remains at the change of the last minutes (its 95 % interval; users may change their "
        "rate); not expected: it refills before, or lasts 24 h; ?: fewer than 5 readings since a refill"
    ),
    "vantages with the same API key may share its limits",
)


def rate_limits_page(answer: RateLimitList, *, now_at: int) -> Page[RateLimitSeries]:
    """The page of the rate limits with their history and forecast, one table per region."""
    rows = answer.limits
    several = len({(row.region, row.vantage) for row in rows}) > len({row.region for row in rows})
    vantage: Column[RateLimitSeries] = Column("vantage", lambda row: row.vantage, wide=True)

    def style(row: RateLimitSeries) -> str:
        return _EXHAUSTION_STYLES.get(row.exhaustion, "")

    return answer_page(
        answer,
        f"rate limits between {formats.between(answer.window)}",
        (
            target_column(rows, lambda row: row.target),
            *((vantage,) if several else ()),
            Column("kind", lambda row: row.kind, wide=True),
            Column("limit", lambda row: formats.amount(row.limit), priority=1),
            Column("remaining", lambda row: formats.amount(row.remaining), style=style),
            Column("lowest", lambda row: formats.amount(row.lowest), priority=3),
            Column("reset", _reset, unit="after", priority=4),
            Column("history", lambda row: _history(answer, row), wide=True, priority=2),
            Column(
                "change",
                lambda row: formats.interval(row.per_minute_low, row.per_minute_high, signed=True),
                unit="per min",
                priority=5,
            ),
            Column("used up", lambda row: _used_up(row, now_at=now_at), unit="UTC", style=style, wide=True),
            Column("read", lambda row: f"{formats.age(row.newest_at, now_at=now_at)} ago", priority=6),
        ),
        group=lambda row: f"from {row.region}",
        notes=_RATE_LIMIT_NOTES if rows else (),
    )


def _reset(row: RateLimitSeries) -> str:
    """The time to the reset, in whole seconds from one second on."""
    us = row.reset_us or 0
    return formats.UNKNOWN if row.reset_us is None else formats.span(us // SECOND_US * SECOND_US or us)


def _history(answer: RateLimitList, row: RateLimitSeries) -> str:
    """The lowest remaining amount of each bucket, from nothing to the limit."""
    lowest = {point.at: point.remaining for point in row.points}
    first_at = answer.window.from_at // answer.bucket_us * answer.bucket_us
    values = [lowest.get(at) for at in range(first_at, answer.window.until_at, answer.bucket_us)]
    return formats.sparkline(values, highest=max(row.limit or 0, *lowest.values(), 0))


def _used_up(row: RateLimitSeries, *, now_at: int) -> str:
    """`now`, `12:40:05 … 12:52:10`, `perhaps from 12:40:05`, `not expected`, or `?`."""
    if row.exhaustion is Exhaustion.EXHAUSTED:
        return "now"
    if row.exhausted_low_at is None or row.exhaustion in (Exhaustion.NOT_EXPECTED, Exhaustion.UNKNOWN):
        return "?" if row.exhaustion is Exhaustion.UNKNOWN else "not expected"
    earliest = formats.moment(row.exhausted_low_at, now_at=now_at)
    if row.exhaustion is Exhaustion.POSSIBLE or row.exhausted_high_at is None:
        return f"perhaps from {earliest}"
    return f"{earliest} … {formats.moment(row.exhausted_high_at, now_at=now_at)}"
