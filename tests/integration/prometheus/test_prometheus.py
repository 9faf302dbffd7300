"""The dashboards and rules of deploy/: on a real Prometheus with a real collector, and each rule on its fault."""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from fixtures.collector import Collector, StartCollector
from fixtures.prometheus import Prometheus, StartPrometheus
from fixtures.webhook import SECRET, Receiver
from isochrone_collector import webhook_signature
from isochrone_wire.model import Batch, Outcome, RateLimit, Sample, Vantage
from testdata.pushed_rounds import FIRST, PLAN, THIRD, US, Fleet, rounds_until, without
from testdata.waiting import BUSY, eventually

ROOT = Path(__file__).resolve().parents[3]
DASHBOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"
LIMITED = Vantage(name="us-3", region=US)
# What Grafana would insert for the variables.
VALUES = {"window": "1m", "region": ".*", "target": ".*", "client_region": ".*", "route": ".*"}


def expressions() -> dict[str, str]:
    found = {}
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                name = f"{path.stem}: {panel['title']} {target['refId']}"
                found[name] = re.sub(r"\$(\w+)", lambda match: VALUES[match[1]], target["expr"])
    return found


def test_dashboards_are_complete() -> None:
    """Four dashboards with unique ids and declared variables, also for the data source; every panel has its place."""
    assert [path.stem for path in DASHBOARDS] == ["fleet", "overview", "routes", "target"]
    documents: list[dict[str, Any]] = [json.loads(path.read_text()) for path in DASHBOARDS]
    assert len({one["uid"] for one in documents}) == len(documents)
    for document in documents:
        declared = {variable["name"] for variable in document["templating"]["list"]}
        panels = document["panels"]
        used = set(re.findall(r"\$\{?(\w+)", json.dumps(panels)))
        assert used <= declared, document["uid"]
        assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
        places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
        assert len(places) == len({panel["id"] for panel in panels}) == len(panels)


