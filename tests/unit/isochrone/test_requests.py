"""Requests of SDKs: what can be routed, what changes on the way to a member, and the first content of streams."""

import json
from dataclasses import replace

import pytest

from isochrone.routing import requests
from isochrone.routing.requests import FirstContent, Progress
from isochrone_wire.routes import RouteEntry

ENTRY = RouteEntry(
    rank=1,
    weight=1.0,
    target="a",
    provider="a",
    model="model-a",
    dialect="openai-chat",
    base_url="https://a.example:8443/v9/",
)
BODY = json.dumps(
    {"model": "chat", "stream": True, "seed": 12345678901234567890, "temperature": 0.1, "ü": "ü"}
).encode()


@pytest.mark.parametrize(
    ("method", "url", "body", "dialect"),
    [
        ("POST", "https://x/v1/chat/completions", BODY, "openai-chat"),
        ("POST", "https://x/v1/responses", BODY, "openai-responses"),
        ("POST", "https://x/v1/messages?beta=true", BODY, "anthropic"),
        ("GET", "https://x/v1/chat/completions", BODY, None),
        ("POST", "https://x/v1/messages/count_tokens", BODY, None),
        ("POST", "https://x/v1/embeddings", BODY, None),
        ("POST", "https://x/v1/chat/completions", b"garbage", None),
        ("POST", "https://x/v1/chat/completions", b"[]", None),
        ("POST", "https://x/v1/chat/completions", b"[" * 100_000, None),
    ],
)
def test_which_requests_can_be_routed(method: str, url: str, body: bytes, dialect: str | None) -> None:
    """Requests for answers have a dialect; all others are left alone."""
    request = requests.read_request(method, url, body)
    assert (request.dialect if request else None) == dialect


def chat_request(body: bytes = BODY) -> requests.ProviderRequest:
    request = requests.read_request("POST", "https://x/v1/chat/completions", body)
    assert request is not None
    return request


def test_the_body_changes_in_its_model_only() -> None:
    """A body changes in its model only; path and query stay, with hosts in punycode and paths in percent codes."""
    assert json.loads(requests.body(chat_request(), ENTRY)) == json.loads(BODY) | {"model": "model-a"}
    cut = chat_request(b'{"model": "chat", "user": "\\ud83d"}')
    assert requests.body(cut, ENTRY) == b'{"model":"model-a","user":"\\ud83d"}'
    request = requests.read_request("POST", "https://x/v1/messages?beta=true", BODY)
    assert request is not None
    assert requests.address(request, ENTRY, key=None) == "https://a.example:8443/v9/messages?beta=true"
    entry = replace(ENTRY, base_url="https://bücher.example:8443/ü/v1")
    assert (
        requests.address(chat_request(), entry, key=None)
        == "https://xn--bcher-kva.example:8443/%C3%BC/v1/chat/completions"
    )
    assert (b"host", b"xn--bcher-kva.example:8443") in requests.headers([], request, entry, key=None, size=1)


def test_the_callers_key_never_goes_with_the_members() -> None:
    """With a key of its own, a member gets none of the caller's, in any of the headers of keys."""
    given = [
        (b"Host", b"x"),
        (b"Authorization", b"Bearer caller"),
        (b"X-Api-Key", b"caller"),
        (b"api-key", b"caller"),
        (b"OpenAI-Organization", b"org-caller"),
        (b"OpenAI-Project", b"proj-caller"),
        (b"Cookie", b"session=caller"),
        (b"Accept-Encoding", b"gzip"),
        (b"Content-Length", b"3"),
        (b"X-Trace", b"1"),
    ]
    found = requests.headers(given, chat_request(), ENTRY, key="own", size=7)
    assert sorted(found) == [
        (b"X-Trace", b"1"),
        (b"accept-encoding", b"identity"),
        (b"authorization", b"Bearer own"),
        (b"content-length", b"7"),
        (b"host", b"a.example:8443"),
    ]


WAITING, CONTENT, FAILED = Progress.WAITING, Progress.CONTENT, Progress.FAILED


def chat(**delta: object) -> dict[str, object]:
    return {"choices": [{"delta": delta}]}


