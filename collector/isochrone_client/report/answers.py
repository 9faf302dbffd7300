"""The answers that a report is made of. One that fails is replaced by the reason."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from isochrone_client.client import ObservatoryClient
from isochrone_client.errors import BaselineError, CollectorError, InsufficientError, RefusedError, SlowError
from isochrone_client.pages.targets import require_baseline
from isochrone_client.route_tables import collect_tables
from isochrone_wire.answers import DifferentialList, Metric, Selection, Source, Window
from isochrone_wire.fleet import CoverageList, TargetList, VantageList
from isochrone_wire.insights import (
    AlertList,
    DriftList,
    IncidentList,
    LatencyBudgetList,
    Leaderboard,
    RegionCostList,
    TierList,
)
from isochrone_wire.queries.series import SeriesList
from isochrone_wire.routes import RouteTable

Answer = TypeVar("Answer")
# Errors of a single answer. An unreachable collector, a missing permission or an unknown name fail the whole report.
_ERRORS_OF_ONE_ANSWER = (BaselineError, CollectorError, InsufficientError, SlowError)
# The number of points of a line in a chart, and of all lines together.
_MAX_POINTS = 96
_MIN_POINTS = 12
_MAX_ANSWER_POINTS = 50_000
# Fewer rounds in a bucket would show the noise of single probes.
_ROUNDS_PER_BUCKET = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """The parameters of a report: selection, metric, baseline region (empty: the plan's), and the current instant in
    microseconds since the epoch.
    """

    selection: Selection
    metric: Metric
    baseline: str
    now_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[Answer]):
    """An answer, or the reason for its absence."""

    answer: Answer | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """All answers of a report."""

    plan: TargetList
    baseline: str
    differences: Outcome[DifferentialList]
    coverage: Outcome[CoverageList]
    leaderboard: Outcome[Leaderboard]
    series: Outcome[SeriesList]
    drift: Outcome[DriftList]
    failures: Outcome[IncidentList]
    alerts: Outcome[AlertList]
    tables: Outcome[tuple[RouteTable, ...]]
    costs: Outcome[RegionCostList]
    budgets: Outcome[LatencyBudgetList]
    tiers: Outcome[TierList]
    vantages: Outcome[VantageList]

    @property
    def span(self) -> Window | None:
        """The span of the rounds that have samples, both ends included; `None` without samples."""
        lines = self.series.answer.series if self.series.answer else ()
        firsts = [line.points[0].at for line in lines if line.points]
        oldest_at, newest_at = _ends(self.coverage.answer)
        is_summarised = self.leaderboard.answer is not None and self.leaderboard.answer.source is Source.SUMMARIES
        if is_summarised or oldest_at is None:
            oldest_at = min(firsts, default=oldest_at)
        if newest_at is None:
            newest_at = max((line.points[-1].at for line in lines if line.points), default=None)
        return None if oldest_at is None or newest_at is None else Window(from_at=oldest_at, until_at=newest_at)


def ask_all(client: ObservatoryClient, request: ReportRequest, *, progress: Callable[[str], None]) -> Answers:
    """Ask a collector; `progress` receives the name of each question.

    Raises `ClientError` if the collector cannot be used or does not know a name in the request.
    """
    plan, selection = client.list_targets(), request.selection

    def ask(name: str, question: Callable[[], Answer]) -> Outcome[Answer]:
        progress(name)
        try:
            return Outcome(answer=question())
        except _ERRORS_OF_ONE_ANSWER as error:
            return Outcome(reason=str(error))

    def differences() -> DifferentialList:
        baseline = request.baseline or require_baseline(plan.baseline)
        return client.get_differentials(selection, baseline=baseline, metric=request.metric, explain=True)

    compared = ask("differentials", differences)
    coverage = ask("coverage", lambda: client.get_coverage(selection))
    leaderboard = ask("leaderboard", lambda: client.get_leaderboard(selection))
    return Answers(
        plan=plan,
        baseline=_full_baseline_name(compared.answer, request.baseline or plan.baseline),
        differences=compared,
        coverage=coverage,
        leaderboard=leaderboard,
        series=ask("series", lambda: _series(client, request, plan, coverage.answer, leaderboard.answer)),
        drift=ask("drift", lambda: client.list_drift(selection)),
        failures=ask("incidents", lambda: client.list_incidents(selection.window, past=True)),
        alerts=ask("alerts", lambda: client.list_alerts(selection.window)),
        tables=ask("routes", lambda: _tables(client, selection.regions)),
        costs=ask("best regions", lambda: client.get_region_costs(selection, metric=request.metric)),
        budgets=ask("latency targets", lambda: client.get_latency_budgets(selection)),
        tiers=ask("price tiers", lambda: client.get_tiers(selection)),
        vantages=ask("vantages", client.list_vantages),
    )


def _series(
    client: ObservatoryClient,
    request: ReportRequest,
    plan: TargetList,
    coverage: CoverageList | None,
    leaderboard: Leaderboard | None,
) -> SeriesList:
    """The series over the span that has samples, in buckets of several rounds."""
    window = request.selection.window
    oldest_at, newest_at = _ends(coverage)
    if oldest_at is not None and newest_at is not None and (not leaderboard or leaderboard.source is Source.SAMPLES):
        window = Window(from_at=oldest_at, until_at=newest_at + 1)
    every_us = max((target.every_us for target in plan.targets), default=1)
    rounds = (window.until_at - window.from_at) // (_ROUNDS_PER_BUCKET * max(every_us, 1))
    lines = len({(row.target, row.region) for row in coverage.coverage}) if coverage else 0
    points = min(max(rounds, _MIN_POINTS), _MAX_POINTS, max(_MAX_ANSWER_POINTS // max(lines, 1), 1))
    selection = Selection(window=window, regions=request.selection.regions, targets=request.selection.targets)
    return client.get_series(selection, metric=request.metric, points=points)


def _tables(client: ObservatoryClient, regions: tuple[str, ...]) -> tuple[RouteTable, ...]:
    try:
        return collect_tables(client, regions, "")
    except RefusedError:
        # The other answers know these regions: they only have no table yet.
        return ()


def _ends(coverage: CoverageList | None) -> tuple[int | None, int | None]:
    """The first and the last round with a sample."""
    rows = coverage.coverage if coverage else ()
    oldest_at = min((row.oldest_at for row in rows if row.oldest_at is not None), default=None)
    newest_at = max((row.newest_at for row in rows if row.newest_at is not None), default=None)
    return oldest_at, newest_at


def _full_baseline_name(answer: DifferentialList | None, named: str) -> str:
    """The full name of the baseline if the answer has it, otherwise `named`."""
    return answer.differentials[0].baseline if answer is not None and answer.differentials else named
