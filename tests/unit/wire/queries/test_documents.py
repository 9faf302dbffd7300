"""Documents: one format for each class of answers, the same for every program."""

import importlib
from dataclasses import fields, replace

import pytest

from fixtures.fake_collector import COVERAGE, DIFFERENTIALS, SAMPLES, SPEND, STANDINGS, TARGETS, VANTAGES, WINDOW
from isochrone_wire.answers import DifferentialList
from isochrone_wire.fleet import CoverageList, SampleList, SpendList
from isochrone_wire.insights import LatencyBudgetList, Leaderboard, RegionCostList, SimulationList, TierList
from isochrone_wire.queries.documents import FORMATS, document
from isochrone_wire.routes import RouteEventList
from testdata.insights import (
    ALERTS,
    DRIFT,
    INCIDENTS,
    LATENCY_BUDGETS,
    MEMBERS,
    RATE_LIMITS,
    REGION_COSTS,
    SERIES,
    SIMULATIONS,
    STATUS,
    TIERS,
)
from testdata.routes import EVENTS

MODULES = ("answers", "fleet", "insights", "queries.series", "queries.status", "routes")
CLASSES = {
    name: cls for module in MODULES for name, cls in vars(importlib.import_module(f"isochrone_wire.{module}")).items()
}
ANSWERS = (
    ALERTS,
    DRIFT,
    CoverageList(window=WINDOW, coverage=COVERAGE),
    DifferentialList(window=WINDOW, differentials=DIFFERENTIALS),
    INCIDENTS,
    LatencyBudgetList(window=WINDOW, budgets=LATENCY_BUDGETS),
    Leaderboard(window=WINDOW, standings=STANDINGS),
    RATE_LIMITS,
    RegionCostList(window=WINDOW, costs=REGION_COSTS),
    RouteEventList(window=WINDOW, events=EVENTS),
    SampleList(window=WINDOW, samples=SAMPLES),
    SERIES,
    SimulationList(window=WINDOW, members=MEMBERS, simulations=SIMULATIONS),
    SpendList(spend=SPEND),
    STATUS,
    TARGETS,
    TierList(window=WINDOW, tiers=TIERS),
    VANTAGES,
)


def test_formats_are_of_answers() -> None:
    """Each format names a class of answers and the fields that it has."""
    for name, found in FORMATS.items():
        assert {found.rows, *found.omitted} <= {field.name for field in fields(CLASSES[name])}, name
    assert {type(answer).__name__ for answer in ANSWERS} == set(FORMATS)
    assert len({found.schema for found in FORMATS.values()}) == len(FORMATS)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_a_document_has_every_row(answer: object) -> None:
    """The schema comes first, the rows come last, and each row of the answer is one of them."""
    found, written = FORMATS[type(answer).__name__], document(answer)
    assert [*written] == ["schema", *found.facts(answer), "rows"]
    assert len(written["rows"]) == len(getattr(answer, found.rows)) > 0


def test_rows_have_an_order() -> None:
    """Rows are sorted, whatever the order of the answer is."""
    one = document(VANTAGES)
    assert one == document(replace(VANTAGES, vantages=VANTAGES.vantages[::-1]))
    assert [row["region"] for row in one["rows"]] == sorted(row["region"] for row in one["rows"])
    opened = [row["recovered_at"] is not None for row in document(INCIDENTS)["rows"]]
    assert opened == sorted(opened)


def test_ids_are_text() -> None:
    """An id is the text that commands take, also within a row, because JSON readers round large numbers."""
    rows = document(INCIDENTS)["rows"]
    assert all(row["id"].startswith("incident_") for row in rows)
    assert [one["id"][:8] for row in rows for one in row["silences"]][:1] == ["silence_"]


def test_a_sample_is_one_flat_object() -> None:
    """The fields of a sample are beside the names of its target and vantage, with the derived durations."""
    row = document(SampleList(window=WINDOW, samples=SAMPLES))["rows"][0]
    assert {"target", "vantage", "ttft_us", "ttft_cold_us", "quality"} <= set(row)
    assert "sample" not in row
