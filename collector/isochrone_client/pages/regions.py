"""Vantages by region, with their status by the collector's clock."""

from collections.abc import Iterator

from isochrone_client.errors import InsufficientError, NoSamplesError
from isochrone_client.formats import UNKNOWN, Amount, age, milliseconds
from isochrone_client.pages.footnotes import Footnotes
from isochrone_client.render.page import Column, Page
from isochrone_client.render.record import wire_fields
from isochrone_wire.accounting import Account
from isochrone_wire.answers import Window
from isochrone_wire.fleet import Liveness, VantageList, VantageStatus
from isochrone_wire.queries.documents import FORMATS

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

    The vitals of a push are older than its commit, so the ledger may be ahead of them by the spool's size at that time.
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
