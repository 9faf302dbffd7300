"""The rules that routes are compared with choose as the programs that they stand for."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bench.decide.__main__ import one_hot, outcome
from bench.decide.rules import epochs_of, last
from bench.decide.worlds import Course, World, course
from fixtures.litellm import PYTHON, environment, requires_litellm

# LiteLLM's strategy gets the TTFTs of an epoch as those of streamed answers (s), and is asked for the next deployment.
_CHOOSING = """
import json, sys
from litellm.caching.caching import DualCache
from litellm.router_strategy.lowest_latency import LowestLatencyLoggingHandler
strategy, chosen = LowestLatencyLoggingHandler(DualCache()), []
for epoch in json.load(sys.stdin):
    for values in epoch:
        for member, ttft in enumerate(values):
            of = {"metadata": {"model_group": "chat"}, "model_info": {"id": str(member)}}
            answer = {"litellm_params": of, "stream": True, "completion_start_time": ttft}
            strategy.log_success_event(answer, None, 0.0, ttft + 1.0)
    members = [{"model_info": {"id": str(member)}, "litellm_params": {}} for member in range(len(epoch[0]))]
    found = strategy.get_available_deployments("chat", members, request_kwargs={"stream": True, "metadata": {}})
    chosen.append(int(found["model_info"]["id"]))
print(json.dumps(chosen))
"""


@requires_litellm
@pytest.mark.consumer("LiteLLM", "chooses by lowest latency as the rule of bench-decide")
@pytest.mark.parametrize(
    "world",
    [
        World(name="2 h, 150 ms", gap_ms=150, period_s=7200, days=0.5),
        World(name="four members, 2 % heavy", gap_ms=150, period_s=7200, days=0.25, members=4, heavy=0.02),
    ],
    ids=lambda world: world.name,
)
def test_last_ten_is_the_lowest_latency_strategy_of_litellm(world: World, tmp_path: Path) -> None:
    """Fed with the same TTFTs, the mean of the last ten values and LiteLLM's strategy choose the same members."""
    of = course(world, 5)
    epochs = [(values / 1000).tolist() for values in epochs_of(of)]

    found = subprocess.run(
        [PYTHON, "-c", _CHOOSING],
        input=json.dumps(epochs),
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )

    chosen = last(10, 0.0)(of)
    assert len(set(chosen.tolist())) == world.members
    assert json.loads(found.stdout) == chosen.tolist()


@pytest.mark.parametrize(("out", "regrets"), [(slice(8, 10), (150.0, 150.0)), (slice(11, 13), (75.0, 225.0))])
def test_no_rule_is_lucky_in_outages(out: slice, regrets: tuple[float, float]) -> None:
    """An outage that begins after a decision costs all rules the same; one that was seen, only those that stay."""
    cost = np.full((18, 2), 100.0)
    cost[out, 1] += 1800
    failed, nothing = cost[..., np.newaxis] > 100, np.zeros((18, 2), bool)
    found = Course(
        world=World(name="one outage"), cost_ms=cost, is_tight=nothing, ttft_ms=cost, failed=failed, throttled=nothing
    )
    assert [outcome(found, one_hot(np.full(3, member), 2)).regret_ms for member in (0, 1)] == list(regrets)
