"""Requests in LiteLLM: the caller's region, the earlier attempts, and the deployments that they go to. Pure.

LiteLLM filters the deployments for each attempt and sends the request to one of those that are left: without a record
of the failed ones, every further attempt would go to the same.

A caller can send any `metadata`, so nothing is assumed about the types of its values.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from isochrone.routing.attempts import order
from isochrone_wire.routes import RouteEntry

METADATA_FIELD = "client_region"

# Requests for what only one provider has.
_PROVIDER_RESOURCES = ("file", "file_id", "input_file_id", "training_file", "batch_id", "fine_tuning_job_id")

# The fields in which LiteLLM names deployments that have failed for a request.
_FAILED = ("_excluded_deployment_ids", "_retry_skipped_deployment_ids")


def client_region(request: Mapping[str, Any], *, header: str, default: str | None) -> str | None:
    """The caller's region: by the header, the metadata of the request or of its key, or the default."""
    headers = _mapping(_mapping(request.get("proxy_server_request")).get("headers"))
    found = [next((value for key, value in headers.items() if str(key).lower() == header.lower()), None)]
    found += [metadata.get(METADATA_FIELD) for metadata in _metadata(request)]
    found += [_mapping(metadata.get("user_api_key_metadata")).get(METADATA_FIELD) for metadata in _metadata(request)]
    return next((region for region in found if isinstance(region, str) and region), default)


def is_for_one_provider(request: Mapping[str, Any]) -> bool:
    """Return whether the request is about a file, a batch or a fine-tuning job."""
    return any(request.get(name) for name in _PROVIDER_RESOURCES)


def is_for_responses(request: Mapping[str, Any]) -> bool:
    """Return whether the request is for OpenAI's Responses API."""
    return "input" in request and "litellm_metadata" in request and request.get("messages") is None


def failed_deployments(request: Mapping[str, Any]) -> frozenset[str]:
    """The deployments that LiteLLM leaves out because they have failed for this request."""
    return frozenset(one for name in _FAILED for one in _list(request.get(name)) if isinstance(one, str))


def deployment_of(call: Mapping[str, Any]) -> str | None:
    """The id of the deployment to which a call was sent."""
    found = _mapping(call.get("model_info")).get("id")
    return found if isinstance(found, str) else None


def _metadata(request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (_mapping(request.get(name)) for name in ("litellm_metadata", "metadata"))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple | set | frozenset) else []


def target_of(deployment_id: str, targets: Collection[str], *, named: Mapping[str, str]) -> str | None:
    """The target of a deployment by `named` or by its id, without a suffix from the last `@`; `None` for others."""
    name = named.get(deployment_id, deployment_id)
    return next((one for one in (name, name.rpartition("@")[0]) if one in targets), None)


def chosen_deployments(
    entries: Sequence[RouteEntry],
    target: Mapping[str, str | None],
    *,
    tried: Collection[str] = (),
    resting: Collection[str] = (),
    draw: float,
) -> frozenset[str]:
    """The deployments that a request goes to, of those whose `target` is given by their id; none without a member.

    They are those of the member drawn by weight (`draw` is from 0 to 1, excluded, and the same for all attempts), else
    of the first by rank, else those that are no member; if they are `resting` after a failure, those that are not; and
    those that the request has `tried` only if nothing else is left.
    """
    if not any(target.values()):
        return frozenset()
    wanted = order([entry for entry in entries if entry.target in target.values()], unassigned=0.0, draw=draw)
    ranks = {entry.target: rank for rank, entry in enumerate(wanted)}

    def place(one: str) -> tuple[bool, bool, int]:
        return one in tried, one in resting, ranks.get(target[one] or "", len(ranks))

    first = min(map(place, target))
    return frozenset(one for one in target if place(one) == first)
