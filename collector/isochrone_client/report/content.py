"""The content of a report: one section per answer of the collector. A section that fails has the reason instead."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from isochrone_client.client import ObservatoryClient
from isochrone_client.errors import CollectorError, InsufficientError, SlowError
from isochrone_client.pages import (
    coverage,
    difference_phases,
    differentials,
    drift,
    latency_targets,
    leaderboard,
    region_costs,
    regions,
    tiers,
)
from isochrone_client.pages.targets import require_baseline
from isochrone_client.render.page import Page
from isochrone_client.report import charts
from isochrone_client.report.sections import Report, Section, facts, summary
from isochrone_client.report.tables import ChartBuilder
from isochrone_wire.answers import DifferentialList, Metric, Selection

Answer = TypeVar("Answer")
# Errors of a single answer. An unreachable collector, a missing permission or an unknown name fail the whole report.
_ERRORS_OF_ONE_ANSWER = (CollectorError, InsufficientError, SlowError)
_NOTHING = "Nothing in this window."


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
class _SectionSpec:
    """A section with its call; `empty` returns the text for an answer without rows."""

    key: str
    title: str
    lead: str
    ask: Callable[[ObservatoryClient, ReportRequest], Any]
    page: Callable[[Any, ReportRequest], Page[Any]]
    empty: Callable[[Any], str] = lambda _answer: _NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class _AnswerOrReason(Generic[Answer]):
    """An answer, or the reason for its absence."""

    answer: Answer | None = None
    reason: str = ""


def build_report(
    client: ObservatoryClient, request: ReportRequest, *, collector: str, progress: Callable[[str], None]
) -> Report:
    """The report of a collector, shown under the name `collector`; `progress` receives the title of each section.

    Raises `ClientError` if the collector cannot be used or does not know a name in the request.
    """
    plan = client.list_targets()
    baseline = request.baseline or require_baseline(plan)
    progress("differentials")
    difference_outcome = _try(
        lambda: client.get_differentials(request.selection, baseline=baseline, metric=request.metric, explain=True)
    )
    progress("coverage")
    coverage_outcome = _try(lambda: client.get_coverage(request.selection))
    return Report(
        window=request.selection.window,
        generated_at=request.now_at,
        collector=collector,
        facts=facts(
            baseline=_full_baseline_name(difference_outcome.answer, baseline),
            metric=request.metric,
            plan_version=plan.plan_version,
            targets=len(plan.targets),
            coverage=coverage_outcome.answer,
        ),
        summary=summary(difference_outcome.answer) if difference_outcome.answer else (),
        sections=(
            *_differential_sections(difference_outcome, request),
            *(_section_of(spec, client, request, progress) for spec in _SECTIONS),
            _section(
                "coverage",
                "Coverage",
                "Planned rounds, rounds with a sample, and the outcomes of the samples.",
                coverage_outcome,
                lambda answer: coverage.page(answer, now_at=request.now_at),
            ),
        ),
    )


def _differential_sections(
    difference_outcome: _AnswerOrReason[DifferentialList], request: ReportRequest
) -> tuple[Section, ...]:
    def by_region(answer: DifferentialList) -> Page[Any]:
        rows = differentials.select_rows(answer, sort="shift", only=None)
        return differentials.page(answer, rows, metric=request.metric, now_at=request.now_at)

    return (
        _section(
            "differentials",
            "Differentials",
            "Each region minus the baseline, per target. The dot is the shift, the line its 95 % interval, the shaded "
            "band the margin below which a difference does not matter; a hollow dot is undecided.",
            difference_outcome,
            by_region,
            chart=charts.intervals,
        ),
        _section(
            "origins",
            "Origin of the differences",
            "The time to a first token over a fresh connection is the sum of name lookup, TCP and TLS handshakes, the "
            "request's round trip, and the server. Increases are stacked to the right of zero, decreases to the left.",
            difference_outcome,
            difference_phases.page,
            chart=charts.bars,
        ),
    )


def _section_of(
    spec: _SectionSpec, client: ObservatoryClient, request: ReportRequest, progress: Callable[[str], None]
) -> Section:
    progress(spec.title.lower())
    return _section(
        spec.key,
        spec.title,
        spec.lead,
        _try(lambda: spec.ask(client, request)),
        lambda answer: spec.page(answer, request),
        empty=spec.empty,
    )


def _section(
    key: str,
    title: str,
    lead: str,
    outcome: _AnswerOrReason[Answer],
    page_of: Callable[[Answer], Page[Any]],
    *,
    chart: ChartBuilder | None = None,
    empty: Callable[[Answer], str] = lambda _answer: _NOTHING,
) -> Section:
    if outcome.answer is None:
        return Section(key=key, title=title, missing=f"Left out: {outcome.reason}")
    page = page_of(outcome.answer)
    if not page.rows:
        return Section(key=key, title=title, lead=lead, missing=empty(outcome.answer))
    return Section(key=key, title=title, lead=lead, pages=(page,), chart=chart)


def _try(ask: Callable[[], Answer]) -> _AnswerOrReason[Answer]:
    try:
        return _AnswerOrReason(answer=ask())
    except _ERRORS_OF_ONE_ANSWER as error:
        return _AnswerOrReason(reason=str(error))


def _full_baseline_name(answer: DifferentialList | None, named: str) -> str:
    """The full name of the baseline if the answer has it, otherwise `named`."""
    return answer.differentials[0].baseline if answer is not None and answer.differentials else named


_SECTIONS = (
    _SectionSpec(
        key="leaderboards",
        title="Leaderboards",
        lead="Targets by median time to first token, per region.",
        ask=lambda client, request: client.get_leaderboard(request.selection),
        page=lambda answer, _wish: leaderboard.page(answer),
    ),
    _SectionSpec(
        key="best",
        title="Best regions",
        lead="The nearest region of each provider, and the latency that the other regions add.",
        ask=lambda client, request: client.get_region_costs(request.selection, metric=request.metric),
        page=lambda answer, request: region_costs.page(answer, metric=request.metric),
    ),
    _SectionSpec(
        key="latency-targets",
        title="Latency targets",
        lead="The targets that are fast enough for each use.",
        ask=lambda client, request: client.get_latency_budgets(request.selection),
        page=lambda answer, _wish: latency_targets.page(answer),
    ),
    _SectionSpec(
        key="tiers",
        title="Price tiers",
        lead="Targets compared with others of a similar price.",
        ask=lambda client, request: client.get_tiers(request.selection),
        page=lambda answer, _wish: tiers.page(answer),
    ),
    _SectionSpec(
        key="drift",
        title="Drift",
        lead="Lasting changes of level that outliers, short bursts and the time of day do not explain.",
        ask=lambda client, request: client.list_drift(request.selection),
        page=lambda answer, _wish: drift.page(answer),
        empty=lambda answer: f"No lasting change in this window; {drift.watched_summary(answer)}.",
    ),
    _SectionSpec(
        key="vantages",
        title="Vantages",
        lead="The vantages by region, with their status.",
        ask=lambda client, _wish: client.list_vantages(),
        page=lambda answer, _wish: regions.page(answer),
    ),
)
