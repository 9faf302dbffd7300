"""All results of a window as one report: a verdict, the matrix, and the tables of the commands.

As HTML it is the live page in one file (see `offline_page`), with the answers that the page would ask for.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from isochrone_client.client import ReadClient
from isochrone_client.errors import BaselineError, CollectorError, InsufficientError, RefusedError, SlowError
from isochrone_client.formats import age, between, display_unit, displayed, interval, moment, number, share
from isochrone_client.pages import alerts, differentials, fleet, latency_targets, leaderboard, matrix, samples
from isochrone_client.pages import routes as route_pages
from isochrone_client.pages.cells import counted, require_baseline
from isochrone_client.pages.matrix import Matrix
from isochrone_client.render import markdown
from isochrone_client.render.page import Page, RenderOptions
from isochrone_wire.answers import Decision, Differential, DifferentialList, Metric, Selection, Source, Window
from isochrone_wire.fleet import CoverageList, Liveness, TargetList, VantageList
from isochrone_wire.insights import Incident, IncidentList, Leaderboard
from isochrone_wire.json_format import minute, to_json_value
from isochrone_wire.model import MINUTE_US, SECOND_US
from isochrone_wire.queries.differential_order import select_rows
from isochrone_wire.queries.documents import document
from isochrone_wire.queries.series import SeriesList
from isochrone_wire.routes import Overview, RouteTable
from isochrone_wire.text import ESTIMAND_SENTENCE
from isochrone_wire.text import escaped_markdown as escaped

Answer = TypeVar("Answer")
# Errors of a single answer. An unreachable collector, a missing permission or an unknown name fail the whole report.
_ERRORS_OF_ONE_ANSWER = (BaselineError, CollectorError, InsufficientError, SlowError)
# The metrics of the page's matrix, and its names for them.
_PAGE_METRICS = {Metric.TTFT: "ttft", Metric.TOKENS_PER_SECOND: "speed", Metric.E2E: "e2e"}
# As in the page's `matrix_model.js` and `target.js`.
_QUANTITIES = ("ttft_p50_us", "e2e_p50_us", "tokens_per_second_p50", "success")
_USE, _USE_SECONDS = "chat", 1
_POINTS, _GOODPUT_POINTS, _ROUND_TRIP_POINTS, _BINS = 120, 60, 24, 80
# The path of an answer for the window of the report, whichever it is: that of the page's usual one.
_WINDOW = "window=24h"
# The points of all lines of an answer, and the tables with an explanation, that a file may contain.
_MAX_POINTS, _MAX_EXPLANATIONS = 50_000, 30
# Fewer rounds in a point would show the noise of single probes.
_ROUNDS_PER_POINT, _FEWEST_POINTS = 3, 12
_FEW_REGIONS, _MOST = 2, 3
# Samples older than this are not about now.
_STALE_US = 5 * MINUTE_US
# Sections that have rows without any sample.
_ALWAYS = ("Incidents", "Alerts", "Route tables", "Vantages", "Coverage")

METHOD = {
    "Differences": (
        "A difference is region minus baseline: the Hodges-Lehmann estimate over the rounds in which both have a "
        "value, so that a slowdown of a provider in all regions at once cancels out. Its 95 % interval comes from the "
        "signed-rank distribution and is widened if neighbouring rounds are correlated: n rounds then count as fewer."
    ),
    "Intervals": ESTIMAND_SENTENCE,
    "Decisions": (
        "Faster and slower require an interval that excludes zero and a difference of at least the smallest that "
        "matters (20 ms or 5 % of the baseline, whichever is larger). Equivalent means that the whole interval is "
        "smaller than that. Everything else is undecided, with a reason. Across all pairs, the false-discovery rate is "
        "limited to 5 % (Benjamini-Hochberg)."
    ),
    "Percentiles": (
        "Nearest rank, with intervals from order statistics; a value with too few samples for an interval has a "
        "question mark. A timeout counts as longer than any measured value; throttled and skipped rounds are counted "
        "apart."
    ),
    "Unknown": "A dash means unknown, never zero.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section of a report: its tables, or the reason that there are none."""

    title: str
    pages: tuple[Page[Any], ...] = ()
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report: its first sentences, names and values for its head, the content of its first section, all sections, and
    the answers for the page by their paths, with the options of the page that differ.
    """

    title: str
    collector: str
    generated_at: int
    is_empty: bool
    verdict: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    matrix: Matrix
    sections: tuple[Section, ...]
    documents: dict[str, Any]
    options: dict[str, str]

    @property
    def provenance(self) -> str:
        """The instant and the collector of the report, as a sentence."""
        return f"generated at {minute(self.generated_at)} UTC by isochrone from the collector {self.collector}"


@dataclass(slots=True, kw_only=True)
class Questions:
    """The questions of one report as of `now_at` (microseconds since the epoch); an empty `baseline` is the plan's.

    `progress` receives the name of each question. The answers for the page are asked for `with_page` only. `reasons`
    has why an answer is missing, `documents` the answers for the page.
    """

    client: ReadClient
    selection: Selection
    metric: Metric
    baseline: str
    now_at: int
    plan: TargetList
    with_page: bool
    progress: Callable[[str], None]
    reasons: dict[str, str] = field(default_factory=dict)
    documents: dict[str, Any] = field(default_factory=dict)

    def ask(self, name: str, question: Callable[[], Answer], path: str = "") -> Answer | None:
        """The answer, which is also the page's to `path`; `None` if there is a reason that it is missing."""
        self.progress(name)
        try:
            answer = question()
        except _ERRORS_OF_ONE_ANSWER as error:
            self.reasons[name] = str(error)
            return None
        if path:
            self.documents[path] = document(answer)
        return answer

    def section(
        self,
        name: str,
        title: str,
        answer: Answer | None,
        page_of: Callable[[Answer], Page[Any]],
        empty: str = "Nothing in this window.",
    ) -> Section:
        """The section of an answer, whose question had this name."""
        if answer is None:
            return Section(title=title, missing=f"Left out: {self.reasons[name]}")
        page = page_of(answer)
        return Section(title=title, pages=(page,)) if page.rows else Section(title=title, missing=empty)

    def differences(self, metric: Metric, *, explain: bool) -> DifferentialList:
        """The differentials of a metric, in the order of the command."""
        baseline = self.baseline or require_baseline(self.plan.baseline)
        answer = self.client.get_differentials(self.selection, baseline=baseline, metric=metric, explain=explain)
        return replace(answer, differentials=select_rows(answer))


