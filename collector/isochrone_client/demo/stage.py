"""What the demo plays: which vantages, which plan, and what the simulated world knows to be true. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

HOST = "llm.isochrone.test"
BASELINE = "us-east-2"
EVERY_SECONDS = 4
PROMPT = "Explain recursion in 200 words"
# Long enough for a speed, short enough that the slowest model, at 10 tokens/s, is done before its next round.
MAX_OUTPUT_TOKENS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """One vantage of the demo."""

    vantage: str
    region: str


STANDS = (
    Stand(vantage="ohio-1", region="us-east-2"),
    Stand(vantage="singapore-1", region="ap-southeast-1"),
    Stand(vantage="frankfurt-1", region="eu-central-1"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model of the world: its price in US dollars per million output tokens, and per region the true difference to
    the baseline's time to first token in microseconds, with where that figure comes from.
    """

    name: str
    provider: str
    usd_per_m_output: float
    differential_us: Mapping[str, int]
    source: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What the simulated world says of itself."""

    models: tuple[Model, ...]


def read_world(text: str) -> World:
    """The world as `isochrone-sim world --output json` tells it."""
    return World(
        models=tuple(
            Model(
                name=model["id"],
                provider=model["provider"],
                usd_per_m_output=model["usd_per_m_output"],
                differential_us=model["differential_us"],
                source=model["offset_source"],
            )
            for model in json.loads(text)["models"]
        )
    )


def plan_document(world: World) -> str:
    """The demo's plan for the models of the world. JSON, which is YAML too."""
    targets = [
        {
            "provider": model.provider,
            "model": model.name,
            "workload": "demo",
            "price": {"usd_per_m_input": 0.0, "usd_per_m_output": model.usd_per_m_output},
        }
        for model in world.models
    ]
    plan = {
        "baseline": BASELINE,
        "every": f"{EVERY_SECONDS}s",
        "workloads": {"demo": {"prompt": PROMPT, "max_output_tokens": MAX_OUTPUT_TOKENS}},
        "providers": {model.provider: {"base_url": f"http://{HOST}/v1"} for model in world.models},
        "targets": targets,
    }
    return json.dumps(plan, indent=1)
