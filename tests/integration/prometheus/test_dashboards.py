"""The dashboards and rules of deploy/ on a real Prometheus that scrapes a real collector."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from fixtures.collector import Collector, StartCollector
from fixtures.prometheus import Prometheus, StartPrometheus
from fixtures.webhook import SECRET, Receiver
from isochrone_collector import webhook_signature
from isochrone_wire.model import Batch, Outcome, RateLimit, Sample, Vantage
from testdata.pushed_rounds import FIRST, PLAN, THIRD, US, Fleet, rounds_until, without
from testdata.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
DASHBOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"
LIMITED = Vantage(name="us-3", region=US)
# What Grafana would insert for the variables.
VALUES = {"window": "1m", "region": ".*", "target": ".*", "client_region": ".*", "route": ".*"}


def expressions() -> dict[str, str]:
    """Return the query of every panel, by dashboard, panel and letter."""
    found = {}
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                name = f"{path.stem}: {panel['title']} {target['refId']}"
                found[name] = re.sub(r"\$(\w+)", lambda match: VALUES[match[1]], target["expr"])
    return found


def test_dashboards_are_complete() -> None:
    """Four dashboards with unique ids, whose queries use declared variables only; every panel has its place."""
    assert [path.stem for path in DASHBOARDS] == ["fleet", "overview", "routes", "target"]
    documents: list[dict[str, Any]] = [json.loads(path.read_text()) for path in DASHBOARDS]
    assert len({one["uid"] for one in documents}) == len(documents)
    for document in documents:
        declared = {variable["name"] for variable in document["templating"]["list"]}
        panels = document["panels"]
        used = set(re.findall(r"\$\{?(\w+)", json.dumps(panels)))
        assert used <= declared, document["uid"]
        places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
        assert len(places) == len({panel["id"] for panel in panels}) == len(panels)


def test_every_panel_has_data(
    start_collector: StartCollector, start_prometheus: StartPrometheus, receiver: Receiver, tmp_path: Path
) -> None:
    """While samples arrive, the query of each panel returns numbers, Prometheus evaluates each rule, and the condition
    of one alert is true: that of the incident of the target that fails.
    """
    secret = tmp_path / "alert.secret"
    secret.write_text(webhook_signature.format_secret(SECRET))
    secret.chmod(0o600)
    told = ["--alert-url", receiver.address, "--alert-secret-file", str(secret)]
    collector = start_collector(more=told, data_dir=tmp_path / "collector")  # its own database, whose disk is watched
    prometheus = start_prometheus(collector.http.removeprefix("http://"), rules=[RULES])
    collector.call.apply(PLAN.replace("name: chat", "name: chat\n    slo: {class: chat}"))
    fleet = Fleet({target.name: target.id for target in collector.call.targets().targets})
    rounds = rounds_until(time.time_ns() // 1000, 60)
    fleet.push_rounds(collector.call, rounds[:40])
    missing = ["all"]
    # The incident opens with the newest rounds, and is a metric some seconds later.
    for at in (*rounds[40:], *[None] * 30):
        if at is not None:
            fleet.push_rounds(collector.call, [at], without(THIRD))
            push_limited(collector, fleet.targets[FIRST], at)
        time.sleep(0.7)
        missing = [name for name, expression in expressions().items() if not prometheus.values(expression)]
        if not missing:
            break
    assert missing == []
    eventually(10, lambda: rules_are_evaluated(prometheus), "every rule is evaluated")
    active = 'ALERTS{alertname="IsochroneIncidentOpen"}'
    eventually(30, lambda: bool(prometheus.values(active)), "the alert of the incident is active")
    assert {one["metric"]["target"] for one in prometheus.api("query", query=active)["result"]} == {THIRD}


def push_limited(collector: Collector, target_id: int, at: int) -> None:
    """Push an answer with every metric and rate limits."""
    answered = Sample(
        target_id=target_id,
        round_at=at,
        dispatched_at=at,
        outcome=Outcome.OK,
        ttft_us=200_000,
        ttfat_us=300_000,
        ratelimit=RateLimit(limit_requests=100, remaining_requests=70, limit_tokens=1000, remaining_tokens=900),
    )
    collector.call.push(Batch(vantage=LIMITED, epoch=2, seq=at, samples=(answered,)))


def rules_are_evaluated(prometheus: Prometheus) -> bool:
    rules = [rule for group in prometheus.api("rules")["groups"] for rule in group["rules"]]
    assert [rule["name"] for rule in rules if rule["health"] == "err"] == []
    return bool(rules) and all(rule["health"] == "ok" for rule in rules)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_name_no_machine(path: Path) -> None:
    """The data source is a variable, so that a dashboard can be imported anywhere."""
    panels = json.loads(path.read_text())["panels"]
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
