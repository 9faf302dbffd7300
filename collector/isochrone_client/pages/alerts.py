import re

from isochrone_client.errors import ClientError, InsufficientError
from isochrone_client.formats import Amount, amount, amount_percent, between, milliseconds, span
from isochrone_client.pages.cells import Footnotes, no_samples, target_column
from isochrone_client.render.page import Column, Page, answer_page, row_record, wire_fields
from isochrone_wire import insights
from isochrone_wire.answers import Metric
from isochrone_wire.json_format import minute, rfc3339
from isochrone_wire.model import MINUTE_US
from isochrone_wire.operations import INCIDENT_PREFIX, AlertDelivery, DeliveryState, incident_name
from isochrone_wire.queries.documents import FORMATS

_NO_WEBHOOK = "no receiver is configured: alerts are stored but not delivered; see serve --alert-url"
_ID = re.compile(rf"(?:{INCIDENT_PREFIX})?([0-7][0-9a-f]{{15}})")
_WHAT = {insights.AlertKind.TARGET_FAILING: "fails", insights.AlertKind.TARGET_THROTTLED: "throttled"}
_QUIET = ("silenced", "acknowledged")
_ALL = "all"
_WORD = {
    DeliveryState.DELIVERED: "yes",
    DeliveryState.PENDING: "no",
    DeliveryState.SILENCED: "silenced",
    DeliveryState.GIVEN_UP: "given up",
}


def page(answer: insights.AlertList) -> Page[insights.Alert]:
    """The page of the alerts, the newest first."""
    rows = FORMATS["AlertList"].rows_of(answer)
    footnotes = Footnotes(one.last_error for row in rows for one in row.deliveries if one.delivered_at is None)
    return answer_page(
        answer,
        f"alerts between {between(answer.window)}",
        (
            Column("raised", lambda row: minute(row.raised_at), unit="UTC"),
            Column("kind", lambda row: row.kind.value, wide=True, priority=2),
            Column("about", lambda row: row.subject, prose=True, priority=1),
            Column("what", lambda row: row.sentence, prose=True),
            Column("delivered", lambda row: _delivered(row, footnotes), style=_delivery_style, prose=True),
        ),
        notes=footnotes.notes if answer.webhook else (*footnotes.notes, _NO_WEBHOOK),
    )


def empty_message(answer: insights.AlertList) -> str:
    """The message for a window without alerts."""
    sentence = f"no alerts between {between(answer.window)}"
    return sentence if answer.webhook else f"{sentence}; {_NO_WEBHOOK}"


def _delivered(row: insights.Alert, footnotes: Footnotes) -> str:
    """The state, if it is the same for all receivers; else only those that have it not, with their names."""
    states = {_state(one, footnotes) for one in row.deliveries}
    if len(states) <= 1:
        return states.pop() if states else "no"
    behind = [one for one in row.deliveries if one.delivered_at is None]
    marks = (footnotes.marked(f"{_WORD[one.state]}: {one.receiver}", one.last_error) for one in behind)
    return "; ".join(marks) or "yes"


def _state(one: AlertDelivery, footnotes: Footnotes) -> str:
    """`yes`, `yes, attempt 3`, `silenced`, `no, 3 failed [1]`, or `no` before the first attempt."""
    if one.delivered_at is not None:
        return "yes" if one.attempts <= 1 else f"yes, attempt {one.attempts}"
    word = _WORD[one.state]
    return footnotes.marked(f"{word}, {one.attempts} failed" if one.attempts else word, one.last_error)


def _delivery_style(row: insights.Alert) -> str:
    return "yellow" if any(one.attempts and one.delivered_at is None for one in row.deliveries) else ""


def incidents_page(answer: insights.IncidentList, *, past: bool) -> Page[insights.Incident]:
    """The page of the incidents: the open ones first, then the newest first."""
    return answer_page(
        answer,
        f"incidents between {between(answer.window)}" if past else "open incidents",
        (
            target_column(answer.incidents, lambda row: row.subject),
            Column("what", _what, style=lambda row: "" if row.recovered_at else "red", wide=True),
            Column("regions", _regions, prose=True),
            Column("since", lambda row: minute(row.first_failed_at), unit="UTC", priority=1),
            Column(
                "until",
                lambda row: "still lasts" if row.recovered_at is None else minute(row.recovered_at),
                unit="UTC",
                priority=3,
            ),
            Column("failed probes", _classes, prose=True, priority=4),
            Column("id", lambda row: f"{row.id:016x}", wide=True, priority=2),
        ),
    )


def incident_page(incident: insights.Incident) -> Page[insights.FailedProbe]:
    """The page of one incident: its newest failed samples, and everything else as notes."""
    return Page(
        schema="isochrone.incident/1",
        title=f"{incident_name(incident.id)}: {incident.subject} {_what(incident)}",
        facts={"incident": row_record(incident)},
        fields=wire_fields(insights.FailedProbe),
        columns=(
            Column("round", lambda row: minute(row.round_at), unit="UTC"),
            Column("region", lambda row: row.region, wide=True),
            Column("vantage", lambda row: row.vantage, wide=True),
            Column("outcome", lambda row: row.outcome, wide=True),
        ),
        rows=incident.samples,
        notes=tuple(_notes(incident)),
    )


