"""The callback of LiteLLM: settings, the region and the earlier attempts of a request, and the order of deployments."""

import ssl
from typing import Any

import pytest

from isochrone.litellm import SettingsError, arguments, requests
from isochrone.litellm.requests import chosen_deployments, target_of
from isochrone_wire.routes import RouteEntry

GOOD: dict[str, Any] = {"url": "http://127.0.0.1:4680", "regions": ["us-east-2"], "deployments": {"mine": "x/a"}}


def test_good_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the arguments of the callback; `ca_file` becomes a TLS context."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    monkeypatch.setattr(ssl, "create_default_context", lambda cafile: made if cafile == "ca.pem" else None)
    assert arguments(GOOD) == GOOD
    assert arguments(GOOD | {"ca_file": "ca.pem"}) == {**GOOD, "ssl_context": made}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"regoins": []}, "`regoins` is not a setting: use url, default_region"),
        ({"token": None}, "token has no value: is its environment variable set?"),
        ({"regions": "us-east-2"}, "regions is 'us-east-2': it has to be a list of texts"),
        ({"regions": ["us-east-2", ""]}, "it has to be a list of texts"),
        ({"deployments": ["x/a"]}, "it has to be a target by the id of each deployment"),
        ({"deployments": {"mine": 7}}, "it has to be a target by the id of each deployment"),
        ({"default_region": 7}, "default_region is 7: it has to be a text"),
    ],
)
def test_bad_settings(change: dict[str, Any], sentence: str) -> None:
    """Each error names the setting and what to do."""
    with pytest.raises(SettingsError, match=r"callback_settings\.isochrone") as caught:
        arguments(GOOD | change)
    assert sentence in str(caught.value)


def test_missing_settings() -> None:
    """Without an address there is nothing to follow."""
    with pytest.raises(SettingsError, match="has no `url`"):
        arguments({"regions": ["us-east-2"]})
    with pytest.raises(SettingsError, match="is missing"):
        arguments(None)


HEADERS = {"proxy_server_request": {"headers": {"x-client-region": "header"}}}
OF_KEY = {"user_api_key_metadata": {"client_region": "key"}}


@pytest.mark.parametrize(
    ("request_fields", "region"),
    [
        ({}, "default"),
        (HEADERS, "header"),
        ({"proxy_server_request": {"headers": {"X-Client-Region": "other case"}}}, "other case"),
        ({**HEADERS, "metadata": {"client_region": "metadata"}}, "header"),
        ({"metadata": {"client_region": "metadata", **OF_KEY}}, "metadata"),
        ({"metadata": OF_KEY}, "key"),
        ({"litellm_metadata": OF_KEY, "metadata": {}}, "key"),
        ({"metadata": {"client_region": ""}}, "default"),
        ({"metadata": {"client_region": ["x"]}, "proxy_server_request": None}, "default"),
        ({"metadata": 7, "proxy_server_request": {"headers": None}}, "default"),
    ],
)
def test_client_region(request_fields: dict[str, Any], region: str) -> None:
    """Header, metadata of the request, metadata of the key, default; whatever types a caller sends."""
    found = requests.client_region(request_fields, header="X-Client-Region", default="default")
    assert found == region


@pytest.mark.parametrize(
    ("request_fields", "failed"),
    [
        ({}, set()),
        ({"_retry_skipped_deployment_ids": ("b",)}, {"b"}),
        ({"_excluded_deployment_ids": ["a", "b"], "_retry_skipped_deployment_ids": ("c",)}, {"a", "b", "c"}),
        ({"_excluded_deployment_ids": "ab", "_retry_skipped_deployment_ids": [7]}, set()),
    ],
)
def test_failed_deployments(request_fields: dict[str, Any], failed: set[str]) -> None:
    """Those that LiteLLM excludes for this request."""
    assert requests.failed_deployments(request_fields) == failed


@pytest.mark.parametrize("name", ["file", "file_id", "input_file_id", "training_file", "batch_id"])
def test_requests_for_one_provider(name: str) -> None:
    """A file or a batch exists at one provider only."""
    assert requests.is_for_one_provider({name: "x-1"})
    assert not requests.is_for_one_provider({name: None, "messages": []})


def test_deployment_of() -> None:
    """The deployment of a call, if it has one."""
    assert requests.deployment_of({"model_info": {"id": "a"}}) == "a"
    assert requests.deployment_of({"model_info": None}) is None


def entries(**weights: float) -> list[RouteEntry]:
    """Members by name, in rank order, with their weights."""
    return [
        RouteEntry(
            rank=rank, weight=weight, target=f"x/{name}", provider="x", model=name, dialect="openai-chat", base_url="-"
        )
        for rank, (name, weight) in enumerate(weights.items(), start=1)
    ]


@pytest.mark.parametrize(
    ("deployment_id", "target"),
    [
        ("x/a", "x/a"),
        ("x/a@chat", "x/a"),
        ("x/a@2025", "x/a@2025"),
        ("x/a@2025@chat", "x/a@2025"),
        ("mine", "x/b"),
        ("x/c", None),
        ("d1f3", None),
        ("", None),
    ],
)
def test_target_of(deployment_id: str, target: str | None) -> None:
    """A deployment is named by the settings or by its id; targets may contain the character that makes ids unique."""
    assert target_of(deployment_id, ["x/a", "x/a@2025", "x/b"], named={"mine": "x/b"}) == target


@pytest.mark.parametrize(
    ("draw", "tried", "resting", "chosen"),
    [
        (0.0, "", "", "a"),
        (0.8, "", "", "b"),
        (0.0, "a", "", "b"),
        (0.99, "a b", "", "c"),
        (0.0, "a b c", "", "other"),
        (0.0, "", "a", "b"),
        (0.0, "b", "a", "c"),
        (0.0, "b", "a c", "other"),
        (0.0, "b other", "a c", "a"),
        (0.0, "a b c other", "", "a"),
    ],
)
def test_chosen_deployments(draw: float, tried: str, resting: str, chosen: str) -> None:
    """The drawn member, else the next by rank, else other deployments; resting ones, and last those that were tried."""
    found = chosen_deployments(
        entries(a=0.75, b=0.25, c=0.0),
        {"other": None, "c": "x/c", "b": "x/b", "a": "x/a"},
        tried=tried.split(),
        resting=resting.split(),
        draw=draw,
    )
    assert found == set(chosen.split())


def test_deployments_of_one_target() -> None:
    """LiteLLM chooses among the deployments of a target; one that has failed is left out. Without a member none is."""
    members = entries(a=1.0, b=0.0)
    target: dict[str, str | None] = {"a@1": "x/a", "a@2": "x/a", "b": "x/b"}
    assert chosen_deployments(members, target, draw=0.5) == {"a@1", "a@2"}
    assert chosen_deployments(members, target, tried=["a@1"], draw=0.5) == {"a@2"}
    assert chosen_deployments(members, {"d1": None, "d2": None}, draw=0.5) == set()
    assert chosen_deployments(members, {}, draw=0.5) == set()


def test_requests_for_the_responses_api() -> None:
    """They have an input and no messages; embeddings have that too, but keep their metadata elsewhere."""
    assert requests.is_for_responses({"input": "Hi", "litellm_metadata": {}})
    assert not requests.is_for_responses({"input": ["Hi"], "metadata": {}})
    assert not requests.is_for_responses({"messages": [], "litellm_metadata": {}})
