"""The simulator process of a benchmark, and its ground truth: the record of what happened, not the plan."""

import json
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.processes import ready, start

MODEL = "steady"
TTFT_MS, TOKENS, RATE = 200, 150, 100
WORLD: Mapping[str, Any] = {
    "title": "One steady model",
    "baseline": "us-east-2",
    "regions": {"us-east-2": "here"},
    "load_amplitude": 0,
    "pace_amplitude": 0,
    "models": [
        {
            "id": MODEL,
            "provider": "sim",
            "ttft_ms": TTFT_MS,
            "tokens_per_second": RATE,
            "answer_tokens": TOKENS,
            "jitter_ms": 1.0,
        }
    ],
}

GroundTruth = Mapping[str, Mapping[str, int]]


class Simulator:
    """A simulator process with its record, and further options of `isochrone-sim serve`."""

    def __init__(self, folder: Path, *options: str, world: Mapping[str, Any] = WORLD) -> None:
        file = folder / "world.json"
        file.write_text(json.dumps(world))
        listens = [word for region in world["regions"] for word in ("--listen", f"{region}=127.0.0.1:0")]
        self.process = start("isochrone_sim", "serve", *listens, "--world", str(file), *options)
        self.endpoints: dict[str, str] = ready(self.process)["endpoints"]
        self.base_url = self.endpoints["us-east-2"]

    def ground_truth(self) -> GroundTruth:
        """Return the records by request id."""
        with urllib.request.urlopen(self.base_url.removesuffix("/v1") + "/truth") as answer:
            records = [json.loads(line) for line in answer.read().splitlines()]
        return {record["request_id"]: record for record in records}

    def stop(self) -> None:
        with self.process:
            self.process.terminate()


def true_ttft_us(record: Mapping[str, int]) -> float:
    """Return the first token written minus the request arrived, in microseconds."""
    return (record["first_token_at_ns"] - record["request_at_ns"]) / 1000


def true_tokens_per_second(record: Mapping[str, int]) -> float:
    """Return the tokens after the first divided by the duration of their writing."""
    return (TOKENS - 1) / ((record["last_token_at_ns"] - record["first_token_at_ns"]) / 1e9)
