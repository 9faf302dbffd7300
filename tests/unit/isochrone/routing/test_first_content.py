"""The first content of a stream in each dialect, and failures before it."""

import json

import pytest

from isochrone.routing.requests import FirstContent, Progress

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
        ("openai-chat", chat(tool_calls=[{}]), CONTENT),
        ("openai-chat", {"choices": [{"delta": {}, "finish_reason": "stop"}]}, CONTENT),
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
        ("anthropic", {"type": "content_block_delta"}, CONTENT),
        ("anthropic", {"type": "message_stop"}, CONTENT),
        ("anthropic", {"type": "error"}, FAILED),
    ],
)
def test_what_a_message_is(dialect: str, message: dict[str, object], progress: Progress) -> None:
    """Openings and pings are no content; a name of a tool is."""
    assert FirstContent(dialect).receive(b"data: " + json.dumps(message).encode() + b"\n\n") is progress


@pytest.mark.parametrize("data", [b"data: [DONE]\n\n", b"data: {garbage\n\n", b"data: 1\n\n", b"x" * 2_000_000])
def test_what_cannot_be_read_is_passed_on(data: bytes) -> None:
    """The SDK judges it, as without this client."""
    assert FirstContent("openai-chat").receive(data) is CONTENT


@pytest.mark.parametrize("cut", range(60))
def test_cuts_change_nothing(cut: int) -> None:
    """Content is found when its event is complete, wherever the reads end."""
    data = b'data: {"choices":[{"delta":{"content":"Hi"}}]}\r\n\r\n: ping\n\n'
    finder = FirstContent("openai-chat")
    first = finder.receive(data[:cut])
    assert CONTENT in (first, finder.receive(data[cut:]))
    assert first in (WAITING, CONTENT)
