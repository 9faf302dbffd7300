"""Alerts: what was raised when, and whether anybody was told."""

from isochrone_client.formats import between, minute
from isochrone_client.pages.footnotes import Footnotes
from isochrone_client.render.page import Column, Page
from isochrone_client.render.record import row_record, wire_fields
from isochrone_wire.insights import Alert, AlertList
from isochrone_wire.json_format import to_json_value

SCHEMA = "isochrone.alerts/1"
_NO_WEBHOOK = "no webhook is set: alerts are kept and nobody is told; see serve --alert-url"


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
    """That there are none, and whether anybody would be told."""
    sentence = f"no alerts between {between(answer.window)}"
    return sentence if answer.webhook else f"{sentence}; {_NO_WEBHOOK}"


def _record(row: Alert) -> dict[str, object]:
    """The row with its id as webhooks know it, because JSON's readers round such large numbers."""
    return row_record(row) | {"id": f"alert_{row.id:016x}"}


def _columns(footnotes: Footnotes) -> tuple[Column[Alert], ...]:
    return (
        Column(heading="raised", unit="UTC", text=lambda row: minute(row.raised_at)),
        Column(heading="kind", text=lambda row: row.kind.value, wide=True),
        Column(heading="about", text=lambda row: row.subject, wide=True),
        Column(heading="what", text=lambda row: row.sentence, wide=True),
        Column(heading="told", text=lambda row: _told(row, footnotes), style=_colour, wide=True),
    )


def _told(row: Alert, footnotes: Footnotes) -> str:
    """`yes`, `yes, 3rd try`, `no [1]` after attempts in vain, or `no`."""
    if row.delivered_at is not None:
        return "yes" if row.attempts == 1 else f"yes, try {row.attempts}"
    return footnotes.marked(f"no, {row.attempts} tried" if row.attempts else "no", row.last_error)


def _colour(row: Alert) -> str:
    return "yellow" if row.attempts and row.delivered_at is None else ""
