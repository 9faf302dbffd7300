"""Golden files of every answer in every format, in `golden/`.

A change of a golden file is a change of the interface of `isochrone`. For JSON and CSV it needs a new schema version
unless it only adds fields. To update the files: `PYTHONPATH=tests python tests/unit/client/pages/test_golden.py`.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from fixtures.fake_collector import (
    COVERAGE,
    DIFFERENTIALS,
    NOW_AT,
    SAMPLES,
    SPEND,
    STANDINGS,
    TARGETS,
    VANTAGES,
    WINDOW,
)
from isochrone_client.commands import context
from isochrone_client.configuration import Configuration, Context, Defaults
from isochrone_client.demo.scenario import Comparison, truth_page
from isochrone_client.live_view.answers import SCHEMA, snapshot
from isochrone_client.pages import (
    alerts,
    differentials,
    explanation,
    fleet,
    latency_targets,
    leaderboard,
    samples,
    simulations,
    status,
)
from isochrone_client.pages import routes as route_pages
from isochrone_client.render import OUTPUTS, renderer
from isochrone_client.render.page import Page, RenderOptions, select_fields
from isochrone_wire.answers import Decision, DifferentialList, Metric, Order
from isochrone_wire.fleet import CoverageList, Liveness, SpendList
from isochrone_wire.insights import (
    AlertKind,
    Eligible,
    LatencyBudgetList,
    Leaderboard,
    RegionCostList,
    SimulationList,
    TierList,
)
from isochrone_wire.model import Outcome
from isochrone_wire.queries.differential_order import select_rows
from isochrone_wire.routes import ChangeKind, RouteEventList
from testdata import insights
from testdata.client_answers import ANSWERS as LIVE_ANSWERS
from testdata.client_answers import difference
from testdata.routes import EVENTS, EXPLANATION, TABLES

GLOSSARY = Path(__file__).parents[4] / "docs" / "glossary.md"
GOLDEN = Path(__file__).parent / "golden"
OTHERS = tuple(output for output in OUTPUTS if output != "table")
SUFFIX_OF = {"table": "txt", "json": "json", "csv": "csv", "markdown": "md"}
ANSWER = DifferentialList(window=WINDOW, differentials=DIFFERENTIALS)
PAGES: dict[str, Page[Any]] = {
    "diff": differentials.page(ANSWER, select_rows(ANSWER), metric=Metric.TTFT, now_at=NOW_AT),
    "leaderboard": leaderboard.page(Leaderboard(window=WINDOW, standings=STANDINGS)),
    **{
        f"leaderboard-{order}": leaderboard.page(Leaderboard(window=WINDOW, standings=STANDINGS, order=order))
        for order in (Order.E2E, Order.TOKENS_PER_USD, Order.SUCCESS)
    },
    "region-costs": leaderboard.best_page(
        RegionCostList(window=WINDOW, costs=insights.REGION_COSTS), metric=Metric.TTFT
    ),
    "budgets": latency_targets.page(LatencyBudgetList(window=WINDOW, budgets=insights.LATENCY_BUDGETS)),
    "budgets-voice": latency_targets.page(LatencyBudgetList(window=WINDOW, budgets=insights.LATENCY_BUDGETS[:4])),
    "tiers": leaderboard.tiers_page(TierList(window=WINDOW, tiers=insights.TIERS)),
    "simulate": simulations.page(
        SimulationList(window=WINDOW, members=insights.MEMBERS, simulations=insights.SIMULATIONS)
    ),
    "targets": fleet.targets_page(TARGETS),
    "samples": samples.page(SAMPLES, window=WINDOW, now_at=NOW_AT),
    "coverage": fleet.coverage_page(CoverageList(window=WINDOW, coverage=COVERAGE), now_at=NOW_AT),
    "regions": fleet.vantages_page(VANTAGES),
    "watch": snapshot(LIVE_ANSWERS, sort="name", width=100),
    "drift": alerts.drift_page(insights.DRIFT),
    "alerts": alerts.page(insights.ALERTS),
    "incidents": alerts.incidents_page(insights.INCIDENTS, past=True),
    "incident": alerts.incident_page(insights.INCIDENTS.incidents[0]),
    "status": status.page(insights.STATUS, now_at=NOW_AT),
    "series": samples.series_page(insights.SERIES, now_at=NOW_AT),
    "series-goodput": samples.series_page(insights.SERIES_WITH_GOODPUT, now_at=NOW_AT),
    "series-distribution": samples.series_page(insights.SERIES_WITH_DISTRIBUTION, now_at=NOW_AT),
    "limits": fleet.rate_limits_page(insights.RATE_LIMITS, now_at=NOW_AT),
    "spend": fleet.spend_page(SpendList(spend=SPEND)),
    "routes": route_pages.page(TABLES, now_at=NOW_AT),
    "routes-watch": route_pages.changes_page(TABLES, now_at=NOW_AT),
    "routes-history": route_pages.events_page(RouteEventList(window=WINDOW, events=EVENTS), now_at=NOW_AT),
    "route-explanation": route_pages.explanation_page(EXPLANATION, now_at=NOW_AT),
}


# Pages for people only, and pages as wide as those of the demo.
NAMES = ("deepseek/deepseek-v4-flash", "meta-llama/llama-3.3-70b-versatile", "qwen/qwen3.5-397b-a17b", "groq/qwen3-8b")
WIDE = DifferentialList(
    window=WINDOW,
    differentials=tuple(
        replace(
            DIFFERENTIALS[place], target=name, model=name.partition("/")[2], network_shift=network, server_shift=-1e5
        )
        for name, place, network in zip(NAMES, (0, 1, 1, 2), (4.0, -12.0, 0.0, 3.0), strict=True)
    ),
)
USES = ("edge", "translation", "voice", "code", "chat", "web", "inline", "step", "agent")
ALL_USES = tuple(
    replace(insights.LATENCY_BUDGETS[place % 4], target=name, region="us-east-2", use=use)
    for place, name in enumerate(NAMES)
    for use in USES
)
EXPLAINED = DifferentialList(window=WINDOW, differentials=DIFFERENTIALS[:1])
TRUTH = tuple(
    Comparison(
        model="kimi-k2.5",
        region=region,
        true_us=true_us,
        measured=difference(-120.74, 3.26, 0.94, target="moonshot/kimi-k2.5", region=region),
    )
    for region, true_us in (("ap-southeast-1", -120_000), ("eu-central-1", -121_000))
)
CONTEXTS = (
    Context(
        name="prod",
        collector="collector.eu.example:4600",
        identity=Path("/home/someone/.config/isochrone/prod.identity.json"),
        defaults=Defaults(output="json", timeout=5.0, baseline="us-east-2"),
    ),
    Context(name="lab", collector="127.0.0.1:4700"),
)
SCREENS: dict[str, Page[Any]] = PAGES | {
    "diff-wide": differentials.page(WIDE, WIDE.differentials, metric=Metric.TTFT, now_at=NOW_AT),
    "budgets-wide": latency_targets.page(LatencyBudgetList(window=WINDOW, budgets=ALL_USES)),
    "explain": explanation.explanation_page(EXPLAINED, now_at=NOW_AT),
    "phases": explanation.phases_page(EXPLAINED),
    "origins": differentials.phases_page(EXPLAINED),
    "truth": truth_page(TRUTH, load=2.5, cores=2),
    "contexts": context.contexts_page(CONTEXTS, Configuration(current="prod")),
    "fields": select_fields(PAGES["leaderboard"], ("target", "n", "region", "ttft_p50_us", "success", "model")),
}
WIDTHS = (80, 100, 140)
LEFT_OUT = "left out, left out at columns: 0 or – in every row: --wide shows all –: not known"  # noqa: RUF001  # the sign for unknown


def golden_file(name: str, output: str) -> Path:
    return GOLDEN / f"{name}.{SUFFIX_OF[output]}"


def screen(name: str, width: int) -> str:
    return renderer("table").whole(SCREENS[name], RenderOptions(width=width, wide=False))


def screens(name: str) -> str:
    return "\n".join(f"{'-' * (width - 11)} {width} columns\n{screen(name, width)}" for width in WIDTHS)


def programs_text(name: str, output: str) -> str:
    return renderer(output).whole(PAGES[name], RenderOptions())


@pytest.mark.parametrize("name", SCREENS)
def test_screens_match_the_golden_files(name: str) -> None:
    """On screens of 80, 100 and 140 columns an answer has exactly the same text as in the last release."""
    assert screens(name) == golden_file(name, "table").read_text()


@pytest.mark.parametrize("output", OTHERS)
@pytest.mark.parametrize("name", PAGES)
def test_answers_match_the_golden_files(name: str, output: str) -> None:
    """The same answer has exactly the same text as in the last release."""
    assert programs_text(name, output) == golden_file(name, output).read_text()


UNIT = re.compile(r"(^|[_.])(us|at|ms|usd|percent|tokens|requests|per_second|per_usd|24h)([_.]|$)|usd_per_m_|^hour$")
COUNTS = {
    *("n", "n_eff", "n_before", "n_after", "baseline_n", "region_n", "attempts", "rounds", "rounds_needed"),
    *("rounds_missed", "planned", "recorded", "failed", "throttled", "skipped", "switches", "targets", "classes"),
    *("outcomes", "readings", "finished", "ledgered", "spool_depth", "quarantined", "dropped", "stalls", "chunks"),
    *("output_chars", "retransmits", "frames_unknown", "joint_rounds", "vantages", "concurrency", "missing_keys"),
    *("refused_targets", "rank", "rank_low", "rank_high", "number", "generation", "id", "target_id", "plan_version"),
    *("refused_plan_version", "http_status"),
}
SHARES = {
    *("share", "success", "goodput", "failures", "coverage", "weight", "weights", "max_weight", "unassigned"),
    *("correlation", "faster_probability", "p_value", "q_value", "stall_lift", "usd_factor", "min_success"),
    *("min_goodput", "temperature", "left_out"),
}
OF_KIND = {"remaining", "limit", "lowest", "per_minute", "per_minute_low", "per_minute_high"}
DEGREES = {"latitude", "longitude"}


def numbers_in(page: Page[Any]) -> set[str]:
    """The headings of the columns of CSV that have numbers; a list of objects has its own names."""
    records = list(page.iter_records())

    def is_number(value: object) -> bool:
        values = value if isinstance(value, list) else value.values() if isinstance(value, dict) else [value]
        return any(isinstance(one, int | float) and not isinstance(one, bool) for one in values)

    return {field.header for field in page.fields if any(is_number(field.value(record)) for record in records)}


@pytest.mark.parametrize("name", PAGES)
def test_every_number_in_csv_has_a_unit(name: str) -> None:
    """A column of numbers has its unit in the heading or in the row; otherwise it is a count or a share."""
    headers = {field.header for field in PAGES[name].fields}
    known = COUNTS | SHARES | DEGREES
    known |= {"before", "after", "shift", "shift_low", "shift_high"} if "unit" in headers else set()
    known |= OF_KIND if "kind" in headers else set()
    without = {header for header in numbers_in(PAGES[name]) if not UNIT.search(header)}
    assert {header for header in without if not known & {*header.split(".")}} == set()


@pytest.mark.parametrize("name", SCREENS)
def test_every_line_fits_and_no_word_is_broken(name: str) -> None:
    """On every screen from 60 to 200 columns, each line fits, and each word on the screen is one of the page."""
    known = {word for text in texts_of(SCREENS[name]) for word in text.split()}
    for width in range(60, 201):
        text = screen(name, width)
        assert max(map(cell_len, text.splitlines())) <= width
        unknown = set(text.split()) - known - {str(width)}
        too_long = [word for word in known if len(word) > width]
        assert all(any(part in word for word in too_long) for part in unknown), (width, unknown)


def texts_of(page: Page[Any]) -> Iterator[str]:
    """Everything that a page can show, and the sentence that names the columns left out."""
    yield from (page.title, *page.notes, LEFT_OUT)
    for column in page.columns:
        yield from (f"{column.heading} {column.unit}", f"{column.heading}, {column.unit}")
        yield from (f"{name}{end}" for name in (column.name, column.title, column.short_of) for end in ",;")
        yield from (column.short(row) for row in page.rows if column.short is not None)
    for table in page.tables():
        yield table.heading
        yield from (cell for cells in table.cells for cell in cells)


@pytest.mark.parametrize("name", SCREENS)
def test_wide_shows_everything(name: str) -> None:
    """With --wide, every column is shown, every row is one line, and nothing is left out."""
    page = SCREENS[name]
    text = renderer("table").whole(page, RenderOptions(width=60, wide=True))
    assert "--wide" not in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    for table in page.tables():
        for cells in table.cells:
            kept = [cell for cell, column in zip(cells, page.columns, strict=True) if not column.once]
            assert any(" ".join(" ".join(kept).split()) in line for line in lines)


def test_the_glossary_defines_every_word_of_a_table() -> None:
    """Every heading has an entry in the glossary, and so has every word for a decision, state, outcome or change."""
    entries = re.findall(r"^\|(.*?)\|", GLOSSARY.read_text(), re.MULTILINE)
    headings = {word for entry in entries for word in re.findall(r"`([^`]+)`", entry)}
    boards = [leaderboard.page(Leaderboard(window=WINDOW, standings=STANDINGS, order=order)) for order in Order]
    pages = [*boards, *(page for name, page in SCREENS.items() if name != "fields")]
    shown = {column.name for page in pages if page.schema != SCHEMA for column in page.columns}
    # The columns of a matrix have the names of regions.
    assert not (shown | {"ttft", "difference"}) - headings - {""}
    words = set(re.findall(r"`([^`]+)`", GLOSSARY.read_text()))
    kinds = (Decision, ChangeKind, AlertKind, Eligible)
    states = {str(word) for kind in kinds for word in kind} | {state.phrase for state in Liveness}
    missing = (states | {"all accounted for", "lost", "duplicate", "best"}) - words
    assert not missing
    assert {str(one) for one in Outcome if not one.startswith("skipped")} <= words


if __name__ == "__main__":
    for screen_name in SCREENS:
        golden_file(screen_name, "table").write_text(screens(screen_name))
    for page_name in PAGES:
        for output_name in OTHERS:
            golden_file(page_name, output_name).write_text(programs_text(page_name, output_name))
