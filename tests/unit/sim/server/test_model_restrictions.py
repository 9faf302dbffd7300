"""What a model does not let itself be told: a temperature that is not its own, an effort it does not know, a budget."""

import json
from dataclasses import replace
from typing import Any

import pytest

from fixtures.simulator import request_in
from isochrone_sim.requests import Request
from isochrone_sim.server.service import Service
from isochrone_sim.world import default_world
from unit.sim.stream_reader import ARRIVAL, PARSERS

WORLD = default_world()
MODEL = replace(WORLD.models["kimi-k2.5"], id="choosy", efforts=("low", "medium", "max"))
DEAF = replace(MODEL, id="easy", fixed_temperature=False, efforts=())
SERVICE = Service(WORLD.with_models([MODEL, DEAF]))
every_dialect = pytest.mark.parametrize("dialect", list(PARSERS))


def ask(dialect: str, model: str, **fields: Any) -> tuple[int, bytes]:
    """Status and first bytes of the reply to a question with these fields, which stand where the dialect has them."""
    path, headers, body = request_in(dialect, model)
    told = json.loads(body)
    config = told["generationConfig"] if dialect == "gemini" else told
    config |= fields
    where, _, _ = path.partition("?")
    request = Request(
        method="POST", path=where, query={"alt": "sse"}, headers=headers, body=json.dumps(told, allow_nan=True).encode()
    )
    reply = SERVICE.answer(request, ARRIVAL)
    return reply.timeline.status, reply.timeline.frames[0].data


@every_dialect
@pytest.mark.parametrize(("temperature", "status"), [(None, 200), (1, 200), (1.0, 200), (0, 400), (0.0, 400), (2, 400)])
def test_a_fixed_temperature_is_the_only_one(dialect: str, temperature: float | None, status: int) -> None:
    """A model of one temperature takes that or none, and names what it refuses; another takes any."""
    fields = {} if temperature is None else {"temperature": temperature}
    answered, data = ask(dialect, "choosy", **fields)
    assert (answered, b"`temperature` does not support" in data) == (status, status == 400)
    assert ask(dialect, "easy", **fields)[0] == 200


@every_dialect
@pytest.mark.parametrize("temperature", [-1, 2.1, "warm", True, float("nan")])
def test_a_temperature_is_a_number(dialect: str, temperature: object) -> None:
    """What is no temperature for anybody is refused by every model."""
    assert ask(dialect, "easy", temperature=temperature)[0] == 400


ADAPTIVE = {"thinking": {"type": "adaptive"}}
BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


@pytest.mark.parametrize(
    ("dialect", "fields", "status"),
    [
        ("openai-chat", {"reasoning_effort": "low"}, 200),
        ("openai-chat", {"reasoning_effort": "minimal"}, 400),
        ("openai-responses", {"reasoning": {"effort": "max"}}, 200),
        ("openai-responses", {"reasoning": {"effort": "none"}}, 400),
        ("anthropic", ADAPTIVE | {"output_config": {"effort": "max"}}, 200),
        ("anthropic", ADAPTIVE | {"output_config": {"effort": "minimal"}}, 400),
        ("anthropic", ADAPTIVE, 200),
        ("anthropic", BUDGET, 400),
        ("gemini", {"thinkingConfig": {"thinkingLevel": "low"}}, 200),
        ("gemini", {"thinkingConfig": {"thinkingLevel": "minimal"}}, 400),
        ("gemini", {"thinkingConfig": {"thinkingBudget": 1024}}, 200),
        ("cohere", {"thinking": {"type": "enabled"}}, 200),
        ("cohere", {"thinking": {"type": "disabled"}}, 400),
    ],
)
def test_only_known_efforts_are_taken(dialect: str, fields: dict[str, Any], status: int) -> None:
    """A model with words of effort refuses others and, where Anthropic would, a budget; one without takes them all."""
    answered, data = ask(dialect, "choosy", **fields)
    assert (answered, b"not supported with" in data) == (status, status == 400)
    assert ask(dialect, "easy", **fields)[0] == 200
