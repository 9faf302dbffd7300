"""Golden files of every answer in every format, in `golden/`.

A change of a golden file is a change of the interface of `isochrone`. For JSON and CSV it needs a new schema version
unless it only adds fields. To update the files: `PYTHONPATH=tests python tests/unit/client/pages/test_golden.py`.
"""

from pathlib import Path
from typing import Any

import pytest

from fix_observatory import COVERAGE, DIFFERENTIALS, NOW_AT, SAMPLES, SPEND, STANDINGS, TARGETS, VANTAGES, WINDOW
from isochrone_client.pages import (
    alerts,
    coverage,
    differentials,
    drift,
    latency_targets,
    leaderboard,
    region_costs,
    regions,
    route_changes,
    route_explanation,
    routes,
    samples,
    simulations,
    spend,
    targets,
    tiers,
)
from isochrone_client.render import OUTPUTS, renderer
from isochrone_client.render.page import Page, RenderOptions
from isochrone_wire.answers import CoverageList, DifferentialList, Leaderboard, Metric, Order, SpendList
from isochrone_wire.insights import LatencyBudgetList, RegionCostList, SimulationList, TierList
from isochrone_wire.routes import RouteEventList
from testdata.insights import ALERTS, DRIFT, LATENCY_BUDGETS, MEMBERS, REGION_COSTS, SIMULATIONS, TIERS
from testdata.routes import EVENTS, EXPLANATION, TABLES

GOLDEN = Path(__file__).parent / "golden"
SUFFIX_OF = {"table": "txt", "json": "json", "csv": "csv", "markdown": "md"}
ANSWER = DifferentialList(window=WINDOW, differentials=DIFFERENTIALS)
PAGES: dict[str, Page[Any]] = {
    "diff": differentials.page(
        ANSWER, differentials.select_rows(ANSWER, sort="shift", only=None), metric=Metric.TTFT, now_at=NOW_AT
    ),
    "leaderboard": leaderboard.page(Leaderboard(window=WINDOW, standings=STANDINGS)),
    **{
        f"leaderboard-{order}": leaderboard.page(Leaderboard(window=WINDOW, standings=STANDINGS, order=order))
        for order in (Order.E2E, Order.TOKENS_PER_USD, Order.SUCCESS)
    },
    "region-costs": region_costs.page(RegionCostList(window=WINDOW, costs=REGION_COSTS), metric=Metric.TTFT),
    "budgets": latency_targets.page(LatencyBudgetList(window=WINDOW, budgets=LATENCY_BUDGETS)),
    "budgets-voice": latency_targets.page(LatencyBudgetList(window=WINDOW, budgets=LATENCY_BUDGETS[:4])),
    "tiers": tiers.page(TierList(window=WINDOW, tiers=TIERS)),
    "simulate": simulations.page(SimulationList(window=WINDOW, members=MEMBERS, simulations=SIMULATIONS)),
    "targets": targets.page(TARGETS),
    "samples": samples.page(SAMPLES, window=WINDOW, now_at=NOW_AT),
    "coverage": coverage.page(CoverageList(window=WINDOW, coverage=COVERAGE), now_at=NOW_AT),
    "regions": regions.page(VANTAGES),
    "drift": drift.page(DRIFT),
    "alerts": alerts.page(ALERTS),
    "spend": spend.page(SpendList(spend=SPEND)),
    "routes": routes.page(TABLES, now_at=NOW_AT),
    "routes-watch": route_changes.page(TABLES, now_at=NOW_AT),
    "routes-history": route_changes.events_page(RouteEventList(window=WINDOW, events=EVENTS), now_at=NOW_AT),
    "route-explanation": route_explanation.page(EXPLANATION, now_at=NOW_AT),
}


def golden_file(name: str, output: str) -> Path:
    return GOLDEN / f"{name}.{SUFFIX_OF[output]}"


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("name", PAGES)
def test_answers_match_the_golden_files(name: str, output: str) -> None:
    """The same answer has exactly the same text as in the last release."""
    assert renderer(output).whole(PAGES[name], RenderOptions()) == golden_file(name, output).read_text()


if __name__ == "__main__":
    for page_name, page in PAGES.items():
        for output_name in OUTPUTS:
            golden_file(page_name, output_name).write_text(renderer(output_name).whole(page, RenderOptions()))
