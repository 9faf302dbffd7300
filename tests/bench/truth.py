"""The simulator of a bench, in a process of its own, and what really happened there: its record, never its plan."""

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

Truth = Mapping[str, Mapping[str, int]]


class Simulator:
    """A simulator process with its record."""

    def __init__(self, folder: Path) -> None:
        world = folder / "world.json"
        world.write_text(json.dumps(WORLD))
        command = [sys.executable, "-m", "isochrone_sim", "serve", "--listen", "127.0.0.1:0", "--world", str(world)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdout is not None
        self.base_url: str = json.loads(self.process.stdout.readline())["endpoints"]["us-east-2"]

    def truth(self) -> Truth:
        """What really happened, by request id."""
        with urllib.request.urlopen(self.base_url.removesuffix("/v1") + "/truth") as answer:
            records = [json.loads(line) for line in answer.read().splitlines()]
        return {record["request_id"]: record for record in records}

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(10)


def true_ttft_us(record: Mapping[str, int]) -> float:
    """First token written minus request arrived."""
    return (record["first_token_at_ns"] - record["request_at_ns"]) / 1000


def true_tokens_per_second(record: Mapping[str, int]) -> float:
    """Tokens after the first over the span of their writing."""
    return (TOKENS - 1) / ((record["last_token_at_ns"] - record["first_token_at_ns"]) / 1e9)
