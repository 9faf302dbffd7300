"""The simulator process of a benchmark, and its ground truth: the record of what happened, not the plan."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path

MODEL = "steady"
TTFT_MS, TOKENS, RATE = 200, 150, 100
WORLD = {
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
    """A simulator process with its record."""

    def __init__(self, folder: Path) -> None:
        world = folder / "world.json"
        world.write_text(json.dumps(WORLD))
        command = [sys.executable, "-m", "isochrone_sim", "serve", "--listen", "127.0.0.1:0", "--world", str(world)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdout is not None
        self.base_url: str = json.loads(self.process.stdout.readline())["endpoints"]["us-east-2"]

    def ground_truth(self) -> GroundTruth:
        """Return the records by request id."""
        with urllib.request.urlopen(self.base_url.removesuffix("/v1") + "/truth") as answer:
            records = [json.loads(line) for line in answer.read().splitlines()]
        return {record["request_id"]: record for record in records}

    def stop(self) -> None:
        """Stop the process."""
        self.process.terminate()
        self.process.wait(10)


def true_ttft_us(record: Mapping[str, int]) -> float:
    """Return the first token written minus the request arrived, in microseconds."""
    return (record["first_token_at_ns"] - record["request_at_ns"]) / 1000


def true_tokens_per_second(record: Mapping[str, int]) -> float:
    """Return the tokens after the first divided by the duration of their writing."""
    return (TOKENS - 1) / ((record["last_token_at_ns"] - record["first_token_at_ns"]) / 1e9)
