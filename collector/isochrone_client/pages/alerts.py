"""Alerts of a window, with their delivery to the webhook."""

from isochrone_client.formats import between, minute
from isochrone_client.pages.footnotes import Footnotes
from isochrone_client.render.page import Column, Page
from isochrone_client.render.record import row_record, wire_fields
from isochrone_wire.insights import Alert, AlertList
from isochrone_wire.json_format import to_json_value

SCHEMA = "isochrone.alerts/1"
_NO_WEBHOOK = "no webhook is configured: alerts are stored but not delivered; see serve --alert-url"


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
