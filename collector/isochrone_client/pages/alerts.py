"""Alerts of a window, with their delivery to each receiver; incidents of targets, as a list or one of them; and
lasting changes.
"""

import re

from isochrone_client.errors import ClientError, InsufficientError
from isochrone_client.formats import Amount, amount, amount_percent, between, milliseconds, span
from isochrone_client.pages.cells import Footnotes, no_samples
from isochrone_client.pages.targets import target_column
from isochrone_client.render.page import Column, Page, row_record, wire_fields
from isochrone_wire.answers import Metric
from isochrone_wire.insights import (
    Alert,
    AlertKind,
    AlertList,
    DriftEvent,
    DriftList,
    FailedProbe,
    Incident,
    IncidentList,
)
from isochrone_wire.json_format import minute, rfc3339
from isochrone_wire.model import MINUTE_US
from isochrone_wire.operations import INCIDENT_PREFIX, AlertDelivery, DeliveryState, Silence, incident_name
from isochrone_wire.queries.documents import FORMATS

ALERTS = FORMATS["AlertList"]
INCIDENTS = FORMATS["IncidentList"]
INCIDENT_SCHEMA = "isochrone.incident/1"

_NO_WEBHOOK = "no receiver is configured: alerts are stored but not delivered; see serve --alert-url"
_ID = re.compile(rf"(?:{INCIDENT_PREFIX})?([0-7][0-9a-f]{{15}})")
_WHAT = {AlertKind.TARGET_FAILING: "fails", AlertKind.TARGET_THROTTLED: "throttled"}
_QUIET = ("silenced", "acknowledged")
_ALL = "all"
_WORD = {
    DeliveryState.DELIVERED: "yes",
    DeliveryState.PENDING: "no",
    DeliveryState.SILENCED: "silenced",
    DeliveryState.GIVEN_UP: "given up",
}


def page(answer: AlertList) -> Page[Alert]:
    """The page of the alerts, the newest first."""
    rows: tuple[Alert, ...] = ALERTS.rows_of(answer)
    footnotes = Footnotes(one.last_error for row in rows for one in _deliveries(row) if one.delivered_at is None)
    return Page(
        schema=ALERTS.schema,
        title=f"alerts between {between(answer.window)}",
        facts=ALERTS.facts(answer),
        fields=wire_fields(Alert),
        columns=_columns(footnotes),
        rows=rows,
        notes=footnotes.notes if answer.webhook else (*footnotes.notes, _NO_WEBHOOK),
    )


def empty_message(answer: AlertList) -> str:
    """The message for a window without alerts."""
    sentence = f"no alerts between {between(answer.window)}"
    return sentence if answer.webhook else f"{sentence}; {_NO_WEBHOOK}"


def _columns(footnotes: Footnotes) -> tuple[Column[Alert], ...]:
    return (
        Column(heading="raised", unit="UTC", text=lambda row: minute(row.raised_at)),
        Column(heading="kind", text=lambda row: row.kind.value, wide=True, priority=2),
        Column(heading="about", text=lambda row: row.subject, wide=True, prose=True, priority=1),
        Column(heading="what", text=lambda row: row.sentence, wide=True, prose=True),
        Column(
            heading="delivered",
            text=lambda row: _delivered(row, footnotes),
            style=_colour,
            wide=True,
            prose=True,
        ),
    )


def _deliveries(row: Alert) -> tuple[AlertDelivery, ...]:
    """The deliveries of an alert; one that an earlier version raised has one to the webhook, or none."""
    if row.deliveries or not (row.attempts or row.delivered_at):
        return row.deliveries
    state = DeliveryState.PENDING if row.delivered_at is None else DeliveryState.DELIVERED
    return (
        AlertDelivery(
            receiver="webhook",
            state=state,
            delivered_at=row.delivered_at,
            attempts=row.attempts,
            last_error=row.last_error,
        ),
    )


def _delivered(row: Alert, footnotes: Footnotes) -> str:
    """The state, if it is the same for all receivers; else only those that have it not, with their names."""
    deliveries = _deliveries(row)
    states = {_state(one, footnotes) for one in deliveries}
    if len(states) <= 1:
        return states.pop() if states else "no"
    behind = [one for one in deliveries if one.delivered_at is None]
    if not behind:
        return "yes"
    return "; ".join(footnotes.marked(f"{_WORD[one.state]}: {one.receiver}", one.last_error) for one in behind)


