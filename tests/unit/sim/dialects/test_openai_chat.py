"""The dialect openai-chat: what a request asks for, and what each step looks like on the wire."""

import json
from typing import Any

import pytest

from isochrone_sim.dialects import DIALECTS, ResponseMetadata
from isochrone_sim.errors import RequestRefused
from isochrone_sim.requests import BucketStatus, ErrorResponse, RateLimitStatus, Request, RequestParameters
from isochrone_sim.script import Channel, Kind, Script, Step, Usage

CHAT = DIALECTS["openai-chat"]
PATH = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "[abcdef123456] Hi"}]
METADATA = ResponseMetadata(request_id="req_7", model="m", created_at=1_779_235_200_000_000, processing_us=45_600)
USAGE = Usage(prompt_tokens=12, output_tokens=5, reasoning_tokens=2, cached_tokens=1)


def read(**fields: Any) -> RequestParameters:
    body = json.dumps({"model": "m", "messages": MESSAGES} | fields).encode()
    return CHAT.read(Request(method="POST", path=PATH, body=body))


def event(kind: Kind, text: str = "", *, channel: Channel = Channel.ANSWER, **parameters: Any) -> bytes:
    asked = RequestParameters(model="m", **parameters)
    return CHAT.renderer(asked, METADATA, USAGE).event(Step(0, kind, text, 1, channel))


def chunk(kind: Kind, text: str = "", **more: Any) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(event(kind, text, **more).removeprefix(b"data: "))
    return parsed


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, {"stream": False, "max_tokens": None, "include_usage": False, "reasoning_effort": None}),
        ({"stream": True, "max_tokens": 9}, {"stream": True, "max_tokens": 9}),
        ({"max_tokens": 9, "max_completion_tokens": 5}, {"max_tokens": 5}),
        ({"stream_options": {"include_usage": True}}, {"include_usage": True}),
        ({"stream_options": None, "reasoning_effort": "low"}, {"include_usage": False, "reasoning_effort": "low"}),
        ({}, {"nonce": "abcdef123456", "prompt_tokens": 12}),
        ({"messages": [{"content": [{"type": "text", "text": "[abcdef123456] Hi"}]}]}, {"nonce": "abcdef123456"}),
    ],
)
def test_requests_are_understood(fields: dict[str, Any], found: dict[str, Any]) -> None:
    """Every field that changes the answer is read."""
    parameters = read(**fields)
    assert {name: getattr(parameters, name) for name in found} == found


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"model": 4}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": "9"}, "max_completion_tokens"),
        ({"max_tokens": True}, "max_tokens"),
    ],
)
def test_nonsense_is_refused(fields: dict[str, Any], param: str) -> None:
    """A request that makes no sense is a 400 that names the parameter."""
    with pytest.raises(RequestRefused) as caught:
        read(**fields)
    assert (caught.value.response.status, caught.value.response.param) == (400, param)


@pytest.mark.parametrize(
    ("kind", "text", "channel", "delta"),
    [
        (Kind.ROLE, "", Channel.ANSWER, {"role": "assistant", "content": ""}),
        (Kind.FINISH, "stop", Channel.ANSWER, {}),
        (Kind.TOKENS, ' "é\n', Channel.ANSWER, {"content": ' "é\n'}),
        (Kind.TOKENS, ' "é\n', Channel.REASONING, {"reasoning_content": ' "é\n'}),
        (Kind.TOKENS, ' "é\n', Channel.TOOL, {"tool_calls": [{"index": 0, "function": {"arguments": ' "é\n'}}]}),
    ],
)
def test_a_step_is_a_delta(kind: Kind, text: str, channel: Channel, delta: dict[str, Any]) -> None:
    """Role and finish carry no token, and a token is one delta of its channel, escaped as JSON wants it."""
    choice = chunk(kind, text, channel=channel)["choices"][0]
    assert (choice["delta"], choice["finish_reason"]) == (delta, text if kind is Kind.FINISH else None)


def test_every_chunk_is_of_one_answer() -> None:
    """Id, model, creation time and kind of object are the same in all chunks."""
    wanted = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1_779_235_200, "model": "m"}
    assert all(chunk(kind).items() >= wanted.items() for kind in (Kind.ROLE, Kind.TOKENS, Kind.FINISH, Kind.USAGE))


def test_usage_has_no_choices() -> None:
    """The usage chunk has no choices and all details; the others have `usage: null` when it was asked for."""
    usage = chunk(Kind.USAGE)
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": 12,
        "completion_tokens": 5,
        "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    assert chunk(Kind.TOKENS, "a", include_usage=True)["usage"] is None
    assert "usage" not in chunk(Kind.TOKENS, "a")
    assert chunk(Kind.FINISH_WITH_USAGE, "stop")["usage"] == usage["usage"]


def test_a_whole_answer() -> None:
    """Without `stream` the body is one completion with the whole text, reasoning, tool call and usage."""
    steps = (
        Step(1, Kind.TOKENS, "Hm", 1, Channel.REASONING),
        Step(2, Kind.TOKENS, "Hel", 1),
        Step(3, Kind.TOKENS, "lo", 1),
        Step(4, Kind.CALL, "look_up", 1, Channel.TOOL),
        Step(5, Kind.TOKENS, "{}", 1, Channel.TOOL),
        Step(6, Kind.FINISH, "stop"),
    )
    script = Script(head_ns=0, steps=steps, usage=USAGE)
    completion = json.loads(CHAT.renderer(RequestParameters(model="m"), METADATA, USAGE).body(script))
    message = completion["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("Hello", "Hm")
    assert message["tool_calls"][0]["function"] == {"name": "look_up", "arguments": "{}"}
    assert (completion["object"], completion["choices"][0]["finish_reason"]) == ("chat.completion", "stop")
    assert completion["usage"]["completion_tokens"] == 5


def test_headers_are_the_providers() -> None:
    """Request id, processing time and rate limits are in the headers."""
    full = BucketStatus(limit=100, remaining=99, reset_us=600_000)
    tokens = BucketStatus(limit=1000, remaining=10, reset_us=90_000_000)
    limits = RateLimitStatus(requests=full, tokens=tokens)
    metadata = ResponseMetadata(request_id="req_7", model="m", created_at=0, processing_us=45_600, rate_limit=limits)
    assert CHAT.headers(metadata) == {
        "x-request-id": "req_7",
        "openai-processing-ms": "45",
        "x-ratelimit-limit-requests": "100",
        "x-ratelimit-remaining-requests": "99",
        "x-ratelimit-reset-requests": "600ms",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "10",
        "x-ratelimit-reset-tokens": "1m30s",
    }


@pytest.mark.parametrize(
    ("status", "type_"),
    [(400, "invalid_request_error"), (401, "invalid_request_error"), (429, "requests"), (503, "server_error")],
)
def test_errors_have_their_shape(status: int, type_: str) -> None:
    """Message, type, param and code, as OpenAI has them."""
    body = CHAT.error_body(ErrorResponse(status=status, code="c", message="no", param="p"))
    assert json.loads(body) == {"error": {"message": "no", "type": type_, "param": "p", "code": "c"}}


@pytest.mark.parametrize(
    ("header", "key"),
    [("Bearer abc", "abc"), ("bearer abc", "abc"), ("Basic abc", None), ("Bearer ", None), ("", None)],
)
def test_the_key_is_a_bearer_token(header: str, key: str | None) -> None:
    """Only a bearer token is a key."""
    assert CHAT.key(Request(method="POST", path=PATH, headers={"authorization": header})) == key