@pytest.mark.parametrize(
    ("dialect", "message", "progress"),
    [
        ("openai-chat", chat(role="assistant"), WAITING),
        ("openai-chat", chat(role="assistant", content=""), WAITING),
        ("openai-chat", {"choices": []}, WAITING),
        ("openai-chat", chat(content="Hi"), CONTENT),
        ("openai-chat", chat(reasoning_content="Hm"), CONTENT),
        ("openai-chat", chat(tool_calls=[{"function": {"name": "pay"}}]), CONTENT),
        ("openai-chat", {"choices": [{"delta": {}, "finish_reason": "stop"}]}, WAITING),
        ("openai-chat", {"choices": [{"delta": {}, "finish_reason": "network_error"}]}, FAILED),
        ("openai-chat", {"error": {"message": "overloaded"}}, FAILED),
        ("openai-responses", {"type": "response.created"}, WAITING),
        ("openai-responses", {"type": "response.output_text.delta", "delta": ""}, WAITING),
        ("openai-responses", {"type": "response.output_text.delta", "delta": "Hi"}, CONTENT),
        ("openai-responses", {"type": "response.output_item.added", "item": {"name": "pay"}}, CONTENT),
        ("openai-responses", {"type": "response.completed"}, CONTENT),
        ("openai-responses", {"type": "response.failed"}, FAILED),
        ("openai-responses", {"type": "error"}, FAILED),
        ("anthropic", {"type": "message_start"}, WAITING),
        ("anthropic", {"type": "ping"}, WAITING),
        ("anthropic", {"type": "content_block_start", "content_block": {"type": "text", "text": ""}}, WAITING),
        ("anthropic", {"type": "content_block_start", "content_block": {"type": "tool_use", "name": "pay"}}, CONTENT),
        ("anthropic", {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hi"}}, CONTENT),
        ("anthropic", {"type": "message_stop"}, CONTENT),
        ("anthropic", {"type": "error"}, FAILED),
    ],
)
def test_what_a_message_is(dialect: str, message: dict[str, object], progress: Progress) -> None:
    """Openings and pings are no content; a name of a tool is."""
    assert FirstContent(dialect).receive(b"data: " + json.dumps(message).encode() + b"\n\n") is progress


@pytest.mark.parametrize(
    ("data", "progress"),
    [
        (b"data: [DONE]\n\n", CONTENT),
        (b"x" * 2_000_000, CONTENT),
        (b"data:\n\n", WAITING),
        (b"event: ping\ndata:\n\n", WAITING),
        (b"data: {garbage\n\n", WAITING),
        (b"data: 1\n\n", WAITING),
        (b'data: {"choices": 7}\n\n', WAITING),
        (b'data: {"choices":[{"delta":{},"finish_reason":"content_filter"}]}\n\n', CONTENT),
        (b'event: error\ndata: {"code":500,"details":"worker died"}\n\n', FAILED),
        (b'error: {"code":400,"message":"too long"}\n\n', FAILED),
        (b'{"error": {"message": "quota exceeded", "code": 429}}\n', FAILED),
    ],
)
def test_what_a_frame_is(data: bytes, progress: Progress) -> None:
    """Only tokens, a regular end and what is too large to judge are passed on; a filter would refuse again."""
    assert FirstContent("openai-chat").receive(data) is progress


@pytest.mark.parametrize(
    ("more", "progress"),
    [(b"", CONTENT), (b'data: {"error":{"message":"overloaded"}}\n\n', FAILED), (b"data: [DONE]\n\n", CONTENT)],
)
def test_a_finish_reason_may_come_early(more: bytes, progress: Progress) -> None:
    """It is a regular end unless a failure follows."""
    finder = FirstContent("openai-chat")
    assert finder.receive(b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n') is WAITING
    verdict = finder.receive(more)
    assert (finder.end() if verdict is WAITING else verdict) is progress


@pytest.mark.parametrize("cut", range(60))
def test_cuts_change_nothing(cut: int) -> None:
    """Content is found when its event is complete, wherever the reads end."""
    data = b'data: {"choices":[{"delta":{"content":"Hi"}}]}\r\n\r\n: ping\n\n'
    finder = FirstContent("openai-chat")
    first = finder.receive(data[:cut])
    assert CONTENT in (first, finder.receive(data[cut:]))
    assert first in (WAITING, CONTENT)