def _state(one: AlertDelivery, footnotes: Footnotes) -> str:
    """`yes`, `yes, attempt 3`, `silenced`, `no, 3 failed [1]`, or `no` before the first attempt."""
    if one.delivered_at is not None:
        return "yes" if one.attempts <= 1 else f"yes, attempt {one.attempts}"
    word = _WORD[one.state]
    return footnotes.marked(f"{word}, {one.attempts} failed" if one.attempts else word, one.last_error)


def _colour(row: Alert) -> str:
    return "yellow" if any(one.attempts and one.delivered_at is None for one in _deliveries(row)) else ""


def incidents_page(answer: IncidentList, *, past: bool) -> Page[Incident]:
    """The page of the incidents: the open ones first, then the newest first."""
    rows: tuple[Incident, ...] = INCIDENTS.rows_of(answer)
    return Page(
        schema=INCIDENTS.schema,
        title=f"incidents between {between(answer.window)}" if past else "open incidents",
        facts=INCIDENTS.facts(answer),
        fields=wire_fields(Incident),
        columns=(
            target_column(rows, lambda row: row.subject),
            Column(heading="what", text=_what, style=lambda row: "" if row.recovered_at else "red", wide=True),
            Column(heading="regions", text=_regions, wide=True, prose=True),
            Column(heading="since", unit="UTC", text=lambda row: minute(row.first_failed_at), priority=1),
            Column(heading="until", unit="UTC", text=_until, priority=3),
            Column(heading="failed probes", text=_classes, wide=True, prose=True, priority=4),
            Column(heading="id", text=lambda row: f"{row.id:016x}", wide=True, priority=2),
        ),
        rows=rows,
    )


def incident_page(incident: Incident) -> Page[FailedProbe]:
    """The page of one incident: its newest failed samples, and everything else as notes."""
    return Page(
        schema=INCIDENT_SCHEMA,
        title=f"{incident_name(incident.id)}: {incident.subject} {_what(incident)}",
        facts={"incident": row_record(incident)},
        fields=wire_fields(FailedProbe),
        columns=(
            Column(heading="round", unit="UTC", text=lambda row: minute(row.round_at)),
            Column(heading="region", text=lambda row: row.region, wide=True),
            Column(heading="vantage", text=lambda row: row.vantage, wide=True),
            Column(heading="outcome", text=lambda row: row.outcome, wide=True),
        ),
        rows=incident.samples,
        notes=tuple(_notes(incident)),
    )


def open_incident(row: Incident) -> str:
    """One line about an open incident: the target, what it does, and from where."""
    return f"{row.subject} {_what(row)} from {_regions(row)}"


def no_incidents(answer: IncidentList, *, past: bool) -> str:
    """The message for an answer without incidents, with its reason."""
    if not answer.watched:
        return "no incidents: no target is measured, so none can fail"
    what = f"no incidents between {between(answer.window)}" if past else "no open incidents"
    targets = "1 target is" if answer.watched == 1 else f"{answer.watched} targets are"
    return f"{what}: {targets} watched" + ("" if past else "; --past shows those that ended")


def parse_incident_id(text: str) -> int:
    """Parse the id of an incident. Raises `ClientError`."""
    found = _ID.fullmatch(text)
    if found is None:
        raise ClientError(f"{text!r} is not the id of an incident", hint="`isochrone incidents --past` lists them")
    return int(found[1], 16)


def _what(row: Incident) -> str:
    what = "never worked" if row.never_worked else _WHAT.get(row.kind, row.kind.value)
    if row.recovered_at is not None:
        return f"{what}, over"
    return ", ".join((what, *dict.fromkeys(_QUIET[bool(one.thread)] for one in row.silences)))


def _regions(row: Incident) -> str:
    names = row.failing or row.regions
    return f"all {len(names)}: {', '.join(names)}" if row.scope == _ALL and len(names) > 1 else ", ".join(names)


def _until(row: Incident) -> str:
    return "still lasts" if row.recovered_at is None else minute(row.recovered_at)


def _classes(row: Incident) -> str:
    return ", ".join(f"{n} {name}" for name, n in row.classes.items())


