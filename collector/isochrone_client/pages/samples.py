"""Single samples, newest last, as in a log."""

from dataclasses import replace

from isochrone_client.formats import Amount, amount, between, milliseconds, moment
from isochrone_client.pages.footnotes import Footnotes
from isochrone_client.pages.insufficient import no_samples
from isochrone_client.pages.targets import target_column
from isochrone_client.render.page import Column, Page
from isochrone_client.render.record import wire_fields
from isochrone_wire.answers import Window
from isochrone_wire.fleet import SampleList, StoredSample
from isochrone_wire.model import Outcome
from isochrone_wire.queries.documents import FORMATS

FORMAT = FORMATS["SampleList"]
_STATUS_OK = 200
# The fields that `to_json_value` adds to those of a sample.
_DERIVED = ("connect_us", "ttft_cold_us", "tpot_us")


def page(samples: tuple[StoredSample, ...], *, window: Window, now_at: int) -> Page[StoredSample]:
    """The page of samples by round. Instants on the day of `now_at` are shown without the date."""
    answer = SampleList(window=window, samples=samples)
    rows: tuple[StoredSample, ...] = FORMAT.rows_of(answer)
    footnotes = Footnotes(_remark(row) for row in rows)
    return Page(
        schema=FORMAT.schema,
        title=f"samples, rounds between {between(window)}",
        facts=FORMAT.facts(answer),
        fields=wire_fields(StoredSample, inline=FORMAT.inline, also=_DERIVED),
        record=FORMAT.record,
        columns=_columns(rows, footnotes, now_at=now_at),
        rows=rows,
        notes=footnotes.notes,
    )


def require_samples(samples: tuple[StoredSample, ...], *, window: Window) -> None:
    """Raises `InsufficientError` if there are no samples."""
    if not samples:
        raise no_samples(window)


def _columns(rows: tuple[StoredSample, ...], footnotes: Footnotes, *, now_at: int) -> tuple[Column[StoredSample], ...]:
    return (
        Column(heading="round", unit="UTC", text=lambda row: moment(row.sample.round_at, now_at=now_at), reserved=11),
        Column(heading="region", text=lambda row: row.region, wide=True, priority=1, reserved=14),
        replace(target_column(rows, lambda row: row.target), reserved=24),
        Column(
            heading="outcome",
            text=lambda row: footnotes.marked(_outcome(row), _remark(row)),
            style=lambda row: "" if row.sample.outcome is Outcome.OK else "yellow",
            wide=True,
            reserved=15,
        ),
        Column(heading="ttft", unit="ms", text=lambda row: _ms(row.sample.ttft_us), reserved=6),
        Column(heading="e2e", unit="ms", text=lambda row: _ms(row.sample.e2e_us), priority=2, reserved=7),
        Column(
            heading="speed",
            unit="tokens/s",
            text=lambda row: amount(row.sample.tokens_per_second),
            priority=3,
            reserved=8,
        ),
        Column(heading="rtt", unit="ms", text=lambda row: _ms(row.sample.rtt_us), priority=4, reserved=5),
    )


def _outcome(row: StoredSample) -> str:
    """The outcome, with the HTTP status unless it is 200."""
    status = row.sample.http_status
    return f"{row.sample.outcome} {status}" if status not in (None, _STATUS_OK) else str(row.sample.outcome)


def _remark(row: StoredSample) -> str:
    """The error and the quality flags of a sample."""
    return "; ".join(filter(None, (row.sample.error, ", ".join(row.sample.quality.labels))))


def _ms(us: float | None) -> Amount:
    return amount(milliseconds(us))
