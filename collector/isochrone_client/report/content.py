"""Asks a collector all that a report tells. What it cannot answer is left out, and the report says why."""

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
# Errors of one answer. Whoever is not there, lets nobody in or does not know a name answers nothing at all.
_OF_ONE_ANSWER = (CollectorError, InsufficientError, SlowError)
_NOTHING = "Nothing in this window."


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """What a report is to be of: a selection, what to compare by, with which region (the plan's when empty), and the
    instant now in microseconds since the epoch.
    """

    selection: Selection
    metric: Metric
    baseline: str
    now_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _SectionSpec:
    """A section with a question of its own; `empty` is what is said of an answer without rows."""

    key: str
    title: str
    lead: str
    ask: Callable[[ObservatoryClient, ReportRequest], Any]
    page: Callable[[Any, ReportRequest], Page[Any]]
    empty: Callable[[Any], str] = lambda _answer: _NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class _AnswerOrReason(Generic[Answer]):
    """An answer, or why there is none."""

    answer: Answer | None = None
    why: str = ""


def build_report(
    client: ObservatoryClient, request: ReportRequest, *, collector: str, progress: Callable[[str], None]
) -> Report:
    """The report of a collector that goes by the name `collector`; `progress` hears what is asked for, as it is.

    Raises `ClientError` when it answers nothing or does not know a name that was wished for.
    """
    plan = client.list_targets()
    baseline = request.baseline or require_baseline(plan)
    progress("differentials")
    compared = _try(
        lambda: client.get_differentials(request.selection, baseline=baseline, metric=request.metric, explain=True)
    )
    progress("coverage")
    covered = _try(lambda: client.get_coverage(request.selection))
    return Report(
        window=request.selection.window,
        generated_at=request.now_at,
        collector=collector,
        facts=facts(
            baseline=_baseline(compared.answer, baseline),
            metric=request.metric,
            plan_version=plan.plan_version,
            targets=len(plan.targets),
            coverage=covered.answer,
        ),
        summary=summary(compared.answer) if compared.answer else (),
        sections=(
            *_comparison(compared, request),
            *(_asked(spec, client, request, progress) for spec in _SECTIONS),
            _section(
                "coverage",
                "Coverage",
                "Of the rounds that were planned, how many left a sample, and with which outcomes.",
                covered,
                lambda answer: coverage.page(answer, now_at=request.now_at),
            ),
        ),
    )


def _comparison(compared: _AnswerOrReason[DifferentialList], request: ReportRequest) -> tuple[Section, ...]:
    def by_region(answer: DifferentialList) -> Page[Any]:
        rows = differentials.select_rows(answer, sort="shift", only=None)
        return differentials.page(answer, rows, metric=request.metric, now_at=request.now_at)

    return (
        _section(
            "differentials",
            "Differentials",
            "Each region minus the baseline, target by target. The dot is the shift, the line its 95 % interval, the "
            "shaded band the margin below which a difference does not matter; a hollow dot is undecided.",
            compared,
            by_region,
            draw=charts.intervals,
        ),
        _section(
            "origins",
            "Where the differences come from",
            "A first token over a fresh connection takes name lookup, TCP and TLS handshakes, the request's way there "
            "and back, and the server. What each adds is stacked to the right of zero, what it saves to the left.",
            compared,
            difference_phases.page,
            draw=charts.bars,
        ),
    )


def _asked(
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
    paged: Callable[[Answer], Page[Any]],
    *,
    draw: ChartBuilder | None = None,
    empty: Callable[[Answer], str] = lambda _answer: _NOTHING,
) -> Section:
    if outcome.answer is None:
        return Section(key=key, title=title, missing=f"Left out: {outcome.why}")
    page = paged(outcome.answer)
    if not page.rows:
        return Section(key=key, title=title, lead=lead, missing=empty(outcome.answer))
    return Section(key=key, title=title, lead=lead, pages=(page,), draw=draw)


def _try(ask: Callable[[], Answer]) -> _AnswerOrReason[Answer]:
    try:
        return _AnswerOrReason(answer=ask())
    except _OF_ONE_ANSWER as error:
        return _AnswerOrReason(why=str(error))


def _baseline(answer: DifferentialList | None, named: str) -> str:
    """Its full name, where the answer has it."""
    return answer.differentials[0].baseline if answer is not None and answer.differentials else named


_SECTIONS = (
    _SectionSpec(
        key="leaderboards",
        title="Leaderboards",
        lead="Targets by median time to first token, as each region sees them.",
        ask=lambda client, request: client.get_leaderboard(request.selection),
        page=lambda answer, _wish: leaderboard.page(answer),
    ),
    _SectionSpec(
        key="best",
        title="Best regions",
        lead="Where each provider is nearest, and what the other regions pay.",
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
        lead="Targets beside those that cost as much.",
        ask=lambda client, request: client.get_tiers(request.selection),
        page=lambda answer, _wish: tiers.page(answer),
    ),
    _SectionSpec(
        key="drift",
        title="Drift",
        lead="Lasting changes: new levels that slow answers, short bursts and the hour of the day do not explain.",
        ask=lambda client, request: client.list_drift(request.selection),
        page=lambda answer, _wish: drift.page(answer),
        empty=lambda answer: f"No lasting change in this window; {drift.watched_summary(answer)}.",
    ),
    _SectionSpec(
        key="vantages",
        title="Vantages",
        lead="Who measures, from where, and how they are doing.",
        ask=lambda client, _wish: client.list_vantages(),
        page=lambda answer, _wish: regions.page(answer),
    ),
)
