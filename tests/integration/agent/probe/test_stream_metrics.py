"""Speeds of short answers against the simulator's record of what it wrote."""

import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fixtures.simulator import StartSimulator
from isochrone_agent.clock import now_at
from isochrone_agent.probe.prober import Prober
from isochrone_wire.model import Sample, Target, Workload

RATES = (100, 400, 1_000)
WORLD = {
    "title": "Steady models of several speeds",
    "baseline": "us-east-2",
    "regions": {"us-east-2": "here"},
    "load_amplitude": 0,
    "pace_amplitude": 0,
    "models": [
        {
            "id": f"at-{rate}",
            "provider": "sim",
            "ttft_ms": 20,
            "tokens_per_second": rate,
            "answer_tokens": 200,
            "jitter_ms": 0.0,
        }
        for rate in RATES
    ],
}


def target(base_url: str, rate: int, tokens: int) -> Target:
    """A target whose answers have so many tokens."""
    model = f"at-{rate}"
    workload = Workload(max_output_tokens=tokens)
    return Target(id=rate, name=model, provider="sim", model=model, base_url=base_url, workload=workload)


def true_speed(record: Mapping[str, Any], tokens: int) -> float:
    """The tokens after the first, by the time in which they were written."""
    span_ns: int = record["last_token_at_ns"] - record["first_token_at_ns"]
    return (tokens - 1) / (span_ns / 1e9)


@pytest.mark.parametrize("tokens", [8, 20])
async def test_short_answers_have_the_speed_at_which_they_were_written(
    simulator: StartSimulator, tmp_path: Path, tokens: int
) -> None:
    """Answers that take 7 to 190 ms have a speed, and it is what the simulator recorded, at every rate."""
    world = tmp_path / "world.json"
    world.write_text(json.dumps(WORLD))
    running = simulator(more=["--world", str(world)])
    prober = Prober(vantage="here", tls=ssl.create_default_context())
    samples: dict[int, list[Sample]] = {}
    for rate in RATES:
        at = target(running.base_url, rate, tokens)
        samples[rate] = [await prober.probe(at, round_at=now_at()) for _ in range(9)]
    truth = {record["request_id"]: record for record in running.truth()}
    for found in samples.values():
        assert {sample.output_tokens for sample in found} == {tokens}
        # A busy machine merges the chunks of some of them; what the rule excludes, it excludes in each.
        ratios = [
            sample.tokens_per_second / true_speed(truth[sample.request_id], tokens)
            for sample in found
            if sample.tokens_per_second and sample.request_id
        ]
        assert ratios
        assert min(abs(ratio - 1) for ratio in ratios) < 0.05
