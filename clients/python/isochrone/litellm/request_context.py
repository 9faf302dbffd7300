"""The caller's region and the earlier attempts of a request, from the keyword arguments that LiteLLM passes. Pure.

A caller can send any `metadata`, so nothing is assumed about the types of its values.
"""

from collections.abc import Iterator, Mapping
from typing import Any

METADATA_FIELD = "client_region"

_METADATA = ("litellm_metadata", "metadata")
# Requests for what only one provider has.
_PROVIDER_RESOURCES = ("file", "file_id", "input_file_id", "training_file", "batch_id", "fine_tuning_job_id")


def client_region(request: Mapping[str, Any], *, header: str, default: str | None) -> str | None:
    """The region of the caller: the request's `header`, else `client_region` in the metadata of the request, else in
    the metadata of its key, else the default.
    """
    found = [_header(request, header)]
    found += [metadata.get(METADATA_FIELD) for metadata in _metadata(request)]
    found += [_mapping(metadata.get("user_api_key_metadata")).get(METADATA_FIELD) for metadata in _metadata(request)]
    return next((region for region in found if isinstance(region, str) and region), default)


def is_for_one_provider(request: Mapping[str, Any]) -> bool:
    """Return whether the request is about a file, a batch or a fine-tuning job."""
    return any(request.get(name) for name in _PROVIDER_RESOURCES)


def is_further_attempt(request: Mapping[str, Any]) -> bool:
    """Return whether an attempt of this request has failed."""
    return bool(request.get("fallback_depth")) or any(one.get("attempted_retries") for one in _metadata(request))


def tried_deployments(request: Mapping[str, Any]) -> frozenset[str]:
    """The ids of the deployments that have failed for this request, as far as LiteLLM keeps them: the last four, those
    that it excludes after the order was decided, and those that refused the request.
    """
    # A caller may pass the same metadata with its next request.
    records = [one for data in _metadata(request) for one in _list(data.get("previous_models"))]
    failed = [_mapping(one).get("deployment_id") for one in records] if is_further_attempt(request) else []
    excluded = [*_list(request.get("_excluded_deployment_ids")), *_list(request.get("_retry_skipped_deployment_ids"))]
    return frozenset(one for one in [*failed, *excluded] if isinstance(one, str))


def deployment_of(call: Mapping[str, Any]) -> str | None:
    """The id of the deployment to which a call was sent."""
    found = _mapping(call.get("model_info")).get("id")
    return found if isinstance(found, str) else None


def _header(request: Mapping[str, Any], name: str) -> object:
    headers = _mapping(_mapping(request.get("proxy_server_request")).get("headers"))
    return next((value for key, value in headers.items() if str(key).lower() == name.lower()), None)


def _metadata(request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (_mapping(request.get(name)) for name in _METADATA)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple | set | frozenset) else []
