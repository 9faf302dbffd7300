"""Requests of SDKs: what can be routed, and what changes on the way to a member."""

import json
from dataclasses import replace

import pytest

from isochrone.routing import requests
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


def test_the_body_changes_in_its_model_only() -> None:
    """Large numbers, fractions and other alphabets stay as they are."""
    request = requests.read_request("POST", "https://x/v1/chat/completions", BODY)
    assert request is not None
    assert json.loads(requests.body(request, ENTRY)) == json.loads(BODY) | {"model": "model-a"}


def test_half_of_a_character_stays_escaped() -> None:
    """A text that was cut within a surrogate pair is JSON, although no UTF-8."""
    cut = b'{"model": "chat", "user": "\\ud83d"}'
    request = requests.read_request("POST", "https://x/v1/chat/completions", cut)
    assert request is not None
    assert requests.body(request, ENTRY) == b'{"model":"model-a","user":"\\ud83d"}'


def test_the_address_is_the_members() -> None:
    """The path after the base URL and the query stay."""
    request = requests.read_request("POST", "https://x/v1/messages?beta=true", BODY)
    assert request is not None
    assert requests.address(request, ENTRY) == "https://a.example:8443/v9/messages?beta=true"


def test_a_host_in_other_letters() -> None:
    """Hosts are sent in punycode and paths in percent codes; a plan may have both in their own letters."""
    request = requests.read_request("POST", "https://x/v1/chat/completions", BODY)
    assert request is not None
    entry = replace(ENTRY, base_url="https://bücher.example:8443/ü/v1")
    assert requests.address(request, entry) == "https://xn--bcher-kva.example:8443/%C3%BC/v1/chat/completions"
    assert (b"host", b"xn--bcher-kva.example:8443") in requests.headers([], request, entry, key=None, size=1)


def test_the_callers_key_never_goes_with_the_members() -> None:
    """With a key of its own, a member gets none of the caller's, in any of the headers of keys."""
    request = requests.read_request("POST", "https://x/v1/chat/completions", BODY)
    assert request is not None
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
    found = requests.headers(given, request, ENTRY, key="own", size=7)
    assert sorted(found) == [
        (b"X-Trace", b"1"),
        (b"accept-encoding", b"identity"),
        (b"authorization", b"Bearer own"),
        (b"content-length", b"7"),
        (b"host", b"a.example:8443"),
    ]


@pytest.mark.parametrize(
    ("document", "has_tools"),
    [
        ({}, False),
        ({"tools": []}, False),
        ({"tools": [{}]}, True),
        ({"functions": [{}]}, True),
        ({"mcp_servers": [{}]}, True),
        ({"conversation": "conv_1"}, True),
        ({"tools": [{}], "tool_choice": "none"}, False),
        ({"tools": [{}], "tool_choice": {"type": "none"}}, False),
        ({"tools": [{}], "tool_choice": "auto"}, True),
    ],
)
def test_which_requests_have_tools(document: dict[str, object], *, has_tools: bool) -> None:
    """Tools that the model must not call have no effects; to add to a conversation twice is one."""
    request = requests.ProviderRequest(dialect="openai-chat", endpoint="", document=document)
    assert request.has_tools is has_tools