def _notes(row: Incident) -> list[str]:
    escalated = f", escalated {minute(row.escalated_at)}" if row.escalated_at else ""
    ended = f", recovered {minute(row.recovered_at)}" if row.recovered_at else ""
    lasted = span(max(row.last_failed_at - row.first_failed_at, 0))
    when = f"failed from {minute(row.first_failed_at)} to {minute(row.last_failed_at)} UTC ({lasted})"
    return [
        f"{when}; reported {minute(row.opened_at)}{escalated}{ended}",
        f"regions: {', '.join(row.regions)}; now: {', '.join(row.failing) or 'none'}",
        f"failed probes: {_classes(row) or 'none counted yet'}",
        *([f"newest error: {row.example}"] if row.example else []),
        *(f"{_QUIET[bool(one.thread)]} {_by(one)}" for one in row.silences),
        f"samples: {_command(row)}",
    ]


def _by(one: Silence) -> str:
    patterns = f" ({one.patterns})" if one.patterns else ""
    return f"by {one.created_by} until {minute(one.until_at)} UTC: {one.reason}{patterns}; {one.name}"


def _command(row: Incident) -> str:
    """The command that shows the samples of an incident, from a round before its first failure."""
    from_at, until_at = row.first_failed_at // MINUTE_US * MINUTE_US, row.last_failed_at + MINUTE_US
    window = f"{rfc3339(from_at)[:16]}..{rfc3339(until_at)[:16]}"
    regions = "" if row.scope == _ALL else "".join(f" --region {name}" for name in row.regions)
    return f"isochrone samples --target {row.subject}{regions} --window {window} --limit 1000"


DRIFT = FORMATS["DriftList"]
MIN_ROUNDS = 60
"""The number of rounds that a series needs before a change can be found in it."""

CHANGE = (
    "change: a new level for six rounds or more, by 10 % or more (25 % in the first three days); "
    "`isochrone diff` names a step of a difference after five rounds"
)
"""The note that states what counts as a change."""

_SMALLEST_P = 0.002
_UNIT_OF = {Metric.TOKENS_PER_SECOND: "tokens/s"}


def drift_page(answer: DriftList) -> Page[DriftEvent]:
    """The page of the changes, one table per metric, newest first."""
    rows: tuple[DriftEvent, ...] = DRIFT.rows_of(answer)
    return Page(
        schema=DRIFT.schema,
        title=f"lasting changes between {between(answer.window)}",
        facts=DRIFT.facts(answer),
        fields=wire_fields(DriftEvent),
        columns=(target_column(rows, lambda row: row.target), *_COLUMNS),
        rows=rows,
        group=lambda row: f"{row.metric}, {_unit(row.metric)}",
        notes=(watched_summary(answer), CHANGE),
    )


def watched_summary(answer: DriftList) -> str:
    """The number of series watched, and of those with too few rounds."""
    series = f"{answer.watched} series watched"
    if not answer.too_short:
        return series
    return f"{series}; {answer.too_short} more had fewer than {MIN_ROUNDS} rounds in the window"


def require_watched(answer: DriftList) -> None:
    """Raises `InsufficientError` if no series has enough rounds to find a change."""
    if answer.events or answer.watched:
        return
    if answer.too_short:
        raise InsufficientError(
            f"none of {answer.too_short} series has the {MIN_ROUNDS} rounds needed to find a change",
            hint="wait for more rounds or use a longer --window",
        )
    raise no_samples(answer.window)


def _unit(metric: Metric) -> str:
    return _UNIT_OF.get(metric, "ms")


def _value(row: DriftEvent, value: float) -> Amount:
    return amount(value if row.metric in _UNIT_OF else milliseconds(value))


def _change_colour(row: DriftEvent) -> str:
    return "red" if (row.change_percent > 0) != row.metric.more_is_better else "green"


def _p(row: DriftEvent) -> str:
    return f"≤ {_SMALLEST_P}" if row.p_value <= _SMALLEST_P else f"{row.p_value:.3f}"


_COLUMNS: tuple[Column[DriftEvent], ...] = (
    Column(heading="region", text=lambda row: row.region, wide=True),
    Column(heading="since", unit="UTC", text=lambda row: minute(row.changed_at)),
    Column(heading="before", text=lambda row: _value(row, row.before), scale="level", priority=2),
    Column(heading="after", text=lambda row: _value(row, row.after), scale="level", priority=1),
    Column(heading="change", unit="%", text=lambda row: amount_percent(row.change_percent), style=_change_colour),
    Column(heading="p", text=_p, priority=3),
    Column(heading="rounds", unit="before", text=lambda row: str(row.n_before), priority=4),
    Column(heading="rounds", unit="after", text=lambda row: str(row.n_after), priority=4),
)