def test_every_panel_has_data(
    start_collector: StartCollector, start_prometheus: StartPrometheus, receiver: Receiver, tmp_path: Path
) -> None:
    """Each panel's query returns numbers, Prometheus evaluates each rule, its linter has nothing to say of the metrics,
    and only the incident's alert is true.
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
    for at in (*rounds[40:], *[None] * (30 * BUSY)):
        if at is not None:
            fleet.push_rounds(collector.call, [at], without(THIRD))
            push_limited(collector, fleet.targets[FIRST], at)
        time.sleep(0.7)
        missing = [name for name, expression in expressions().items() if not prometheus.values(expression)]
        if not missing:
            break
    assert missing == []
    eventually(10, lambda: rules_are_evaluated(prometheus), "every rule is evaluated")
    metrics = httpx.get(f"{collector.http}/metrics", trust_env=False).content
    lint = subprocess.run(["promtool", "check", "metrics"], input=metrics, capture_output=True, check=False)
    assert (lint.returncode, lint.stderr) == (0, b"")
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


needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool, of Debian's prometheus")

TARGET = 'region="us",target="sim/a",provider="sim",model="a"'
ROUTE = 'client_region="us",route="chat"'
# Minutes with one probe each; every fault begins after them.
QUIET = 90
# Series while everything is well: their first value, and what every minute adds.
HEALTHY: dict[str, tuple[float, float]] = {
    f'isochrone_probes_total{{{TARGET},outcome="ok"}}': (0, 1),
    f'isochrone_probes_total{{{TARGET},outcome="http_error"}}': (0, 0),
    f'isochrone_probes_total{{{TARGET},outcome="throttled"}}': (0, 0),
    f'isochrone_probes_total{{{TARGET},outcome="skipped_paused"}}': (0, 1),
    f"isochrone_last_success_timestamp_seconds{{{TARGET}}}": (0, 60),
    f'isochrone_ttft_seconds_bucket{{{TARGET},le="0.3"}}': (0, 1),
    f'isochrone_ttft_seconds_bucket{{{TARGET},le="1.2"}}': (0, 1),
    f'isochrone_ttft_seconds_bucket{{{TARGET},le="+Inf"}}': (0, 1),
    f"isochrone_ttft_seconds_count{{{TARGET}}}": (0, 1),
    f'isochrone_ratelimit_remaining{{{TARGET},kind="requests"}}': (90, 0),
    f'isochrone_ratelimit_limit{{{TARGET},kind="requests"}}': (100, 0),
    f'isochrone_incident_open{{{TARGET},kind="target_failing"}}': (0, 0),
    f'isochrone_incident_open{{{TARGET},kind="target_throttled"}}': (0, 0),
    f'isochrone_route_state{{{ROUTE},state="ok"}}': (1, 0),
    f'isochrone_route_state{{{ROUTE},state="degraded"}}': (0, 0),
    f'isochrone_route_state{{{ROUTE},state="frozen"}}': (0, 0),
    f"isochrone_route_stale_timestamp_seconds{{{ROUTE}}}": (1800, 60),
    f"isochrone_routing_effective{{{ROUTE}}}": (1, 0),
    'isochrone_vantage_last_push_timestamp_seconds{vantage="us-1"}': (0, 60),
    'isochrone_vantage_stopped_timestamp_seconds{vantage="us-1"}': (0, 0),
    'isochrone_pushes_total{status="OK"}': (0, 4),
    'isochrone_pushes_total{status="UNAVAILABLE"}': (0, 0),
    'isochrone_samples_dropped_total{instance="us-1",reason="spool_full"}': (0, 0),
    'up{job="isochrone",instance="c:4680"}': (1, 0),
    'up{job="other",instance="o:1"}': (0, 0),
    'isochrone_disk_level{instance="c:4680"}': (0, 0),
    'isochrone_job_failing{instance="c:4680",job="isochrone",exported_job="rollup"}': (0, 0),
    'isochrone_alerts_overdue{receiver="oncall"}': (0, 0),
    'isochrone_alert_deliveries_total{receiver="oncall",result="delivered"}': (0, 1),
    'isochrone_alert_deliveries_total{receiver="oncall",result="given_up"}': (0, 0),
    'isochrone_clock_trusted{instance="c:4680"}': (1, 0),
    'isochrone_credentials_expiring{instance="c:4680"}': (0, 0),
    'isochrone_pool_waiting{instance="c:4680"}': (0, 0),
    'isochrone_metrics_left_out_samples_total{instance="c:4680",reason="limit"}': (0, 0),
    'isochrone_metrics_left_out_samples_total{instance="c:4680",reason="not_in_plan"}': (0, 1),
}


def probes(outcome: str) -> str:
    return f'isochrone_probes_total{{{TARGET},outcome="{outcome}"}}'


# Alert → the series that its fault changes, with their further course, and the minutes until it must fire.
FAULTS: dict[str, tuple[dict[str, tuple[float, float]], int]] = {
    "IsochroneTargetFailing": ({probes("ok"): (QUIET, 0), probes("http_error"): (0, 1)}, 15),
    "IsochroneTargetThrottled": ({probes("ok"): (QUIET, 0.5), probes("throttled"): (0, 0.5)}, 25),
    "IsochroneNoSuccess": ({f"isochrone_last_success_timestamp_seconds{{{TARGET}}}": (60.0 * QUIET, 0)}, 70),
    "IsochroneTtftHigh": ({f'isochrone_ttft_seconds_bucket{{{TARGET},le="0.3"}}': (QUIET, 0)}, 45),
    "IsochroneRateLimitLow": ({f'isochrone_ratelimit_remaining{{{TARGET},kind="requests"}}': (5, 0)}, 8),
    "IsochroneIncidentOpen": ({f'isochrone_incident_open{{{TARGET},kind="target_failing"}}': (1, 0)}, 2),
    "IsochroneRouteDegraded": ({f'isochrone_route_state{{{ROUTE},state="degraded"}}': (1, 0)}, 13),
    "IsochroneRouteFrozen": ({f'isochrone_route_state{{{ROUTE},state="frozen"}}': (1, 0)}, 13),
    "IsochroneRouteStale": ({f"isochrone_route_stale_timestamp_seconds{{{ROUTE}}}": (60.0 * QUIET, 0)}, 5),
    "IsochroneRoutingNotEffective": ({f"isochrone_routing_effective{{{ROUTE}}}": (0.8, 0)}, 13),
    "IsochroneVantageSilent": (
        {'isochrone_vantage_last_push_timestamp_seconds{vantage="us-1"}': (60.0 * QUIET, 0)},
        7,
    ),
    "IsochronePushesRefused": ({'isochrone_pushes_total{status="UNAVAILABLE"}': (0, 2)}, 28),
    "IsochroneSamplesDropped": ({'isochrone_samples_dropped_total{instance="us-1",reason="spool_full"}': (5, 0)}, 3),
    "IsochroneDown": ({'up{job="isochrone",instance="c:4680"}': (0, 0)}, 5),
    "IsochroneDiskLow": ({'isochrone_disk_level{instance="c:4680"}': (1, 0)}, 4),
    "IsochroneJobFailing": (
        {'isochrone_job_failing{instance="c:4680",job="isochrone",exported_job="rollup"}': (3, 1)},
        8,
    ),
    "IsochroneAlertsNotDelivered": (
        {
            'isochrone_alerts_overdue{receiver="oncall"}': (3, 0),
            'isochrone_alert_deliveries_total{receiver="oncall",result="delivered"}': (QUIET, 0),
        },
        24,
    ),
    "IsochroneClockNotTrusted": ({'isochrone_clock_trusted{instance="c:4680"}': (0, 0)}, 5),
    "IsochroneCredentialsExpiring": ({'isochrone_credentials_expiring{instance="c:4680"}': (2, 0)}, 65),
    "IsochroneDatabaseBusy": ({'isochrone_pool_waiting{instance="c:4680"}': (3, 0)}, 14),
    "IsochroneSamplesLeftOut": (
        {'isochrone_metrics_left_out_samples_total{instance="c:4680",reason="limit"}': (9, 0)},
        3,
    ),
}

STOPPED = {
    f'isochrone_vantage_{name}_timestamp_seconds{{vantage="us-1"}}': (60.0 * QUIET, 0.0)
    for name in ("last_push", "stopped")
}
FAILING, THROTTLED = FAULTS["IsochroneTargetFailing"], FAULTS["IsochroneTargetThrottled"]
# Further faults: the series, the minutes, and the alert.
OTHERS: dict[str, tuple[dict[str, tuple[float, float]], int, str]] = {
    "a failing target with an incident": (
        {**FAILING[0], **FAULTS["IsochroneIncidentOpen"][0]}, FAILING[1], "IsochroneIncidentOpen",
    ),
    "a throttled target with an incident": (
        {**THROTTLED[0], f'isochrone_incident_open{{{TARGET},kind="target_throttled"}}': (1, 0)}, THROTTLED[1],
        "IsochroneIncidentOpen",
    ),
    "an agent that is not started again": (STOPPED, 70, "IsochroneVantageSilent"),
    "an alert that is given up": (
        {'isochrone_alert_deliveries_total{receiver="oncall",result="given_up"}': (1, 0)}, 14,
        "IsochroneAlertsNotDelivered",
    ),
}  # fmt: skip


def course(begin: float, step: float, minutes: int) -> str:
    return f"{begin:g}+{step:g}x{minutes}"


def case(name: str, changed: dict[str, tuple[float, float]], minutes: int, expected: list[str]) -> dict[str, Any]:
    series = [
        {"series": one, "values": f"{course(*healthy, QUIET)} {course(*changed.get(one, (_after(healthy))), minutes)}"}
        for one, healthy in HEALTHY.items()
    ]
    firing = 'count by (alertname) (ALERTS{alertstate="firing"})'
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in expected]
    return {
        "name": name,
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [
            {"expr": firing, "eval_time": f"{QUIET}m", "exp_samples": []},
            {"expr": firing, "eval_time": f"{QUIET + minutes}m", "exp_samples": samples},
        ],
    }


def _after(course_before: tuple[float, float]) -> tuple[float, float]:
    begin, step = course_before
    return begin + (QUIET + 1) * step, step


def test_every_alert_has_its_fault() -> None:
    """No rule is without a test, and each has a severity and two sentences."""
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert {rule["alert"] for rule in rules} == set(FAULTS)
    for rule in rules:
        assert rule["labels"]["severity"] in {"warning", "critical"}, rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]


@needs_promtool
def test_each_alert_fires_on_its_fault_alone(tmp_path: Path) -> None:
    """Each fault raises its alert alone, also if the collector has an incident of it; quiet hours raise none."""
    tests = [case(name, changed, minutes, [name]) for name, (changed, minutes) in FAULTS.items()]
    tests += [case(name, changed, minutes, [alert]) for name, (changed, minutes, alert) in OTHERS.items()]
    tests += [case("quiet", {}, 60, []), case("an agent that was stopped", STOPPED, 50, [])]
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    # JSON is YAML.
    (tmp_path / "test.yaml").write_text(json.dumps(document))
    checked = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    done = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "test.yaml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