def make_report(asked: Questions, *, collector: str) -> Report:
    """Ask a collector, shown under the name `collector`, for a report.

    Raises `ClientError` if the collector cannot be used or does not know a name in the questions.
    """
    found = _ask_all(asked)
    if asked.with_page:
        _ask_for_page(asked, found)
        _ask_for_targets(asked, found)
        _ask_for_routes(asked, found.tables or ())
    window, span = asked.selection.window, _span(found.coverage)
    data = _span_text(span) if span else f"no samples between {between(window)}"
    sections = tuple(_sections(asked, found))
    # The slower targets and regions, or why there is no result; and the present problems.
    verdict = _missing(asked, found) or [_comparison(found.differences)]
    if span is not None:
        incidents = found.incidents.incidents if found.incidents else ()
        verdict.append(_present(incidents, found.vantages, newest_at=span.until_at, now_at=asked.now_at))
    options = {"metric": _PAGE_METRICS.get(asked.metric, ""), "baseline": asked.baseline}
    return Report(
        title=f"LLM latency by region{', ' if span else ': '}{data}",
        collector=collector,
        generated_at=asked.now_at,
        is_empty=span is None and not any(one.pages for one in sections if one.title not in _ALWAYS),
        verdict=tuple(filter(None, verdict)),
        facts=tuple(_facts(asked, found)),
        matrix=found.matrix,
        sections=sections,
        documents=asked.documents,
        options={name: text for name, text in options.items() if text},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answers:
    differences: DifferentialList | None
    leaderboard: Leaderboard | None
    coverage: CoverageList | None
    vantages: VantageList | None
    incidents: IncidentList | None
    series: SeriesList | None
    series_selection: Selection
    tables: tuple[RouteTable, ...] | None
    matrix: Matrix


def _ask_all(asked: Questions) -> _Answers:
    client, selection, metric, window = asked.client, asked.selection, asked.metric, asked.selection.window
    compared = asked.ask("differentials", lambda: asked.differences(metric, explain=True))
    path = f"/v1/leaderboard?{_WINDOW}" + "".join(f"&quantity={name}" for name in _QUANTITIES)
    ranked = asked.ask("leaderboard", lambda: client.get_leaderboard(selection), path)
    covered = asked.ask("coverage", lambda: client.get_coverage(selection), f"/v1/coverage?{_WINDOW}")
    rows = compared.differentials if compared else ()
    found = matrix.matrix_of(
        ranked.standings if ranked else (),
        rows,
        metric=metric,
        baseline=rows[0].baseline if rows else asked.baseline or asked.plan.baseline,
    )
    # The part of the window that has samples, unless the answers are from summaries.
    of_series, span = selection, _span(covered)
    if span is not None and (ranked is None or ranked.source is Source.SAMPLES):
        of_series = replace(selection, window=Window(from_at=span.from_at, until_at=span.until_at + 1))
    points = _points(asked.plan, of_series.window, covered, _POINTS)

    def tables() -> tuple[RouteTable, ...]:
        try:
            return client.list_tables(selection.regions)
        except RefusedError:
            # The other answers know these regions: they only have no table yet.
            return ()

    return _Answers(
        differences=compared,
        leaderboard=ranked,
        coverage=covered,
        vantages=asked.ask("vantages", client.list_vantages, "/v1/vantages"),
        incidents=asked.ask(
            "incidents", lambda: client.list_incidents(window, past=True), f"/v1/incidents?{_WINDOW}&past=true"
        ),
        series=asked.ask(
            "series",
            lambda: client.get_series(of_series, metric=metric, points=points, bins=_BINS if asked.with_page else 0),
        ),
        series_selection=of_series,
        tables=asked.ask("routes", tables),
        matrix=matrix.arranged(found, sort="value"),
    )


def _sections(asked: Questions, found: _Answers) -> Iterator[Section]:
    client, selection, metric, now = asked.client, asked.selection, asked.metric, asked.now_at
    title = f"median {metric} and the difference from {found.matrix.baseline}, {display_unit(metric.unit)}"
    differences = found.differences
    yield asked.section(
        "leaderboard", "Targets by region", found.leaderboard, lambda _: matrix.page(found.matrix, title)
    )
    over_time = f"{metric.display_name[:1].upper()}{metric.display_name[1:]} over time"
    yield asked.section("series", over_time, found.series, lambda one: samples.series_page(one, now_at=now))
    yield asked.section("incidents", "Incidents", found.incidents, lambda one: alerts.incidents_page(one, past=True))
    drift = asked.ask("drift", lambda: client.list_drift(selection))
    watched = f"No lasting change in this window; {alerts.watched_summary(drift)}." if drift else ""
    yield asked.section("drift", "Lasting changes", drift, alerts.drift_page, watched)
    raised = asked.ask("alerts", lambda: client.list_alerts(selection.window))
    yield asked.section("alerts", "Alerts", raised, alerts.page)
    yield asked.section(
        "differentials",
        "Differentials",
        differences,
        lambda one: differentials.page(one, one.differentials, metric=metric, now_at=now),
    )
    yield asked.section("differentials", "Origin of the differences", differences, differentials.phases_page)
    no_table = "No route table: the plan has no routes, or their members have too few samples."
    yield asked.section("routes", "Route tables", found.tables, lambda one: route_pages.page(one, now_at=now), no_table)
    costs = asked.ask("best regions", lambda: client.get_region_costs(selection, metric=metric))
    yield asked.section("best regions", "Best regions", costs, lambda one: leaderboard.best_page(one, metric=metric))
    budgets = asked.ask("latency targets", lambda: client.get_latency_budgets(selection))
    yield asked.section("latency targets", "Latency targets", budgets, latency_targets.page)
    tiers = asked.ask("price tiers", lambda: client.get_tiers(selection))
    yield asked.section("price tiers", "Price tiers", tiers, leaderboard.tiers_page)
    yield asked.section("vantages", "Vantages", found.vantages, fleet.vantages_page)
    yield asked.section("coverage", "Coverage", found.coverage, lambda one: fleet.coverage_page(one, now_at=now))


def _ask_for_page(asked: Questions, found: _Answers) -> None:
    """Ask what the page's views of all targets show besides: other metrics, goodput and spend."""
    client, selection = asked.client, asked.selection
    tables, plan = found.tables or (), asked.plan
    routes = tuple(sorted({table.route for table in tables}))
    overview = to_json_value(Overview.of(tables, plan_version=plan.plan_version, routes=routes))
    asked.documents |= {"/v1/targets": document(plan), "/v1/routes": overview}
    baseline = f"&baseline={asked.baseline}" if asked.baseline else ""
    for metric, name in _PAGE_METRICS.items():
        path = f"/v1/diff?{_WINDOW}{baseline}&metric={metric}"
        if metric is not asked.metric:
            asked.ask(name, partial(asked.differences, metric, explain=False), path)
        elif found.differences is not None:
            asked.documents[path] = document(found.differences)
    asked.ask("goodput", lambda: client.get_latency_budgets(selection, uses=(_USE,)), f"/v1/slo?{_WINDOW}&use={_USE}")
    asked.ask("spend", lambda: client.get_spend(Selection(window=selection.window)), "/v1/spend")


def _ask_for_targets(asked: Questions, found: _Answers) -> None:
    """Ask about all targets what the page's view of one target shows, and divide it."""
    client, selection, metric = asked.client, asked.selection, asked.metric
    baseline = f"&baseline={asked.baseline}" if asked.baseline else ""
    of_series = found.series_selection
    goodput_points = _points(asked.plan, of_series.window, found.coverage, _GOODPUT_POINTS)
    _divide(asked, "/v1/series", f"&metric={metric}&points={_POINTS}&bins={_BINS}", found.series, "series")
    _divide(asked, "/v1/diff", f"&metric={metric}{baseline}&explain=true", found.differences, "differentials")
    hours = asked.ask("goodput by hour", lambda: client.get_latency_budgets(selection, uses=(_USE,), by="hour"))
    _divide(asked, "/v1/slo", f"&use={_USE}&by=hour", hours, "budgets")
    goodput = asked.ask(
        "goodput over time",
        lambda: client.get_series(
            of_series, metric=Metric.TTFT, points=goodput_points, limit_us=_USE_SECONDS * SECOND_US
        ),
    )
    query = f"&metric={Metric.TTFT}&limit={_USE_SECONDS}&points={_GOODPUT_POINTS}"
    _divide(asked, "/v1/series", query, goodput, "series")
    trips = asked.ask("round trips", lambda: client.get_series(selection, metric=Metric.RTT, points=_ROUND_TRIP_POINTS))
    _divide(asked, "/v1/series", f"&metric={Metric.RTT}&points={_ROUND_TRIP_POINTS}", trips, "series")


def _ask_for_routes(asked: Questions, tables: Sequence[RouteTable]) -> None:
    """Ask for the changes of route tables, and for the decisions behind them."""
    client, selection = asked.client, asked.selection
    path = f"/v1/route-events?{_WINDOW}"
    asked.ask("changes of routes", lambda: client.list_route_events(selection), path)
    for table in tables[:_MAX_EXPLANATIONS]:
        region, route = table.client_region, table.route
        own = replace(selection, regions=(region,))
        name = f"route {route} from {region}"
        explanation = asked.ask(name, partial(client.explain_route, region, route))
        if explanation is not None:
            asked.documents[f"/v1/explain/{region}/{route}"] = to_json_value(explanation)
        events = partial(client.list_route_events, own, route=route)
        asked.ask(f"changes of {name}", events, f"{path}&region={region}&route={route}")


def _divide(asked: Questions, path: str, query: str, answer: Any, rows: str) -> None:  # noqa: ANN401  # a list with rows
    """Divide an answer about all targets into those that the page asks for one target; `rows` is its field of rows."""
    found: dict[str, list[Any]] = {}
    for row in getattr(answer, rows, ()):
        found.setdefault(row.target, []).append(row)
    for target, own in found.items():
        asked.documents[f"{path}?{_WINDOW}&target={target}{query}"] = document(replace(answer, **{rows: tuple(own)}))


def _points(plan: TargetList, window: Window, covered: CoverageList | None, most: int) -> int:
    """The points of a line: of several rounds each, and so few that an answer about all targets is not too large."""
    every_us = max((target.every_us for target in plan.targets), default=1)
    rounds = (window.until_at - window.from_at) // (_ROUNDS_PER_POINT * max(every_us, 1))
    lines = len({(row.target, row.region) for row in covered.coverage}) if covered else 0
    return min(max(rounds, _FEWEST_POINTS), most, max(_MAX_POINTS // max(lines, 1), 1))


def _span(covered: CoverageList | None) -> Window | None:
    rows = [row for row in covered.coverage if row.newest_at is not None] if covered else []
    oldest = min((row.oldest_at for row in rows if row.oldest_at is not None), default=None)
    newest = max((row.newest_at for row in rows if row.newest_at is not None), default=None)
    return None if oldest is None or newest is None else Window(from_at=oldest, until_at=newest)


def _span_text(span: Window) -> str:
    """`2026-11-20 08:00 to 2026-11-21 08:00 UTC`; the date only once if it is the same."""
    first, last = minute(span.from_at), minute(span.until_at)
    date, _, time = last.partition(" ")
    return f"{first} UTC" if first == last else f"{first} to {time if first.startswith(date) else last} UTC"


def _facts(asked: Questions, found: _Answers) -> Iterator[tuple[str, str]]:
    plan = asked.plan
    yield "window", _span_text(asked.selection.window)
    yield "baseline", found.matrix.baseline or "none"
    yield "compared by", str(asked.metric)
    yield "plan", f"version {plan.plan_version}, {len(plan.targets)} targets" if plan.plan_version else "none applied"
    rows = found.coverage.coverage if found.coverage else ()
    if rows:
        planned, recorded = sum(row.planned for row in rows), sum(row.recorded for row in rows)
        vantages = counted(len({row.vantage for row in rows}), "vantage")
        yield "recorded", f"{recorded} of {planned} planned rounds ({share(recorded, planned)} %) by {vantages}"


def _comparison(compared: DifferentialList | None) -> str:
    """The regions compared with the baseline: the number of targets, and the largest difference in each direction."""
    rows = compared.differentials if compared else ()
    names = list(dict.fromkeys(row.region for row in rows))
    if len(names) > _FEW_REGIONS:
        of = f"of {len(rows)} pairs of a target and one of {len(names)} regions"
        clauses = [_decided(rows, of, with_region=True) or f"no difference of {len(rows)} pairs is certain"]
    else:
        own = {name: [row for row in rows if row.region == name] for name in names}
        clauses = [
            f"from {name}, "
            + (
                _decided(of, f"of {counted(len(of), 'target')}")
                or f"no difference of {counted(len(of), 'target')} is certain"
            )
            for name, of in own.items()
        ]
    return f"Compared with {rows[0].baseline}: {'; '.join(clauses)}." if rows else ""


def _decided(rows: Sequence[Differential], of: str, *, with_region: bool = False) -> str:
    """`1 of 15 targets is slower (p/m by 400 ms, 381 … 420) and 12 are faster (most: …)`; empty if none is decided."""
    parts: list[str] = []
    for decision in (Decision.SLOWER, Decision.FASTER):
        own = sorted((row for row in rows if row.decision is decision), key=lambda row: -abs(row.shift or 0.0))
        if own:
            verb, most = ("is", "") if len(own) == 1 else ("are", "most: ")
            whole, row = "" if parts else f" {of}", own[0]
            bounds = sorted(abs(bound) for bound in (row.shift_low, row.shift_high) if bound is not None)
            around = f", {interval(displayed(bounds[0], row.unit), displayed(bounds[-1], row.unit))}" if bounds else ""
            place = f"{row.target} from {row.region}" if with_region else row.target
            size = f"{number(displayed(abs(row.shift or 0.0), row.unit))} {display_unit(row.unit)}"
            parts.append(f"{len(own)}{whole} {verb} {decision} ({most}{place} by {size}{around})")
    return " and ".join(parts)


def _present(incidents: Sequence[Incident], vantages: VantageList | None, *, newest_at: int, now_at: int) -> str:
    """The open incidents and the vantages that do not report, or those at the end of the data if these are old."""
    is_stale = now_at - newest_at > _STALE_US
    when = f"At {moment(newest_at, now_at=now_at)} UTC, the newest sample" if is_stale else "Now"
    rows = vantages.vantages if vantages and not is_stale else ()
    away = (Liveness.LATE, Liveness.SILENT, Liveness.STOPPED)
    events = [f"{row.name} in {row.region}: {row.reason}" for row in rows if row.liveness in away]
    lasting = [one for one in incidents if one.recovered_at is None]
    events += [f"{alerts.open_incident(one)}, since {moment(one.first_failed_at, now_at=now_at)}" for one in lasting]
    if not events:
        ended = max((one.recovered_at for one in incidents if one.recovered_at is not None), default=None)
        last = "" if ended is None else f"; the last one ended at {moment(ended, now_at=now_at)} UTC"
        return f"{when}: no ongoing incident{last}."
    more = f"; and {len(events) - _MOST} more below" if len(events) > _MOST else ""
    return f"{when}: {'; '.join(events[:_MOST])}{more}."


def _missing(asked: Questions, found: _Answers) -> list[str]:
    """The reasons for the absence of a comparison, with the remedies; none if there is a comparison."""
    compared, fleet = found.differences, found.vantages
    if compared is not None and any(row.shift is not None for row in compared.differentials):
        return []
    reasons = [] if asked.plan.plan_version else ["No plan is applied: isochrone-collector apply plan.yaml."]
    if fleet is not None and not fleet.vantages:
        reasons.append("No agent has reported yet: start one in each region with isochrone-agent run.")
    measured = sorted({row.region for row in found.coverage.coverage if row.recorded}) if found.coverage else []
    absent = compared.missing if compared is not None else ()
    if not measured:
        newest = max((row.newest_sample_at or 0 for row in fleet.vantages), default=0) if fleet else 0
        how_old = f"the newest sample is {age(newest, now_at=asked.now_at)} old: use a longer --window"
        window = between(asked.selection.window)
        reasons.append(f"No samples between {window}{f'; {how_old}' if newest else ''}.")
    elif not found.matrix.baseline:
        reasons.append("There is no baseline region to compare with: choose one with --baseline.")
    elif not absent:
        reasons.append(f"Too few rounds for a comparison of {', '.join(measured)}: 6 rounds of each target are needed.")
    return [*reasons, *(f"{one.sentence[:1].upper()}{one.sentence[1:]}." for one in absent[:_MOST])]


def render_markdown(report: Report) -> str:
    """The Markdown text of a report: the verdict, then the tables of the commands one after the other."""
    blocks = [
        f"# {escaped(report.title)}",
        *(f"**{escaped(sentence)}**" for sentence in report.verdict if sentence),
        "\n".join(f"- {name}: {escaped(text)}" for name, text in report.facts),
    ]
    for section in report.sections:
        blocks.append(f"## {section.title}")
        blocks += [f"> {escaped(section.missing)}"] if section.missing else []
        blocks += [markdown.whole(page, RenderOptions()).rstrip("\n") for page in section.pages]
    blocks.append("## Method and confidence")
    blocks += [f"**{name}.** {escaped(text)}" for name, text in METHOD.items()]
    return "\n\n".join([*blocks, f"*{escaped(report.provenance)}*"]) + "\n"
