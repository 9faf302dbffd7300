from collections.abc import Sequence
from math import log

from isochrone_client import formats
from isochrone_client.errors import InsufficientError
from isochrone_client.pages.cells import SUMMARISED, Footnotes, no_samples, notes_that_hold, target_column
from isochrone_client.render.page import SUFFIX_OF, Column, Page, answer_page
from isochrone_wire.answers import Source, Window
from isochrone_wire.fleet import SampleList, StoredSample
from isochrone_wire.model import Outcome
from isochrone_wire.queries.documents import FORMATS
from isochrone_wire.queries.series import Series, SeriesBin, SeriesList


def page(samples: tuple[StoredSample, ...], *, window: Window, now_at: int) -> Page[StoredSample]:
    """The page of samples by round. Instants on the day of `now_at` are shown without the date."""
    answer = SampleList(window=window, samples=samples)
    rows: tuple[StoredSample, ...] = FORMATS["SampleList"].rows_of(answer)
    footnotes = Footnotes(map(_remark, rows))

    def outcome(row: StoredSample) -> str:
        status = row.sample.http_status
        return str(row.sample.outcome) if status in (None, 200) else f"{row.sample.outcome} {status}"

    return answer_page(
        answer,
        f"samples, rounds between {formats.between(window)}",
        (
            Column("round", lambda row: formats.moment(row.sample.round_at, now_at=now_at), unit="UTC", reserved=11),
            Column("region", lambda row: row.region, wide=True, priority=1, reserved=14),
            target_column(rows, lambda row: row.target, reserved=24),
            Column(
                "outcome",
                lambda row: footnotes.marked(outcome(row), _remark(row)),
                style=lambda row: "" if row.sample.outcome is Outcome.OK else "yellow",
                wide=True,
                reserved=15,
            ),
            Column("ttft", lambda row: formats.amount_ms(row.sample.ttft_us), unit="ms", reserved=6),
            Column("e2e", lambda row: formats.amount_ms(row.sample.e2e_us), unit="ms", priority=2, reserved=7),
            Column(
                "speed",
                lambda row: formats.amount(row.sample.tokens_per_second),
                unit="tokens/s",
                priority=3,
                reserved=8,
            ),
            Column("rtt", lambda row: formats.amount_ms(row.sample.rtt_us), unit="ms", priority=4, reserved=5),
        ),
        rows=rows,
        # The fields that `to_json_value` adds to those of a sample.
        derived=("connect_us", "ttft_cold_us", "tpot_us"),
        notes=footnotes.notes,
    )


def require_samples(samples: tuple[StoredSample, ...], *, window: Window, matching: str = "") -> None:
    """Raises `InsufficientError` if there are no samples, or none that pass the filter `matching`."""
    if not samples and matching:
        raise InsufficientError(f"no sample between {formats.between(window)} passes the filter {matching!r}")
    if not samples:
        raise no_samples(window)


def _remark(row: StoredSample) -> str:
    unknown = f"unknown frames: {row.sample.frames_unknown}" if row.sample.frames_unknown else ""
    return "; ".join(filter(None, (row.sample.error, ", ".join(row.sample.quality.labels), unknown)))


_HISTORY = "history: the median of each bucket, from zero to the highest one; p50, p10 and p90 are those of the newest"


def series_page(answer: SeriesList, *, now_at: int) -> Page[Series]:
    """The page of a series answer, one table per region, with ages as of `now_at`."""
    unit, bucket = formats.display_unit(answer.metric.unit), formats.span(answer.bucket_us)
    # Zero has no place on a logarithmic axis.
    above_zero = (found for row in answer.series for found in row.bins if found.low > 0)
    bins = sorted(above_zero, key=lambda found: found.low)

    def newest(row: Series, quantile: str) -> float | None:
        found = next((point for point in reversed(row.points) if point.n), None)
        return formats.displayed(getattr(found, quantile), answer.metric.unit) if found else None

    def goodput(row: Series) -> str:
        return formats.share(*(sum(getattr(point, name) or 0 for point in row.points) for name in ("good", "planned")))

    def count(name: str, priority: int) -> Column[Series]:
        return Column(name, lambda row: str(sum(getattr(point, name) for point in row.points)), priority=priority)

    return answer_page(
        answer,
        f"{answer.metric} over time, rounds between {formats.between(answer.window)}, by {bucket}",
        (
            target_column(answer.series, lambda row: row.target),
            Column("p50", lambda row: formats.amount(newest(row, "p50")), unit=unit, scale="p"),
            Column(
                "p10 … p90",
                lambda row: formats.amount_interval(newest(row, "p10"), newest(row, "p90")),
                unit=unit,
                scale="p",
                priority=4,
            ),
            Column("history", lambda row: _history(answer, row), wide=True, priority=2 if bins else 1),
            *([_distribution(bins)] if bins else []),
            *([] if answer.limit_us is None else [Column("goodput", goodput, unit="%")]),
            *(count(name, place) for place, name in enumerate(("failed", "throttled", "skipped", "ok"), start=5)),
            Column("newest", lambda row: formats.age(row.points[-1].at, now_at=now_at), unit="ago", priority=3),
        ),
        group=lambda row: f"from {row.region}",
        units=dict.fromkeys(("points", "bins"), SUFFIX_OF[answer.metric.unit]),
        notes=notes_that_hold(
            (answer.series, _HISTORY),
            (bins, _axis(bins, answer.metric.unit)),
            (answer.source is Source.SUMMARIES, SUMMARISED),
        ),
    )


def _history(answer: SeriesList, row: Series) -> str:
    """The median of each bucket from the first one of the answer on, from zero to the highest one."""
    medians = {point.at: point.p50 for point in row.points}
    first_at = min(point.at for series in answer.series for point in series.points)
    values = [medians.get(at) for at in range(first_at, answer.window.until_at, answer.bucket_us)]
    return formats.sparkline(values, highest=max((value for value in values if value is not None), default=0.0))


def _axis(bins: Sequence[SeriesBin], unit: str) -> str:
    if not bins:
        return ""
    low, high = (formats.number(formats.displayed(edge, unit)) for edge in (bins[0].low, bins[-1].high))
    axis = f"a logarithmic axis from {low} to {high} {formats.display_unit(unit)}"
    return f"distribution: the number of values per bin of {axis}"


def _distribution(bins: Sequence[SeriesBin]) -> Column[Series]:
    """The column of the distributions, on one axis."""
    lowest, width = log(bins[0].low), log(bins[0].high / bins[0].low)

    def text(row: Series) -> str:
        counts = {round((log(found.low) - lowest) / width): found.n for found in row.bins if found.low > 0}
        places = range(round((log(bins[-1].low) - lowest) / width) + 1)
        return (
            formats.bars([counts.get(place) for place in places], highest=max(counts.values()))
            if counts
            else formats.UNKNOWN
        )

    return Column("distribution", text, wide=True, priority=1)
