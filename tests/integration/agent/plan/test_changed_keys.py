"""A running agent uses a changed credentials.toml for its next request."""

import json
from pathlib import Path

from fixtures.agent import Agent, StartAgent
from fixtures.collector import StartCollector
from fixtures.simulator import API_KEY, Simulator
from testdata.waiting import eventually

PLAN = """
baseline: us-east-2
every: 300ms
targets:
  - {{provider: sim, model: fault-none, base_url: "{base_url}", credential: sim, workload: {{max_output_tokens: 3}}}}
"""


def keep(folder: Path, key: str) -> Path:
    """The agent's own file, and the file it names, which holds `key`."""
    secret, file = folder / f"{key}.secret", folder / "credentials.toml"
    secret.write_text(f"{key}\n")
    secret.chmod(0o600)
    beside = folder / "credentials.new"
    beside.write_text(f'[sim]\nfile = "{secret}"\nhosts = ["127.0.0.1"]\n')
    beside.chmod(0o600)
    beside.replace(file)
    return file


def outcomes(agent: Agent) -> list[tuple[str, int | None]]:
    """Outcome and HTTP status of every probe so far, oldest first."""
    lines = [json.loads(line) for line in agent.log().splitlines() if '"probe.done"' in line]
    return [(line["outcome"], line.get("http_status")) for line in lines]


def test_the_next_probe_uses_the_key_that_is_there_now(
    start_collector: StartCollector, start_agent: StartAgent, simulator_with_key: Simulator, tmp_path: Path
) -> None:
    """A key that the provider refuses is replaced, and one that it takes is taken away, in one and the same process."""
    collector = start_collector()
    collector.call.apply(PLAN.format(base_url=simulator_with_key.base_url))
    told = ["--credentials", str(keep(tmp_path, "sk-wrong")), "--log-format", "json"]
    agent = start_agent(collector=collector.address, vantage="us-1", region="us-east-2", more=told)

    def newest() -> str:
        return (outcomes(agent) or [("none yet", None)])[-1][0]

    eventually(30, lambda: newest() == "http_error", "the provider refuses the wrong key")
    assert "ok" not in {outcome for outcome, _ in outcomes(agent)}
    keep(tmp_path, API_KEY)
    eventually(30, lambda: newest() == "ok", "the provider takes the right key")
    keep(tmp_path, "sk-wrong")
    eventually(30, lambda: newest() == "http_error", "the wrong key is sent again")
    assert agent.process.poll() is None
    assert agent.log().count('"plan.running"') >= 1
    assert agent.log().count('"agent.started"') == 1
    for key in ("sk-wrong", API_KEY):
        assert f"{key}\n" not in agent.log()
    assert agent.stop() == 0
