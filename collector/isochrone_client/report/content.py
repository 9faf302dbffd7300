"""The content of a report: the verdict, and one section per subject. A section without an answer has the reason."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from isochrone_client.client import ObservatoryClient
from isochrone_client.formats import display_unit
from isochrone_client.pages import alerts, coverage, differentials, latency_targets, leaderboard, regions
from isochrone_client.pages import routes as route_pages
from isochrone_client.render.page import Page
from isochrone_client.report import charts, heat_table, incidents, time_charts, verdict
from isochrone_client.report.answers import Answer, Answers, Outcome, ReportRequest, ask_all
from isochrone_client.report.html_elements import Markup
from isochrone_client.report.incidents import Incident, find_incidents
from isochrone_client.report.sections import Report, Section, facts
from isochrone_client.report.tables import ChartBuilder
from isochrone_wire.answers import DifferentialList
from isochrone_wire.insights import Leaderboard
from isochrone_wire.queries.differential_order import select_rows
from isochrone_wire.queries.series import SeriesList

_NOTHING = "Nothing in this window."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Material:
    """The request, the answers, the incidents found in them, and the medians of all targets and regions."""

    request: ReportRequest
    answers: Answers
    incidents: tuple[Incident, ...]
    heat: heat_table.HeatTable


def build_report(
    client: ObservatoryClient, request: ReportRequest, *, collector: str, progress: Callable[[str], None]
) -> Report:
    """The report of a collector, shown under the name `collector`; `progress` receives the name of each question.

    Raises `ClientError` if the collector cannot be used or does not know a name in the request.
    """
    return compose(ask_all(client, request, progress=progress), request, collector=collector)


def compose(answers: Answers, request: ReportRequest, *, collector: str) -> Report:
    """The report of these answers."""
    found = find_incidents(
        drift=answers.drift.answer,
        failures=answers.failures.answer,
        coverage=answers.coverage.answer,
        series=answers.series.answer,
        alerts=answers.alerts.answer,
        vantages=answers.vantages.answer,
        differences=answers.differences.answer,
    )
    material = _Material(request=request, answers=answers, incidents=found, heat=_heat_table(answers, request))
    return Report(
        window=request.selection.window,
        span=answers.span,
        generated_at=request.now_at,
        collector=collector,
        verdict=_verdict(material),
        facts=facts(
            window=request.selection.window,
            baseline=answers.baseline,
            metric=request.metric,
            plan_version=answers.plan.plan_version,
            targets=len(answers.plan.targets),
            coverage=answers.coverage.answer,
        ),
        sections=(
            _heat(material),
            _over_time(material),
            _incidents(material),
            *_differences(material),
            *_others(material),
        ),
    )


def _heat_table(answers: Answers, request: ReportRequest) -> heat_table.HeatTable:
    standings, compared = answers.leaderboard.answer, answers.differences.answer
    return heat_table.heat_table(
        standings.standings if standings else (),
        compared.differentials if compared else (),
        metric=request.metric,
        baseline=answers.baseline,
        now_at=request.now_at,
    )


def _verdict(material: _Material) -> tuple[str, ...]:
    answers, request = material.answers, material.request
    compared = answers.differences.answer
    lacking = verdict.missing(
        answers.plan,
        answers.coverage.answer,
        answers.vantages.answer,
        compared,
        baseline=answers.baseline,
        window=request.selection.window,
        now_at=request.now_at,
    )
    sentences = [*lacking] or [verdict.comparison(compared.differentials if compared else ())]
    if answers.span is not None:
        newest_at = answers.span.until_at
        sentences.append(
            verdict.present(material.incidents, answers.vantages.answer, newest_at=newest_at, now_at=request.now_at)
        )
    return tuple(filter(None, sentences))


def _heat(material: _Material) -> Section:
    answers = material.answers

    def draw(_answer: Leaderboard | DifferentialList) -> Markup:
        return heat_table.drawing(material.heat)

    outcome: Outcome[Any] = answers.leaderboard if answers.leaderboard.answer else answers.differences
    return _section(
        "regions",
        "Targets by region",
        "Median time of each target from each region, the fastest first, and below it the difference from the "
        f"baseline, {answers.baseline}. The colour shows which cells are slower or faster than the baseline.",
        outcome,
        lambda _answer: heat_table.page(material.heat),
        drawing=draw,
    )


def _over_time(material: _Material) -> Section:
    answers, metric = material.answers, material.request.metric

    def charts_of(answer: SeriesList) -> time_charts.TimeCharts:
        return time_charts.time_charts(
            answer,
            regions=material.heat.regions,
            span=answers.span or answer.window,
            incidents=material.incidents,
        )

    name = metric.display_name
    return _section(
        "time",
        f"{name[0].upper()}{name[1:]} over time",
        f"The median of each target in {display_unit(metric.unit)}, a line per region. A dashed "
        "mark is the beginning of an incident, with its number.",
        answers.series,
        lambda answer: time_charts.page(charts_of(answer)),
        drawing=lambda answer: time_charts.drawing(charts_of(answer)),
    )


def _incidents(material: _Material) -> Section:
    drifted = material.answers.drift
    watched = alerts.watched_summary(drifted.answer) if drifted.answer else drifted.reason
    title, lead = "Incidents", "Targets that fail, new levels that last, and vantages that do not report."
    if not material.incidents:
        return Section(key="incidents", title=title, lead=lead, missing=f"No incident in this window; {watched}.")
    page = incidents.page(material.incidents, now_at=material.request.now_at, notes=(watched,))
    return Section(key="incidents", title=title, lead=lead, pages=(page,))


def _differences(material: _Material) -> tuple[Section, ...]:
    request, outcome = material.request, material.answers.differences

    def by_region(answer: DifferentialList) -> Page[Any]:
        rows = select_rows(answer)
        return differentials.page(answer, rows, metric=request.metric, now_at=request.now_at)

    return (
        _section(
            "differentials",
            "Differentials",
            "Each region minus the baseline, per target. The dot is the difference, the line its 95 % interval, the "
            "shaded band the smallest difference that matters; a hollow dot is undecided or mixed.",
            outcome,
            by_region,
            chart=charts.intervals,
        ),
        _section(
            "origins",
            "Origin of the differences",
            "The time to a first token over a fresh connection is the sum of name lookup, TCP and TLS handshakes, the "
            "request's round trip, and the server, which is everything behind the address that was dialled. Increases "
            "are stacked to the right of zero, decreases to the left.",
            outcome,
            differentials.phases_page,
            chart=charts.bars,
        ),
    )


def _others(material: _Material) -> tuple[Section, ...]:
    answers, request = material.answers, material.request
    return (
        _section(
            "routes",
            "Route tables",
            "Where requests go now, per route and region, with the share of each member.",
            answers.tables,
            lambda answer: route_pages.page(answer, now_at=request.now_at),
            empty="No route table: the plan has no routes, or their members have too few samples.",
        ),
        _section(
            "best",
            "Best regions",
            "The nearest region of each provider, and the latency that the other regions add.",
            answers.costs,
            lambda answer: regions.best_page(answer, metric=request.metric),
        ),
        _section(
            "latency-targets",
            "Latency targets",
            "The targets that are fast enough for each use.",
            answers.budgets,
            latency_targets.page,
        ),
        _section(
            "tiers",
            "Price tiers",
            "Targets compared with others of a similar price.",
            answers.tiers,
            leaderboard.tiers_page,
        ),
        _section(
            "vantages",
            "Vantages",
            "The vantages by region, with their status.",
            answers.vantages,
            regions.page,
        ),
        _section(
            "coverage",
            "Coverage",
            "Planned rounds, rounds with a sample, and the outcomes of the samples.",
            answers.coverage,
            lambda answer: coverage.page(answer, now_at=request.now_at),
        ),
    )


def _section(
    key: str,
    title: str,
    lead: str,
    outcome: Outcome[Answer],
    page_of: Callable[[Answer], Page[Any]],
    *,
    drawing: Callable[[Answer], Markup] | None = None,
    chart: ChartBuilder | None = None,
    empty: str = _NOTHING,
) -> Section:
    if outcome.answer is None:
        return Section(key=key, title=title, missing=f"Left out: {outcome.reason}")
    page = page_of(outcome.answer)
    if not page.rows:
        return Section(key=key, title=title, lead=lead, missing=empty)
    drawn = drawing(outcome.answer) if drawing is not None else None
    return Section(key=key, title=title, lead=lead, pages=(page,), drawing=drawn, chart=chart)
