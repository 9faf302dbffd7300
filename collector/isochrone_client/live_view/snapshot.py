"""The live view once, as a page for pipes and programs: a table per region, a row per target. Pure."""

from dataclasses import dataclass

from isochrone_client.formats import (
    UNKNOWN,
    age,
    amount,
    amount_interval,
    between,
    display_unit,
    displayed,
    sparkline,
)
from isochrone_client.live_view.answers import Answers, arranged, board_of, highest_of, median, points_of
from isochrone_client.pages.alerts import open_incident
from isochrone_client.pages.cells import TOO_FEW_FOR_MEDIAN, is_shown, value_of
from isochrone_client.pages.targets import target_column
from isochrone_client.render.page import Column, Page, wire_fields
from isochrone_wire.answers import Decision, Metric, Quantile
from isochrone_wire.json_format import to_json_value

SCHEMA = "isochrone.watch/1"
_SUFFIX_OF = {"us": "us", "tokens/s": "tokens_per_second"}
_QUANTITIES = ("median.value", "median.low", "median.high", "shift", "shift_low", "shift_high", "history")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRow:
    """One target from one region: its median, and its difference to the baseline, which has none itself.

    `history` has the median of each bucket of the window, oldest first, `None` for one without a value. `stale` if the
    newest round is old, `failing` if an incident is open there. Quantities are in the unit of the metric.
    """

    target: str
    region: str
    metric: Metric
    n: int = 0
    failed: int = 0
    median: Quantile | None = None
    shift: float | None = None
    shift_low: float | None = None
    shift_high: float | None = None
    decision: Decision | None = None
    reason: str = ""
    newest_at: int | None = None
    stale: bool = False
    failing: bool = False
    history: tuple[float | None, ...] = ()


def page(answers: Answers, *, sort: str) -> Page[SnapshotRow]:
    """The page of the answers: the baseline region first, the targets in one of the orders `SORTS`."""
    metric = answers.question.metric
    board = arranged(board_of(answers), sort=sort, metric=metric, name_part="")
    rows = tuple(
        _row(answers, target, region) for region in (answers.baseline, *answers.regions) for target in board.targets
    )
    event = answers.newest_event
    return Page(
        schema=SCHEMA,
        title=f"{metric.display_name}, rounds between {between(answers.leaderboard.window)}",
        facts={
            "window": to_json_value(answers.leaderboard.window),
            "metric": metric.value,
            "baseline": answers.baseline,
            "bucket_us": answers.series.bucket_us,
            "incidents": [open_incident(one) for one in answers.incidents],
            "newest_event": None if event is None else {"subject": event.subject, "sentence": event.sentence},
        },
        fields=wire_fields(SnapshotRow, units=dict.fromkeys(_QUANTITIES, _SUFFIX_OF[metric.unit])),
        columns=_columns(answers, rows),
        rows=rows,
        group=lambda row: f"from {row.region}",
        notes=tuple(_notes(answers, rows)),
    )


def _row(answers: Answers, target: str, region: str) -> SnapshotRow:
    place = target, region
    standing, row = answers.standings.get(place), answers.rows.get(place)
    return SnapshotRow(
        target=target,
        region=region,
        metric=answers.question.metric,
        n=standing.n if standing else 0,
        failed=standing.failed if standing else 0,
        median=median(standing, answers.question.metric) if standing else None,
        shift=row.shift if row else None,
        shift_low=row.shift_low if row else None,
        shift_high=row.shift_high if row else None,
        decision=row.decision if row else None,
        reason=row.reason if row else "",
        newest_at=standing.newest_at if standing else None,
        stale=answers.is_stale(standing),
        failing=place in answers.failing,
        history=tuple(
            point.p50 if point else None for point in points_of(answers.histories.get(place), answers.series)
        ),
    )


def _columns(answers: Answers, rows: tuple[SnapshotRow, ...]) -> tuple[Column[SnapshotRow], ...]:
    metric = answers.question.metric
    unit = display_unit(metric.unit)
    highest = {
        target: highest_of(
            points_of(one, answers.series) for place, one in answers.histories.items() if place[0] == target
        )
        for target in answers.targets
    }

    def shown(value: float | None) -> float | None:
        return displayed(value, metric.unit)

    return (
        target_column(rows, lambda row: row.target),
        Column(heading="median", unit=unit, text=lambda row: amount(shown(value_of(row.median))), scale="value"),
        Column(heading="difference", unit=unit, text=lambda row: amount(shown(row.shift), signed=True), scale="value"),
        Column(
            heading="interval",
            unit="95 %",
            text=lambda row: amount_interval(shown(row.shift_low), shown(row.shift_high), signed=True),
            scale="value",
            priority=2,
        ),
        Column(heading="decision", text=_decision, wide=True),
        Column(
            heading="history",
            text=lambda row: sparkline(row.history, highest=highest.get(row.target, 0.0)),
            wide=True,
            priority=1,
        ),
        Column(
            heading="newest", unit="ago", text=lambda row: age(row.newest_at, now_at=answers.answered_at), priority=3
        ),
    )


def _decision(row: SnapshotRow) -> str:
    marks = [word for word, holds in (("fails", row.failing), ("stale", row.stale)) if holds]
    return ", ".join([row.decision.value if row.decision else "", *marks]).removeprefix(", ") or UNKNOWN


def _notes(answers: Answers, rows: tuple[SnapshotRow, ...]) -> list[str]:
    event = answers.newest_event
    return [
        *(f"open incident: {open_incident(one)}" for one in answers.incidents),
        *([f"newest event: {event.subject}: {event.sentence}"] if event else []),
        *([TOO_FEW_FOR_MEDIAN] if any(not is_shown(row.median) for row in rows) else []),
    ]
