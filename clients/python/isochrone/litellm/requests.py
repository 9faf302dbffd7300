"""Requests in LiteLLM: the caller's region, the earlier attempts, and the order of their deployments. Pure.

The region and the attempts come from the keyword arguments that LiteLLM passes. It sends a request to a deployment of
the lowest `order`. After a failure it filters the deployments again: if the failed one kept its order, every further
attempt would go to it.

A caller can send any `metadata`, so nothing is assumed about the types of its values.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from isochrone.routing.attempts import order
from isochrone_wire.routes import RouteEntry

METADATA_FIELD = "client_region"

# Requests for what only one provider has.
_PROVIDER_RESOURCES = ("file", "file_id", "input_file_id", "training_file", "batch_id", "fine_tuning_job_id")


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


def is_further_attempt(request: Mapping[str, Any]) -> bool:
    """Return whether an attempt of this request has failed."""
    return bool(request.get("fallback_depth")) or any(one.get("attempted_retries") for one in _metadata(request))


def tried_deployments(request: Mapping[str, Any]) -> frozenset[str]:
    """The deployments that failed for this request, as LiteLLM keeps them: the last four, and those that it skips."""
    # A caller may pass the same metadata with its next request.
    records = [one for data in _metadata(request) for one in _list(data.get("previous_models"))]
    failed = [_mapping(one).get("deployment_id") for one in records] if is_further_attempt(request) else []
    excluded = [*_list(request.get("_excluded_deployment_ids")), *_list(request.get("_retry_skipped_deployment_ids"))]
    return frozenset(one for one in [*failed, *excluded] if isinstance(one, str))


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


def deployment_orders(
    entries: Sequence[RouteEntry],
    deployment_ids: Sequence[str],
    *,
    named: Mapping[str, str],
    tried: Collection[str] = (),
    resting: Collection[str] = (),
    draw: float,
) -> dict[str, int]:
    """The order of each deployment by its id, from 1; empty if none of them is a member.

    First comes the member drawn by weight (`draw` is from 0 to 1, excluded), then the others by rank, then deployments
    that are no member; those that are `resting` after a failure come behind these, and those that the request has
    `tried` come last. Deployments of the same target share an order.
    """
    targets = [entry.target for entry in entries]
    target = {one: target_of(one, targets, named=named) for one in deployment_ids}
    if not any(target.values()):
        return {}
    untried = {target[one] for one in deployment_ids if one not in tried}
    wanted = order([entry for entry in entries if entry.target in untried], unassigned=0.0, draw=draw)
    ranks = {entry.target: rank for rank, entry in enumerate(wanted)}

    def place(one: str) -> tuple[bool, bool, int]:
        return one in tried, one in resting, ranks.get(target[one] or "", len(ranks))

    places = sorted({place(one) for one in deployment_ids})
    return {one: places.index(place(one)) + 1 for one in deployment_ids}
