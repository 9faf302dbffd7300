"""Single samples, newest last, as in a log; values and outcomes over time."""

from collections.abc import Sequence
from dataclasses import replace
from math import log

from isochrone_client.formats import (
    UNKNOWN,
    Amount,
    age,
    amount,
    amount_interval,
    bars,
    between,
    display_unit,
    displayed,
    milliseconds,
    moment,
    number,
    share,
    span,
    sparkline,
)
from isochrone_client.pages.cells import Footnotes, no_samples
from isochrone_client.pages.targets import target_column
from isochrone_client.render.page import Column, Page, wire_fields
from isochrone_wire.answers import Source, Window
from isochrone_wire.fleet import SampleList, StoredSample
from isochrone_wire.model import Outcome
from isochrone_wire.queries.documents import FORMATS
from isochrone_wire.queries.series import Series, SeriesBin, SeriesList

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


SERIES = FORMATS["SeriesList"]
_SERIES_SUMMARISED = "from hourly summaries: percentiles are exact to within 1 %"
_HISTORY = "history: the median of each bucket, from zero to the highest one; p50, p10 and p90 are those of the newest"


def series_page(answer: SeriesList, *, now_at: int) -> Page[Series]:
    """The page of a series answer, one table per region, with ages as of `now_at`."""
    rows: tuple[Series, ...] = SERIES.rows_of(answer)
    bins = _bins_above_zero(rows)
    notes = (
        (bool(rows), _HISTORY),
        (bool(bins), _axis(bins, answer.metric.unit)),
        (answer.source is Source.SUMMARIES, _SERIES_SUMMARISED),
    )
    return Page(
        schema=SERIES.schema,
        title=f"{answer.metric} over time, rounds between {between(answer.window)}, by {span(answer.bucket_us)}",
        facts=SERIES.facts(answer),
        fields=wire_fields(Series),
        columns=_series_columns(answer, rows, now_at=now_at),
        rows=rows,
        group=lambda row: f"from {row.region}",
        notes=tuple(note for holds, note in notes if holds),
    )


def require_series(answer: SeriesList) -> None:
    """Raises `NoSamplesError` if there are no samples."""
    if not answer.series:
        raise no_samples(answer.window)


def _series_columns(answer: SeriesList, rows: tuple[Series, ...], *, now_at: int) -> tuple[Column[Series], ...]:
    unit = answer.metric.unit
    goodput: Column[Series] = Column(heading="goodput", unit="%", text=_goodput)
    distributions = _distributions(rows)
    history: Column[Series] = Column(
        heading="history", text=lambda row: _history(answer, row), wide=True, priority=1 + len(distributions)
    )
    return (
        target_column(rows, lambda row: row.target),
        Column(heading="p50", unit=display_unit(unit), text=lambda row: amount(_newest(row, "p50", unit)), scale="p"),
        Column(heading="p10 … p90", unit=display_unit(unit), text=lambda row: _band(row, unit), scale="p", priority=4),
        history,
        *distributions,
        *(() if answer.limit_us is None else (goodput,)),
        *(_counted(name, place) for place, name in enumerate(("failed", "throttled", "skipped", "ok"), start=5)),
        Column(heading="newest", unit="ago", text=lambda row: age(row.points[-1].at, now_at=now_at), priority=3),
    )


def _newest(row: Series, quantile: str, unit: str) -> float | None:
    """A quantile of the newest bucket with values, in the unit for people."""
    newest = next((point for point in reversed(row.points) if point.n), None)
    return displayed(getattr(newest, quantile), unit) if newest else None


def _band(row: Series, unit: str) -> Amount:
    return amount_interval(_newest(row, "p10", unit), _newest(row, "p90", unit))


def _history(answer: SeriesList, row: Series) -> str:
    """The median of each bucket, from zero to the highest one."""
    medians = {point.at: point.p50 for point in row.points}
    first_at = answer.window.from_at // answer.bucket_us * answer.bucket_us
    values = [medians.get(at) for at in range(first_at, answer.window.until_at, answer.bucket_us)]
    return sparkline(values, highest=max((value for value in values if value is not None), default=0.0))


def _bins_above_zero(rows: Sequence[Series]) -> list[SeriesBin]:
    """The bins of all rows, lowest first; zero has no place on a logarithmic axis."""
    return sorted((found for row in rows for found in row.bins if found.low > 0), key=lambda found: found.low)


def _axis(bins: Sequence[SeriesBin], unit: str) -> str:
    if not bins:
        return ""
    low, high = (number(displayed(edge, unit)) for edge in (bins[0].low, bins[-1].high))
    return f"distribution: the number of values per bin of a logarithmic axis from {low} to {high} {display_unit(unit)}"


def _distributions(rows: Sequence[Series]) -> tuple[Column[Series], ...]:
    """The column of the distributions, on one axis; none if the answer has none."""
    bins = _bins_above_zero(rows)
    if not bins:
        return ()
    lowest, width = log(bins[0].low), log(bins[0].high / bins[0].low)

    def text(row: Series) -> str:
        counts = {round((log(found.low) - lowest) / width): found.n for found in row.bins if found.low > 0}
        places = range(round((log(bins[-1].low) - lowest) / width) + 1)
        return bars([counts.get(place) for place in places], highest=max(counts.values())) if counts else UNKNOWN

    return (Column(heading="distribution", text=text, wide=True, priority=1),)


def _counted(name: str, priority: int) -> Column[Series]:
    """The number of probes of all buckets that ended so."""
    return Column(
        heading=name, text=lambda row: str(sum(getattr(point, name) for point in row.points)), priority=priority
    )


def _goodput(row: Series) -> str:
    """The share of the planned requests of all buckets that were answered within the limit."""
    return share(sum(point.good or 0 for point in row.points), sum(point.planned or 0 for point in row.points))