def open_incident(row: insights.Incident) -> str:
    """One line about an open incident: the target, what it does, and from where."""
    return f"{row.subject} {_what(row)} from {_regions(row)}"


def no_incidents(answer: insights.IncidentList, *, past: bool) -> str:
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


def _what(row: insights.Incident) -> str:
    what = "never worked" if row.never_worked else _WHAT.get(row.kind, row.kind.value)
    if row.recovered_at is not None:
        return f"{what}, over"
    return ", ".join((what, *dict.fromkeys(_QUIET[bool(one.thread)] for one in row.silences)))


def _regions(row: insights.Incident) -> str:
    names = row.failing or row.regions
    return f"all {len(names)}: {', '.join(names)}" if row.scope == _ALL and len(names) > 1 else ", ".join(names)


def _classes(row: insights.Incident) -> str:
    return ", ".join(f"{n} {name}" for name, n in row.classes.items())


def _notes(row: insights.Incident) -> list[str]:
    escalated = f", escalated {minute(row.escalated_at)}" if row.escalated_at else ""
    ended = f", recovered {minute(row.recovered_at)}" if row.recovered_at else ""
    lasted = span(max(row.last_failed_at - row.first_failed_at, 0))
    when = f"failed from {minute(row.first_failed_at)} to {minute(row.last_failed_at)} UTC ({lasted})"
    # From a round before the first failure.
    window = "..".join(rfc3339(at)[:16] for at in (row.first_failed_at, row.last_failed_at + MINUTE_US))
    regions = "" if row.scope == _ALL else "".join(f" --region {name}" for name in row.regions)
    return [
        f"{when}; reported {minute(row.opened_at)}{escalated}{ended}",
        f"regions: {', '.join(row.regions)}; now: {', '.join(row.failing) or 'none'}",
        f"failed probes: {_classes(row) or 'none counted yet'}",
        *([f"newest error: {row.example}"] if row.example else []),
        *(
            f"{_QUIET[bool(one.thread)]} by {one.created_by} until {minute(one.until_at)} UTC: {one.reason}"
            f"{f' ({one.patterns})' if one.patterns else ''}; {one.name}"
            for one in row.silences
        ),
        f"samples: isochrone samples --target {row.subject}{regions} --window {window} --limit 1000",
    ]


MIN_ROUNDS = 60
"""The number of rounds that a series needs before a change can be found in it."""
CHANGE = (
    "change: a new level for six rounds or more, by 10 % or more (25 % in the first three days); "
    "`isochrone diff` names a step of a difference after five rounds"
)
"""The note that states what counts as a change."""
_SMALLEST_P = 0.002


def drift_page(answer: insights.DriftList) -> Page[insights.DriftEvent]:
    """The page of the changes, one table per metric, newest first."""
    return answer_page(
        answer,
        f"lasting changes between {between(answer.window)}",
        (
            target_column(answer.events, lambda row: row.target),
            Column("region", lambda row: row.region, wide=True),
            Column("since", lambda row: minute(row.changed_at), unit="UTC"),
            Column("before", lambda row: _value(row, row.before), scale="level", priority=2),
            Column("after", lambda row: _value(row, row.after), scale="level", priority=1),
            Column("change", lambda row: amount_percent(row.change_percent), unit="%", style=_change_style),
            Column(
                "p", lambda row: f"≤ {_SMALLEST_P}" if row.p_value <= _SMALLEST_P else f"{row.p_value:.3f}", priority=3
            ),
            Column("may be", lambda row: "weekly" if row.may_be_weekly else "", priority=2),
            Column("rounds", lambda row: str(row.n_before), unit="before", priority=4),
            Column("rounds", lambda row: str(row.n_after), unit="after", priority=4),
        ),
        group=lambda row: f"{row.metric}, {'tokens/s' if row.metric is Metric.TOKENS_PER_SECOND else 'ms'}",
        also={"unit": lambda row: row.metric.unit},
        notes=(watched_summary(answer), CHANGE),
    )


def watched_summary(answer: insights.DriftList) -> str:
    """The number of series watched, and of those with too few rounds."""
    series = f"{answer.watched} series watched"
    if not answer.too_short:
        return series
    return f"{series}; {answer.too_short} more had fewer than {MIN_ROUNDS} rounds in the window"


def require_watched(answer: insights.DriftList) -> None:
    """Raises `InsufficientError` if no series has enough rounds to find a change."""
    if answer.events or answer.watched:
        return
    if answer.too_short:
        raise InsufficientError(
            f"none of {answer.too_short} series has the {MIN_ROUNDS} rounds needed to find a change",
            hint="wait for more rounds or use a longer --window",
        )
    raise no_samples(answer.window)


def _value(row: insights.DriftEvent, value: float) -> Amount:
    return amount(value if row.metric is Metric.TOKENS_PER_SECOND else milliseconds(value))


def _change_style(row: insights.DriftEvent) -> str:
    return "red" if (row.change_percent > 0) != row.metric.more_is_better else "green"
