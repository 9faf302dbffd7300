"""The region and the earlier attempts of a request of LiteLLM's."""

from typing import Any

import pytest

from isochrone.litellm import requests

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
    ("request_fields", "tried"),
    [
        ({}, set()),
        ({"metadata": {"previous_models": ({"deployment_id": "a"},)}}, set()),
        ({"metadata": {"previous_models": ({"deployment_id": "a"},), "attempted_retries": 0}}, set()),
        ({"metadata": {"previous_models": ({"deployment_id": "a"},), "attempted_retries": 1}}, {"a"}),
        ({"litellm_metadata": {"previous_models": [{"deployment_id": "a"}]}, "fallback_depth": 1}, {"a"}),
        ({"metadata": {"previous_models": [{}, 7, {"deployment_id": None}], "attempted_retries": 2}}, set()),
        ({"metadata": {"previous_models": 7, "attempted_retries": "yes"}}, set()),
        ({"_retry_skipped_deployment_ids": ("b",)}, {"b"}),
        ({"_excluded_deployment_ids": ["a", "b"], "fallback_depth": 1}, {"a", "b"}),
        ({"_excluded_deployment_ids": "ab"}, set()),
    ],
)
def test_tried_deployments(request_fields: dict[str, Any], tried: set[str]) -> None:
    """Those that LiteLLM notes or excludes for this request, but not those of an earlier one with the same metadata."""
    assert requests.tried_deployments(request_fields) == tried


@pytest.mark.parametrize("name", ["file", "file_id", "input_file_id", "training_file", "batch_id"])
def test_requests_for_one_provider(name: str) -> None:
    """A file or a batch exists at one provider only."""
    assert requests.is_for_one_provider({name: "x-1"})
    assert not requests.is_for_one_provider({name: None, "messages": []})


def test_deployment_of() -> None:
    """The deployment of a call, if it has one."""
    assert requests.deployment_of({"model_info": {"id": "a"}}) == "a"
    assert requests.deployment_of({"model_info": None}) is None
