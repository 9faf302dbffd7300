"""The demo's plan and ground truth."""

import json
from typing import Any

import pytest

from isochrone_client.demo.ground_truth import Comparison, compared, page
from isochrone_client.demo.scenario import (
    BASELINE,
    EPISODE,
    FAULTS,
    ROUTES,
    SUGGESTIONS,
    VANTAGES,
    Model,
    World,
    control,
    plan_document,
    read_world,
)
from isochrone_wire.answers import Differential, DifferentialList, Metric, Window


def model(name: str, usd: float, *, source: str = "published") -> Model:
    """A model whose time to first token is 120 ms shorter from Singapore."""
    return Model(
        name=name,
        provider="acme",
        usd_per_m_output=usd,
        differential_us={"ap-southeast-1": -120_000},
        source={"ap-southeast-1": source},
    )


PLAIN: dict[str, Any] = {"usd_per_m_output": 1.0, "differential_us": {}, "source": {}}
MEMBERS = sorted({member for route in ROUTES for member in route.members})
WORLD = World(models=(model("dear", 3.0), model("cheap", 0.1), model("guessed", 1.0, source="assumed")))


def test_the_plan_measures_every_model_and_controls_by_the_cheapest() -> None:
    """Each model of the world is a target; the control target is the cheapest."""
    plan = json.loads(plan_document(WORLD))
    assert [target["model"] for target in plan["targets"]] == ["dear", "cheap", "guessed"]
    assert plan["control"] == control(WORLD) == "acme/cheap"
    assert plan["baseline"] == BASELINE in {vantage.region for vantage in VANTAGES}


def test_faults_are_of_providers_with_one_model_each() -> None:
    """The simulator gets an option per provider and region; the plan has a target that the world does not have."""
    options = " ".join(FAULTS.simulator_options)
    assert "--fault-episode stepfun eu-central-1 500 10 25" in options
    assert "--fault-episode stepfun us-east-2 500 25 10" in options
    assert options.count("--fault-episode bytedance") == len(VANTAGES)
    plan = json.loads(plan_document(WORLD, FAULTS.missing))
    assert plan["targets"][-1] == {"provider": "example", "model": "never-deployed", "workload": "demo"}
    assert plan["providers"]["example"] == plan["providers"]["acme"]
    assert control(WORLD) == "acme/cheap", "the control target is none of those that fail"


def test_routes_have_existing_members() -> None:
    """A route is in the plan if all its members are targets. The slowdown affects the first choice of one route only,
    starts after a demo of one minute, and affects no provider with a published difference.
    """
    models = [Model(**{**PLAIN, "provider": one.partition("/")[0], "name": one.partition("/")[2]}) for one in MEMBERS]
    plan = json.loads(plan_document(World(models=tuple(models))))
    assert [route["name"] for route in plan["routes"]] == [route.name for route in ROUTES]
    assert json.loads(plan_document(WORLD))["routes"] == []
    assert [route.name for route in ROUTES if EPISODE.provider in {one.partition("/")[0] for one in route.members}] == [
        "chat"
    ]
    assert ROUTES[1].members[0].startswith(f"{EPISODE.provider}/")
    assert EPISODE.after_seconds > 60
    assert EPISODE.provider not in {"deepseek", "qwen", "zhipu", "moonshot"}


def test_the_world_is_parsed() -> None:
    """The simulator's output becomes models with their true differences."""
    told = {
        "id": "dear",
        "provider": "acme",
        "usd_per_m_output": 3.0,
        "differential_us": {"ap-southeast-1": -120_000},
        "offset_source": {"ap-southeast-1": "published"},
    }
    assert read_world(json.dumps({"models": [told]})) == World(models=WORLD.models[:1])


def test_only_published_truths_are_compared() -> None:
    """Only published differences are compared with the measured ones; an assumed one proves nothing."""
    rows = tuple(
        Differential(
            target=f"acme/{one.name}",
            provider="acme",
            model=one.name,
            metric=Metric.TTFT,
            unit="us",
            baseline=BASELINE,
            region="ap-southeast-1",
            shift=-119_000.0,
        )
        for one in WORLD.models
    )
    found = compared(DifferentialList(window=Window(from_at=0, until_at=1), differentials=rows), WORLD)
    assert [(row.model, row.error_us) for row in found] == [("dear", 1000.0), ("cheap", 1000.0)]
    assert len(page(found, load=0.5, cores=2).rows) == 2


@pytest.mark.parametrize(("true_us", "verdict"), [(-119_000, "found"), (-130_000, "missed")])
def test_a_missed_truth_is_flagged(true_us: int, verdict: str) -> None:
    """The last table states whether the interval has the true difference, and a busy machine."""
    row = Comparison(model="m", region="r", shift=-120_000.0, low=-121_000.0, high=-118_000.0, true_us=true_us)
    calm, busy = page((row,), load=0.5, cores=2), page((row,), load=7.25, cores=2)
    assert [cells[-1] for table in calm.tables() for cells in table.cells] == [verdict]
    assert any(note.startswith("missed: ") for note in calm.notes) is (verdict == "missed")
    assert busy.notes[-1].startswith("this machine was busy: 7.2 processes wanted its 2 processors")


def test_suggestions_call_one_command() -> None:
    """The suggestions can be copied into a shell and fit a terminal."""
    assert all(line.startswith("isochrone ") and len(line) <= 100 for line in SUGGESTIONS)
