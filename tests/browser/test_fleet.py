"""The fleet on the live page in a real browser, with a real agent: states, coverage and spend."""

from pathlib import Path

import pytest

from fixtures.agent import StartAgent
from fixtures.browser import Browser
from fixtures.collector import Collector, StartCollector
from fixtures.simulator import Simulator
from isochrone_client.formats import number
from isochrone_collector.clock import now_at
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import MINUTE_US
from testdata.reading import printed_rows
from testdata.waiting import eventually

# A token of the second target costs so much that the sum has cents.
PLAN = """
baseline: us-east-2
every: 500ms
targets:
  - {{provider: near, model: qwen3-8b, base_url: "{base_url}"}}
  - provider: far
    model: qwen3-8b
    base_url: "{base_url}"
    price: {{usd_per_m_input: 9000, usd_per_m_output: 9000}}
"""
ROUNDS = 6
# The rows of each table by the first word of its caption: cells by the heading, without the small print.
TABLES = """
(() => {
  const large = (cell) => [...cell.childNodes].filter((e) => e.nodeName !== 'SMALL').map((e) => e.textContent).join('');
  return Object.fromEntries([...document.querySelectorAll('main table')].map((table) => {
    const names = [...table.tHead.rows[0].cells].map(large);
    return [table.caption.textContent.match(/\\w+/)[0], [...table.tBodies[0].rows].map((row) =>
      Object.fromEntries([...row.cells].map((cell, place) => [names[place], large(cell)])))];
  }));
})()
"""


@pytest.fixture
def measured(
    start_collector: StartCollector, start_agent: StartAgent, fault_simulator: Simulator, tmp_path: Path
) -> Collector:
    """A collector with the samples of an agent that has stopped, so that its numbers change no more."""
    collector = start_collector()
    collector.apply(PLAN.format(base_url=fault_simulator.base_url), tmp_path)
    agent = start_agent(vantage="ohio-1", region="us-east-2", collector=collector.address)

    def has_rounds() -> bool:
        return [row["recorded"] >= ROUNDS for row in printed_rows(collector.http_address, "coverage")] == [True, True]

    eventually(20, has_rounds, "rounds of both targets")
    assert agent.stop() == 0
    return collector


def test_the_fleet_has_the_numbers_of_the_commands(browser: Browser, measured: Collector) -> None:
    """Each vantage has its state, each target the share of its planned rounds, each provider what it costs today."""
    until_at = now_at()
    from_at = until_at - MINUTE_US
    browser.open(f"{measured.http}/fleet?from={rfc3339(from_at)}&until={rfc3339(until_at)}", width=1280)
    browser.until("document.querySelectorAll('main table').length === 3")
    shown = browser.evaluate(TABLES)

    (vantage,) = printed_rows(measured.http_address, "vantages")
    (row,) = shown["Vantages"]
    assert [row[name] for name in ("vantage", "region", "state", "spool", "plan", "agent")] == [
        *(vantage[name] for name in ("name", "region", "liveness")),
        *(str(vantage[name]) for name in ("spool_depth", "plan_version", "agent_version")),
    ]
    assert row["clock"] == " ± ".join(
        number(vantage[f"clock_{name}_us"] / 1000, signed=name == "offset", decimals=1)
        for name in ("offset", "uncertainty")
    )
    assert row["samples"] == "all accounted for"

    coverage = {row["target"]: row for row in shown["Coverage"]}
    found = printed_rows(measured.http_address, "coverage", "--window", f"{rfc3339(from_at)}..{rfc3339(until_at)}")
    assert len(found) == 2
    for each in found:
        assert each["planned"] >= ROUNDS
        share = min(100, 100 * each["recorded"] / each["planned"])
        assert float(coverage[each["target"]]["ohio-1"]) == pytest.approx(share, abs=0.1)

    spend = {row["provider"]: row["ohio-1"] for row in shown["Spend"]}
    costs = {row["provider"]: row["usd"] for row in printed_rows(measured.http_address, "coverage", "--spend")}
    assert costs["far"] > 0.01
    assert spend == {"near": "–", "far": f"{costs['far']:.2f}"}  # noqa: RUF001  # the dash of what is unknown
