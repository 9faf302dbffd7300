"""A question of the live view, the collector's answers to it, and the board that they make. Pure.

Units as in `isochrone_wire.model`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from isochrone_client.formats import bars
from isochrone_client.pages.cells import value_of
from isochrone_client.pages.differentials import stale_before
from isochrone_client.screen.board import Board, Cell, Place, cell_of
from isochrone_client.screen.table import MOST_BARS, Scale
from isochrone_wire.answers import Differential, DifferentialList, Metric, Order, Quantile, Window
from isochrone_wire.fleet import CoverageList
from isochrone_wire.insights import Alert, Incident, Leaderboard, Standing
from isochrone_wire.queries.series import Series, SeriesList, SeriesPoint

METRICS = (Metric.TTFT, Metric.TTFT_COLD, Metric.TTFAT, Metric.E2E, Metric.TOKENS_PER_SECOND)
"""The metrics of which a leaderboard has medians."""

SORTS = ("name", "value", "difference")
NO_VALUE_MARK = "×"  # noqa: RUF001  # the sign for a bucket in which no probe had a value
_SCALES = {
    Metric.TTFT: Scale(),
    Metric.TTFT_COLD: Scale(heading="cold"),
    Metric.TTFAT: Scale(heading="ttfat"),
    Metric.E2E: Scale(heading="e2e"),
    Metric.TOKENS_PER_SECOND: Scale(heading="speed", unit=Metric.TOKENS_PER_SECOND.unit, decimals=1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A metric over a `window`, as `--window` takes it, against a `baseline`; empty for the plan's.

    Empty `regions` and `targets` do not restrict; `targets` may be shell-style patterns.
    """

    metric: Metric = Metric.TTFT
    window: str = "1h"
    baseline: str = ""
    regions: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    @property
    def order(self) -> Order:
        """The order of a leaderboard by this metric."""
        return Order(self.metric.value)

    @property
    def scale(self) -> Scale:
        """The heading, unit and decimals of this metric."""
        return _SCALES[self.metric]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The answers of one instant: `regions` are those other than the baseline, `newest_event` is the newest alert."""

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

    @property
    def failing(self) -> frozenset[Place]:
        """The places with an open incident."""
        return frozenset((incident.subject, region) for incident in self.incidents for region in incident.failing)

    @property
    def standings(self) -> dict[Place, Standing]:
        """The rows of the leaderboard by place."""
        return {(row.target, row.region): row for row in self.leaderboard.standings}

    @property
    def rows(self) -> dict[Place, Differential]:
        """The differentials by place."""
        return {(row.target, row.region): row for row in self.differentials.differentials}

    @property
    def histories(self) -> dict[Place, Series]:
        """The series by place."""
        return {(one.target, one.region): one for one in self.series.series}

    def is_stale(self, standing: Standing | None) -> bool:
        """Return whether the newest round of a place is old."""
        newest_at = standing.newest_at if standing else None
        return newest_at is not None and newest_at < stale_before(self.leaderboard.window, now_at=self.answered_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """The answers about one target: with the phases of its differentials, and the outcomes of its probes."""

    target: str
    baseline: str
    leaderboard: Leaderboard
    differentials: DifferentialList
    series: SeriesList
    coverage: CoverageList


def board_of(answers: Answers) -> Board:
    """The board of the answers."""
    standings, rows, histories, failing = answers.standings, answers.rows, answers.histories, answers.failing
    cells: dict[Place, Cell] = {}
    for target in answers.targets:
        regions = (answers.baseline, *answers.regions)
        drawn = _bars({region: histories.get((target, region)) for region in regions}, answers.series)
        for region in regions:
            place = target, region
            standing, row = standings.get(place), rows.get(place)
            value = value_of(median(standing, answers.question.metric)) if standing else None
            cell = Cell(value=value, rounds=standing.n if standing else 0) if row is None else cell_of(value, row)
            cells[place] = replace(
                cell, is_failing=place in failing, is_stale=answers.is_stale(standing), bars=drawn[region]
            )
    return Board(baseline=answers.baseline, regions=answers.regions, targets=answers.targets, cells=cells)


def median(row: Standing, metric: Metric) -> Quantile | None:
    """The median of one of `METRICS` in a row of a leaderboard."""
    return {
        Metric.TTFT: row.ttft_p50_us,
        Metric.TTFT_COLD: row.ttft_cold_p50_us,
        Metric.TTFAT: row.ttfat_p50_us,
        Metric.E2E: row.e2e_p50_us,
        Metric.TOKENS_PER_SECOND: row.tokens_per_second_p50,
    }[metric]


def arranged(board: Board, *, sort: str, metric: Metric, name_part: str) -> Board:
    """The board with the targets whose names contain `name_part`, in one of the orders `SORTS`.

    `value` puts the best target of the baseline region first, `difference` the target that is worst in any other
    region; targets without a value are the last ones.
    """
    names = sorted(target for target in board.targets if name_part.lower() in target.lower())
    keys: dict[str, Callable[[str], float | None]] = {
        "value": lambda target: board.cell(target, board.baseline).value,
        "difference": _worst(board, metric),
    }
    if sort in keys:
        values = {target: keys[sort](target) for target in names}
        is_descending = sort == "difference" or metric.more_is_better
        known = [target for target in names if values[target] is not None]
        known.sort(key=lambda target: values[target] or 0.0, reverse=is_descending)
        names = [*known, *(target for target in names if values[target] is None)]
    return replace(board, targets=tuple(names))


def points_of(series: Series | None, answer: SeriesList, *, most: int = MOST_BARS) -> Sequence[SeriesPoint | None]:
    """The newest `most` buckets of a series, oldest first; `None` for a bucket without a probe."""
    found = {point.at: point for point in series.points} if series else {}
    return [found.get(at) for at in _buckets(answer.window, answer.bucket_us)[-most:]]


def bars_of(points: Iterable[SeriesPoint | None], *, highest: float) -> str:
    """A bar per bucket up to `highest`, `NO_VALUE_MARK` if no probe of it has a value, a space without a probe."""
    known = [(point, point.p50 if point else None) for point in points]
    drawn = bars([value for _, value in known], highest=highest)
    marks = (
        NO_VALUE_MARK if point and value is None else bar for (point, value), bar in zip(known, drawn, strict=True)
    )
    return "".join(marks)


def highest_of(points: Iterable[Iterable[SeriesPoint | None]]) -> float:
    """The highest median of several series; 0 without one."""
    return max((point.p50 for one in points for point in one if point and point.p50 is not None), default=0.0)


def _bars(series: Mapping[str, Series | None], answer: SeriesList) -> dict[str, str]:
    """The bars of one target by region, all on the scale of the highest one."""
    points = {region: points_of(one, answer) for region, one in series.items()}
    highest = highest_of(points.values())
    return {region: bars_of(of, highest=highest) for region, of in points.items()}


def _buckets(window: Window, width_us: int) -> range:
    return range(window.from_at // width_us * width_us, window.until_at, width_us)


def _worst(board: Board, metric: Metric) -> Callable[[str], float | None]:
    sign = -1 if metric.more_is_better else 1

    def worst(target: str) -> float | None:
        cells = (board.cell(target, region) for region in board.regions)
        return max((sign * cell.shift for cell in cells if cell.is_firm and cell.shift is not None), default=None)

    return worst
