"""Incidents from the provider to the alert: simulators, two agents and a collector as processes."""

import signal

from fix_agent import StartAgent
from fix_collector import StartCollector
from fix_simulator import Simulator, StartSimulator
from isochrone_collector.clock import now_at
from isochrone_wire.answers import Window
from isochrone_wire.insights import Alert
from isochrone_wire.model import DAY_US
from testdata.waiting import eventually

US, SG = "us-east-2", "ap-southeast-1"
SOUND, FAILING = "sound.isochrone.test", "failing.isochrone.test"
EVER = Window(from_at=now_at() - DAY_US, until_at=now_at() + DAY_US)
PLAN = f"""\
baseline: {US}
every: 1s
overlap: allow
workloads:
  short: {{max_output_tokens: 2, timeouts: {{first_token: 900ms}}}}
targets:
  - {{provider: deepseek, model: deepseek-v4-flash, base_url: "http://{FAILING}/v1", workload: short}}
  - {{provider: qwen, model: qwen3-8b, base_url: "http://{SOUND}/v1", workload: short}}
  - {{provider: zhipu, model: glm-4-32b, base_url: "http://{SOUND}/v1", workload: short}}
  - {{provider: stepfun, model: step-3.5-flash, base_url: "http://{SOUND}/v1", workload: short}}
  - {{provider: limiting, model: fault-429, base_url: "http://{SOUND}/v1", workload: short}}
  - {{provider: former, model: fault-404, base_url: "http://{SOUND}/v1", workload: short}}
"""
FAILS = "deepseek/deepseek-v4-flash"


def connection(host: str, simulator: Simulator, region: str) -> list[str]:
    address = simulator.endpoints[region].removeprefix("http://").removesuffix("/v1")
    return ["--connect-to", f"{host}:80:{address}"]


def test_exactly_the_expected_incidents(
    start_collector: StartCollector, simulator: StartSimulator, start_agent: StartAgent
) -> None:
    """One provider fails from a region, then from all, then recovers; one limits the rate, and one model never worked:
    each step is one alert, in order, and no other target has one.
    """
    collector = start_collector()
    assert collector.call.apply(PLAN).problems == ()
    sound = simulator(US, SG, more=["--faults"])
    failing = {region: simulator(region) for region in (US, SG)}
    for region in (US, SG):
        connections = [*connection(SOUND, sound, region), *connection(FAILING, failing[region], region)]
        start_agent(vantage=f"{region}-1", region=region, collector=collector.address, more=connections)

    def raised() -> list[Alert]:
        return sorted(collector.call.alerts(EVER).alerts, key=lambda alert: alert.raised_at)

    eventually(15, lambda: len(raised()) == 2, "what never worked")
    failing[SG].process.send_signal(signal.SIGSTOP)
    eventually(15, lambda: len(raised()) == 3, "an incident in one region")
    failing[US].process.send_signal(signal.SIGSTOP)
    eventually(15, lambda: len(raised()) == 4, "its escalation")
    for each in failing.values():
        each.process.send_signal(signal.SIGCONT)
    eventually(15, lambda: len(raised()) == 5, "its end")
    never, found = sorted(raised()[:2], key=lambda alert: alert.subject), raised()[2:]
    assert [(one.kind.value, one.subject) for one in never] == [
        ("target_failing", "former/fault-404"),
        ("target_throttled", "limiting/fault-429"),
    ]
    assert [(one.kind.value, one.subject, one.sentence.partition(" since")[0]) for one in found[:2]] == [
        ("target_failing", FAILS, f"fails from {SG}"),
        ("target_failing", FAILS, "now fails from all 2 regions"),
    ]
    assert (found[2].kind.value, found[2].subject) == ("target_recovered", FAILS)
