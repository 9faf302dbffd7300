"""An agent without a collector: it runs a plan file, exports what it measures, and stores no samples."""

import time
from functools import partial
from pathlib import Path

import pytest

from fixtures.agent import Agent, StartAgent
from fixtures.prometheus import StartPrometheus
from fixtures.simulator import Simulator
from testdata import preforked
from testdata.waiting import eventually

METRICS = ("--metrics-listen", "127.0.0.1:0")


def write_plan(path: Path, simulator: Simulator, model: str = "fault-500", budget: str = "") -> None:
    path.write_text(
        "baseline: local\nevery: 500ms\n"
        f"targets: [{{provider: sim, model: {model}, base_url: '{simulator.base_url}'}}]\n{budget}"
    )


def probes(metrics: dict[str, float], outcome: str, model: str = "fault-500") -> float:
    labels = f'model="{model}",outcome="{outcome}",provider="sim",region="local",target="sim/{model}"'
    return metrics.get(f"isochrone_probes_total{{{labels}}}", 0)


def test_a_plan_file_is_run_and_exported(start_agent: StartAgent, fault_simulator: Simulator, tmp_path: Path) -> None:
    """Samples are counted and not stored, a changed file is followed, and an invalid one is refused."""
    plan = tmp_path / "plan.yaml"
    write_plan(plan, fault_simulator)
    agent = start_agent(vantage="x", more=("--plan", str(plan), *METRICS))
    eventually(20, lambda: probes(agent.scrape(), "http_error") >= 3, "three samples")
    metrics = agent.scrape()
    assert metrics["isochrone_plan_version"] == 1
    assert not [name for name in metrics if name.startswith(("isochrone_spool", "isochrone_pushes"))]
    write_plan(plan, fault_simulator, model="fault-429")
    eventually(20, lambda: probes(agent.scrape(), "throttled", "fault-429") >= 1, "the changed plan runs")
    assert probes(agent.scrape(), "http_error") == 0, "a target that left the plan has no series"
    plan.write_text("targets: 7\n")
    eventually(20, lambda: agent.scrape()["isochrone_plan_refused_version"] == 3, "the invalid file is refused")
    before = probes(agent.scrape(), "throttled", "fault-429")
    eventually(20, lambda: probes(agent.scrape(), "throttled", "fault-429") > before, "the previous plan goes on")
    assert agent.stop() == 0
    assert agent.recorded() == agent.waiting() == 0


def test_a_budget_holds_across_restarts(start_agent: StartAgent, fault_simulator: Simulator, tmp_path: Path) -> None:
    """The spend of the day is stored although samples are not."""
    plan = tmp_path / "plan.yaml"
    write_plan(plan, fault_simulator, budget="budgets: [{provider: sim, requests_per_day: 2}]\n")
    for expected in (2, 0):
        agent = start_agent(vantage="x", more=("--plan", str(plan), *METRICS))
        eventually(20, partial(is_over_budget, agent), "the budget is spent")
        assert probes(agent.scrape(), "http_error") == expected
        assert agent.stop() == 0


def is_over_budget(agent: Agent) -> bool:
    return probes(agent.scrape(), "skipped_budget") >= 1


def test_prometheus_reads_an_agent(
    start_agent: StartAgent, start_prometheus: StartPrometheus, fault_simulator: Simulator, tmp_path: Path
) -> None:
    """A quantile of the time to first token can be graphed from a single agent."""
    plan = tmp_path / "plan.yaml"
    write_plan(plan, fault_simulator, model="fault-none")
    agent = start_agent(vantage="x", more=("--plan", str(plan), *METRICS))
    eventually(20, lambda: "metrics.started" in agent.log(), "the metrics are served")
    prometheus = start_prometheus(agent.metrics_address)
    median = "histogram_quantile(0.5, sum by (le) (rate(isochrone_ttft_seconds_bucket[1m])))"
    eventually(20, lambda: bool(prometheus.values(median)), "a median")
    assert 0 < prometheus.values(median)[0] < 5
    assert agent.stop() == 0


@pytest.mark.parametrize(
    ("plan", "more", "expected"),
    [
        ("targets: 7\n", (), "line 1"),
        (None, (), "cannot be read"),
        ("targets: 7\n", ("--collector", "127.0.0.1:4600"), "--plan runs without a collector"),
    ],
)
def test_mistakes_are_errors(tmp_path: Path, plan: str | None, more: tuple[str, ...], expected: str) -> None:
    """Exit code 2 and a message, before anything is probed."""
    path = tmp_path / "plan.yaml"
    if plan is not None:
        path.write_text(plan)
    began = time.monotonic()
    done = preforked.run("isochrone_agent", "run", "--plan", str(path), "--data-dir", str(tmp_path / "d"), *more)
    assert done.returncode == 2, done.stderr
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    assert time.monotonic() - began < 30
