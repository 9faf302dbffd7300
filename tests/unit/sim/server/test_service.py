"""The service: what is served where, to whom, what a model refuses, and what is recorded of it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from fixtures.simulator import request_in
from isochrone_sim.requests import Request
from isochrone_sim.server.service import Arrival, Reply, Service
from isochrone_sim.world import default_world
from unit.sim.stream_reader import PARSERS

WORLD = default_world()
ARRIVAL = Arrival(region="ap-southeast-1", at_ns=7, at=1_779_235_200_000_000, request_id="req_1")


def ask(service: Service, *, key: str | None = None, at: int = ARRIVAL.at, **fields: Any) -> Reply:
    body = {"model": "qwen3-8b", "messages": [{"role": "user", "content": "[abcdef123456] Hi"}]} | fields
    headers = {"authorization": f"Bearer {key}"} if key else {}
    request = Request(method="POST", path="/v1/chat/completions", headers=headers, body=json.dumps(body).encode())
    return service.answer(request, replace(ARRIVAL, at=at))


def get(path: str, *, method: str = "GET", api_key: str | None = None) -> tuple[int, dict[str, Any]]:
    reply = Service(WORLD, api_key=api_key).answer(Request(method=method, path=path), ARRIVAL)
    head, _, body = reply.timeline.frames[0].data.partition(b"\r\n\r\n")
    assert reply.dialect is None
    assert f"HTTP/1.1 {reply.timeline.status} ".encode() in head
    return reply.timeline.status, json.loads(body)


def test_an_exchange_is_told_to_the_truth() -> None:
    """Dialect, model, provider and nonce are known of every exchange."""
    reply = ask(Service(WORLD), stream=True)
    assert (reply.dialect, reply.model, reply.provider, reply.nonce, reply.stream) == (
        "openai-chat",
        "qwen3-8b",
        "qwen",
        "abcdef123456",
        True,
    )


def test_the_region_is_that_of_the_connection() -> None:
    """The same request through another region's socket differs by the published difference and noise."""
    here, there = (
        Service(WORLD).answer(
            Request(
                method="POST",
                path="/v1/chat/completions",
                body=json.dumps({"model": "kimi-k2.5", "messages": [{"content": "Hi"}]}).encode(),
            ),
            replace(ARRIVAL, region=region),
        )
        for region in ("us-east-2", "ap-southeast-1")
    )
    assert here.timeline.ttft_us is not None
    assert there.timeline.ttft_us is not None
    # Without `stream` the only token instant is that of the whole answer, so the planned rate is in it, equally.
    assert there.timeline.ttft_us - here.timeline.ttft_us == pytest.approx(-120_000, abs=15_000)


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"model": "qwen3-8bb"}, 404, "model_not_found"),
        ({"model": ""}, 400, "invalid_request"),
        ({"messages": []}, 400, "invalid_request"),
    ],
)
def test_what_cannot_be_answered_is_refused(fields: dict[str, Any], status: int, code: str) -> None:
    """Errors are OpenAI's, and are exchanges of which the truth knows."""
    reply = ask(Service(WORLD), **fields)
    body = json.loads(reply.timeline.frames[0].data.partition(b"\r\n\r\n")[2])
    assert (reply.timeline.status, body["error"]["code"], reply.dialect) == (status, code, "openai-chat")


def test_an_unknown_model_names_the_nearest() -> None:
    """A mistyped model names the nearest; a name that no encoding can write is only unknown."""
    assert b"`qwen3-8b`" in ask(Service(WORLD), model="qwen3-8bb").timeline.frames[0].data
    assert ask(Service(WORLD), model="\ud800").timeline.status == 404


@pytest.mark.parametrize(("key", "status"), [(None, 401), ("sk-wrong-key-1234567", 401), ("right", 200)])
def test_keys_are_checked_when_wanted(key: str | None, status: int) -> None:
    """With a key set, a request needs it; a wrong one is quoted by its ends only."""
    reply = ask(Service(WORLD, api_key="right"), key=key)
    assert reply.timeline.status == status
    assert b"sk-wrong-key-1234567" not in reply.timeline.frames[0].data
    assert ask(Service(WORLD), key=key).timeline.status == 200


def test_allowances_are_enforced() -> None:
    """Beyond the rate_limit of a minute requests are throttled, and later they are not."""
    limited = replace(WORLD.models["qwen3-8b"], requests_per_minute=2)
    service = Service(WORLD.with_models([limited]))
    assert [ask(service).timeline.status for _ in range(3)] == [200, 200, 429]
    assert ask(service, at=ARRIVAL.at + 30_000_000).timeline.status == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/healthz", 200),
        ("GET", "/v1/models", 200),
        ("GET", "/v1/models/glm-5", 200),
        ("GET", "/v1/models/glm-9", 404),
        ("GET", "/v1/chat/completions", 404),
        ("POST", "/v1/completions", 404),
        ("DELETE", "/healthz", 404),
        ("GET", "/", 404),
    ],
)
def test_pages(method: str, path: str, status: int) -> None:
    """Pages are there or are an error in JSON; none is an exchange."""
    found, body = get(path, method=method)
    assert (found, "error" in body) == (status, status != 200)


def test_the_catalogue_lists_all_models() -> None:
    """`/v1/models` is the world, for who has the key."""
    assert [row["id"] for row in get("/v1/models")[1]["data"]] == list(WORLD.models)
    assert get("/v1/models", api_key="right")[0] == 401
    assert get("/healthz", api_key="right")[0] == 200


MODEL = replace(WORLD.models["kimi-k2.5"], id="choosy", efforts=("low", "medium", "max"))
DEAF = replace(MODEL, id="easy", fixed_temperature=False, efforts=())
SERVICE = Service(WORLD.with_models([MODEL, DEAF]))
every_dialect = pytest.mark.parametrize("dialect", list(PARSERS))


def status_of(dialect: str, model: str, **fields: Any) -> tuple[int, bytes]:
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
    answered, data = status_of(dialect, "choosy", **fields)
    assert (answered, b"`temperature` does not support" in data) == (status, status == 400)
    assert status_of(dialect, "easy", **fields)[0] == 200


@every_dialect
@pytest.mark.parametrize("temperature", [-1, 2.1, "warm", True, float("nan")])
def test_a_temperature_is_a_number(dialect: str, temperature: object) -> None:
    """What is no temperature for anybody is refused by every model."""
    assert status_of(dialect, "easy", temperature=temperature)[0] == 400


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
    answered, data = status_of(dialect, "choosy", **fields)
    assert (answered, b"not supported with" in data) == (status, status == 400)
    assert status_of(dialect, "easy", **fields)[0] == 200
