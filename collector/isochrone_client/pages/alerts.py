"""Alerts of a window, with their delivery to the webhook; and incidents of targets, as a list or one of them."""

import re

from isochrone_client.errors import ClientError
from isochrone_client.formats import between, span
from isochrone_client.pages.footnotes import Footnotes
from isochrone_client.pages.targets import target_column
from isochrone_client.render.page import Column, Page
from isochrone_client.render.record import row_record, wire_fields
from isochrone_wire.insights import Alert, AlertKind, AlertList, FailedProbe, Incident, IncidentList
from isochrone_wire.json_format import minute, rfc3339, to_json_value
from isochrone_wire.model import MINUTE_US

SCHEMA = "isochrone.alerts/1"
INCIDENTS_SCHEMA = "isochrone.incidents/1"
INCIDENT_SCHEMA = "isochrone.incident/1"
PREFIX = "incident_"
"""The prefix of the id of an incident."""

_NO_WEBHOOK = "no webhook is configured: alerts are stored but not delivered; see serve --alert-url"
_ID = re.compile(rf"(?:{PREFIX})?([0-7][0-9a-f]{{15}})")
_WHAT = {AlertKind.TARGET_FAILING: "fails", AlertKind.TARGET_THROTTLED: "throttled"}
_ALL = "all"


def page(answer: AlertList) -> Page[Alert]:
    """The page of the alerts, the newest first."""
    rows = sorted(answer.alerts, key=lambda row: (-row.raised_at, row.id))
    footnotes = Footnotes(row.last_error for row in rows if row.delivered_at is None)
    return Page(
        schema=SCHEMA,
        title=f"alerts between {between(answer.window)}",
        facts={"window": to_json_value(answer.window), "webhook": answer.webhook},
        fields=wire_fields(Alert),
        columns=_columns(footnotes),
        rows=tuple(rows),
        notes=footnotes.notes if answer.webhook else (*footnotes.notes, _NO_WEBHOOK),
        record=_record,
    )


def empty_message(answer: AlertList) -> str:
    """The message for a window without alerts."""
    sentence = f"no alerts between {between(answer.window)}"
    return sentence if answer.webhook else f"{sentence}; {_NO_WEBHOOK}"


def _record(row: Alert) -> dict[str, object]:
    """The row with its id as webhooks receive it: JSON readers would round such a large number."""
    return row_record(row) | {"id": f"alert_{row.id:016x}"}


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


def _delivered(row: Alert, footnotes: Footnotes) -> str:
    """`yes`, `yes, attempt 3`, `no, 3 failed [1]`, or `no` before the first attempt."""
    if row.delivered_at is not None:
        return "yes" if row.attempts == 1 else f"yes, attempt {row.attempts}"
    return footnotes.marked(f"no, {row.attempts} failed" if row.attempts else "no", row.last_error)


def _colour(row: Alert) -> str:
    return "yellow" if row.attempts and row.delivered_at is None else ""


def incidents_page(answer: IncidentList, *, past: bool) -> Page[Incident]:
    """The page of the incidents: the open ones first, then the newest first."""
    rows = tuple(sorted(answer.incidents, key=lambda row: (row.recovered_at is not None, -row.opened_at, row.id)))
    return Page(
        schema=INCIDENTS_SCHEMA,
        title=f"incidents between {between(answer.window)}" if past else "open incidents",
        facts={"window": to_json_value(answer.window)},
        fields=wire_fields(Incident),
        columns=(
            target_column(rows, lambda row: row.subject),
            Column(heading="what", text=_what, style=lambda row: "" if row.recovered_at else "red", wide=True),
            Column(heading="regions", text=_regions, wide=True, prose=True),
            Column(heading="since", unit="UTC", text=lambda row: minute(row.first_failed_at), priority=1),
            Column(heading="until", unit="UTC", text=_until, priority=3),
            Column(heading="failed probes", text=_classes, wide=True, prose=True, priority=4),
            Column(heading="id", text=lambda row: incident_name(row.id).removeprefix(PREFIX), wide=True, priority=2),
        ),
        rows=rows,
        record=_incident_record,
    )


def incident_page(incident: Incident) -> Page[FailedProbe]:
    """The page of one incident: its newest failed samples, and everything else as notes."""
    return Page(
        schema=INCIDENT_SCHEMA,
        title=f"{incident_name(incident.id)}: {incident.subject} {_what(incident)}",
        facts={"incident": _incident_record(incident)},
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


def incident_name(incident_id: int) -> str:
    """The id as alerts have it."""
    return f"{PREFIX}{incident_id:016x}"


def _incident_record(row: Incident) -> dict[str, object]:
    """The row with its id as alerts have it: JSON readers would round such a large number."""
    return row_record(row) | {"id": incident_name(row.id)}


def _what(row: Incident) -> str:
    what = "never worked" if row.never_worked else _WHAT.get(row.kind, row.kind.value)
    return f"{what}, over" if row.recovered_at is not None else what


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
        f"samples: {_command(row)}",
    ]


def _command(row: Incident) -> str:
    """The command that shows the samples of an incident, from a round before its first failure."""
    from_at, until_at = row.first_failed_at // MINUTE_US * MINUTE_US, row.last_failed_at + MINUTE_US
    window = f"{rfc3339(from_at)[:16]}..{rfc3339(until_at)[:16]}"
    regions = "" if row.scope == _ALL else "".join(f" --region {name}" for name in row.regions)
    return f"isochrone samples --target {row.subject}{regions} --window {window} --limit 1000"
