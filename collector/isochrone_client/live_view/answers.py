"""The questions of the live view to a collector, and the matrix and the page that the answers make.

Units as in `isochrone_wire.model`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from isochrone_client.client import ReadClient
from isochrone_client.formats import bars, between, display_unit
from isochrone_client.live_view.state import Question
from isochrone_client.names import Names
from isochrone_client.pages import matrix
from isochrone_client.pages.alerts import open_incident
from isochrone_client.pages.cells import EARLY, are_early
from isochrone_client.pages.differentials import stale_before
from isochrone_client.pages.fleet import require_targets
from isochrone_client.pages.matrix import Matrix, Place, by_place, median
from isochrone_client.render.page import SUFFIX_OF, Page, row_record, wire_fields
from isochrone_client.window import now_at, parse_window
from isochrone_wire.answers import Decision, DifferentialList, Metric, Quantile, Selection
from isochrone_wire.fleet import CoverageList
from isochrone_wire.insights import Alert, Incident, Leaderboard, Standing
from isochrone_wire.json_format import to_json_value
from isochrone_wire.queries.series import Series, SeriesList, SeriesPoint

SCHEMA = "isochrone.watch/1"
MOST_BARS = 24
NO_VALUE_MARK = "×"  # noqa: RUF001  # the sign for a bucket in which no probe had a value
_QUANTITIES = ("median.value", "median.low", "median.high", "shift", "shift_low", "shift_high", "history")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The answers of one instant: `regions` are those other than the baseline, `newest_event` is the newest alert.

    In a demo, differences may have `changed`.
    """

    question: Question
    answered_at: int
    baseline: str
    regions: tuple[str, ...]
    targets: tuple[str, ...]
    leaderboard: Leaderboard
    differentials: DifferentialList
    series: SeriesList
    incidents: tuple[Incident, ...] = ()
    newest_event: Alert | None = None
    changed: Mapping[Place, float] = field(default_factory=dict)

    @property
    def failing(self) -> frozenset[Place]:
        """The places with an open incident."""
        return frozenset((incident.subject, region) for incident in self.incidents for region in incident.failing)

    @property
    def standings(self) -> dict[Place, Standing]:
        """The rows of the leaderboard by place."""
        return {(row.target, row.region): row for row in self.leaderboard.standings}

    @property
    def histories(self) -> dict[Place, Series]:
        """The series by place."""
        return {(one.target, one.region): one for one in self.series.series}

    @property
    def stale(self) -> frozenset[Place]:
        """The places whose newest round is old."""
        oldest = stale_before(self.leaderboard.window, now_at=self.answered_at)
        rows = self.standings.items()
        return frozenset(place for place, row in rows if row.newest_at is not None and row.newest_at < oldest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """The answers about one target: with the phases of its differentials, and the outcomes of its probes."""

    target: str
    baseline: str
    leaderboard: Leaderboard
    differentials: DifferentialList
    series: SeriesList
    coverage: CoverageList


@dataclass(eq=False)
class Observer:
    """Questions to one collector. Its methods raise `ClientError`."""

    client: ReadClient

    def observe(self, question: Question, detail: str = "") -> tuple[Answers, Detail | None]:
        """Ask about all targets and, unless it is empty, about the target `detail`."""
        self.client.renew()  # this command may run for years
        answers = self._answers(question)
        if not detail:
            return answers, None
        client, baseline = self.client, answers.baseline
        selection = Selection(window=answers.leaderboard.window, targets=(detail,))
        return answers, Detail(
            target=detail,
            baseline=baseline,
            leaderboard=client.get_leaderboard(selection, order=question.order),
            differentials=client.get_differentials(selection, baseline=baseline, metric=question.metric, explain=True),
            series=client.get_series(selection, metric=question.metric, points=60),
            coverage=client.get_coverage(selection),
        )

    def _answers(self, question: Question) -> Answers:
        client, answered_at = self.client, now_at()
        plan = client.list_targets()
        require_targets(plan)
        names = Names.of(plan, client.list_vantages())
        baseline = names.region(question.baseline or plan.baseline or next(iter(names.regions), ""))
        chosen = {names.region(text) for text in question.regions} or {*names.regions}
        regions = tuple(region for region in names.regions if region in chosen and region != baseline)
        window = parse_window(question.window, as_of=answered_at)
        only = regions if question.regions else ()
        everywhere = Selection(window=window, targets=question.targets)
        selection = replace(everywhere, regions=(baseline, *only) if only else ())
        leaderboard = client.get_leaderboard(selection, order=question.order)
        found = {row.target for row in leaderboard.standings}
        alerts = client.list_alerts(window).alerts
        return Answers(
            question=question,
            answered_at=answered_at,
            baseline=baseline,
            regions=regions,
            targets=tuple(sorted(found if question.targets else found | {one.name for one in plan.targets})),
            leaderboard=leaderboard,
            differentials=client.get_differentials(everywhere, baseline=baseline, against=only, metric=question.metric),
            series=client.get_series(selection, metric=question.metric, points=MOST_BARS),
            incidents=client.list_incidents(window).incidents,
            newest_event=max(alerts, key=lambda alert: (alert.raised_at, alert.id), default=None),
        )


def matrix_of(answers: Answers) -> Matrix:
    """The matrix of the answers, with the marks and the newest buckets of each place."""
    found = matrix.matrix_of(
        answers.leaderboard.standings,
        answers.differentials.differentials,
        metric=answers.question.metric,
        baseline=answers.baseline,
        regions=answers.regions,
        targets=answers.targets,
    )
    histories, drawn = answers.histories, dict[Place, str]()
    for target in answers.targets:
        regions = (answers.baseline, *answers.regions)
        points = {region: _points(histories.get((target, region)), answers.series) for region in regions}
        highest = max((one.p50 for of in points.values() for one in of if one and one.p50 is not None), default=0.0)
        drawn |= {(target, region): _bars(of, highest=highest) for region, of in points.items()}
    failing, stale, changed = answers.failing, answers.stale, answers.changed
    return replace(
        found,
        cells={
            place: replace(
                cell,
                is_failing=place in failing,
                is_stale=place in stale,
                changed=changed.get(place),
                bars=drawn[place],
            )
            for place, cell in found.cells.items()
        },
    )


def _points(series: Series | None, answer: SeriesList) -> Sequence[SeriesPoint | None]:
    """The newest buckets of a series, oldest first; `None` for a bucket without a probe."""
    found = {point.at: point for point in series.points} if series else {}
    window, width_us = answer.window, answer.bucket_us
    buckets = range(window.from_at // width_us * width_us, window.until_at, width_us)
    return [found.get(at) for at in buckets[-MOST_BARS:]]


def _bars(points: Iterable[SeriesPoint | None], *, highest: float) -> str:
    """A bar per bucket up to `highest`, `NO_VALUE_MARK` if no probe of it has a value, a space without a probe."""
    known = [(point, point.p50 if point else None) for point in points]
    drawn = bars([value for _, value in known], highest=highest)
    return "".join(
        NO_VALUE_MARK if point and value is None else bar for (point, value), bar in zip(known, drawn, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRow:
    """One target from one region: its median, and its difference to the baseline, which has none itself. After a change
    both are of the rounds since then.

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
    since_at: int | None = None
    decision: Decision | None = None
    reason: str = ""
    newest_at: int | None = None
    stale: bool = False
    failing: bool = False
    history: tuple[float | None, ...] = ()


def snapshot(answers: Answers, *, sort: str, width: int) -> Page[str]:
    """The answers as a page for pipes and programs: the targets in one of the orders `SORTS`, the matrix for people on
    lines of at most `width` columns, a record per target and region for programs.
    """
    metric, event = answers.question.metric, answers.newest_event
    shown = matrix.arranged(matrix_of(answers), sort=sort)
    rows = _rows(answers, shown)
    title = (
        f"{metric.display_name} in {display_unit(metric.unit)}, rounds between {between(answers.leaderboard.window)}"
    )
    incidents = [open_incident(one) for one in answers.incidents]
    page = matrix.fitting_page(shown, title, width=width, forms=matrix.FORMS_WITH_BARS)
    return replace(
        page,
        schema=SCHEMA,
        facts={
            "window": to_json_value(answers.leaderboard.window),
            "metric": metric.value,
            "baseline": answers.baseline,
            "bucket_us": answers.series.bucket_us,
            "incidents": incidents,
            "newest_event": None if event is None else {"subject": event.subject, "sentence": event.sentence},
        },
        fields=wire_fields(SnapshotRow, units=dict.fromkeys(_QUANTITIES, SUFFIX_OF[metric.unit])),
        records=tuple(row_record(row) for row in rows),
        notes=(
            *page.notes,
            *(f"open incident: {one}" for one in incidents),
            *([f"newest event: {event.subject}: {event.sentence}"] if event else []),
            *([EARLY] if are_early(row.median for row in rows) else []),
        ),
    )


def _rows(answers: Answers, shown: Matrix) -> list[SnapshotRow]:
    standings, differentials = answers.standings, by_place(answers.differentials.differentials)
    histories, failing, stale, metric = answers.histories, answers.failing, answers.stale, answers.question.metric
    rows = []
    for place in [(target, region) for region in (answers.baseline, *answers.regions) for target in shown.targets]:
        points = _points(histories.get(place), answers.series)
        row = SnapshotRow(
            target=place[0],
            region=place[1],
            metric=metric,
            stale=place in stale,
            failing=place in failing,
            history=tuple(point.p50 if point else None for point in points),
        )
        if one := standings.get(place):
            row = replace(row, n=one.n, failed=one.failed, median=median(one, metric), newest_at=one.newest_at)
        value = shown.cell(*place).value
        if value is not None and (row.median is None or row.median.value != value):
            row = replace(row, median=Quantile(value=value))
        if difference := differentials.get(place):
            names = ("shift", "shift_low", "shift_high", "since_at", "decision", "reason")
            row = replace(row, **{name: getattr(difference, name) for name in names})
        rows.append(row)
    return rows
