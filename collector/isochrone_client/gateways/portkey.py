"""A Portkey config, the value of the header `x-portkey-config`.

A request chooses its route by its `model`, or by `metadata.route`; an unknown route is an error. The members with a
weight are a `loadbalance` group; if it fails, each of them is tried again as a `fallback`, then the members without a
weight. A key is the placeholder `{{KEY:name}}`, which the sender of the config fills in.
"""

import json
from typing import Any

from isochrone_client.errors import ClientError
from isochrone_client.gateways.expressible import NO_QUERY, expressible, metadata
from isochrone_common.route_consumer import priority_groups, read_json_metadata
from isochrone_wire.routes import RegionTables, RouteEntry, RouteTable

MAX_BYTES = 8_000
"""The size limit of a header."""

_PROVIDER = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "anthropic": "anthropic",
    "gemini": "google",
    "cohere": "cohere",
}
# The end of base URLs that Portkey adds itself.
_ADDED = {"gemini": "/v1beta", "cohere": "/v2"}


def render(tables: RegionTables) -> dict[str, str]:
    """The config as JSON. Raises `ClientError` if it is too large for a header, or if Portkey can call no member."""
    parts = expressible(tables, lambda table: table.entries, gateway="Portkey", hint=NO_QUERY)
    usable = [part.table for part in parts if part.table.entries]
    conditions = [
        {
            "query": {"$or": [{name: {"$eq": table.route}} for name in ("params.model", "metadata.route")]},
            "then": table.route,
        }
        for table in usable
    ]
    config = {
        "strategy": {"mode": "conditional", "conditions": conditions},
        "targets": [{"name": table.route, **_route(table)} for table in usable],
        "isochrone": list(metadata(tables, parts)),
    }
    text = json.dumps(config, separators=(",", ":"))  # headers are ASCII
    if len(text) > MAX_BYTES:
        raise ClientError(
            f"the config of {len(tables.tables)} routes is too large: {len(text)} bytes, at most {MAX_BYTES}",
            hint="export one route with --route",
        )
    return {"": text + "\n"}


read_metadata = read_json_metadata


def _route(table: RouteTable) -> dict[str, Any]:
    first, *unweighted = priority_groups(table)
    balanced = {"strategy": {"mode": "loadbalance"}, "targets": [_member(entry) for entry in first]}
    # The member that was drawn and failed is most likely the one with the largest weight, so it is tried last.
    one_by_one = reversed(first) if len(first) > 1 else ()
    fallbacks = [_member(entry, with_weight=False) for group in ((*one_by_one,), *unweighted) for entry in group]
    # The status codes on which Portkey tries the next target.
    strategy = {"mode": "fallback", "on_status_codes": [429, 500, 502, 503, 504, 529]}
    return {"strategy": strategy, "targets": [balanced, *fallbacks]}


def _member(entry: RouteEntry, *, with_weight: bool = True) -> dict[str, Any]:
    member: dict[str, Any] = {
        "provider": _PROVIDER[entry.dialect],
        "custom_host": entry.base_url.removesuffix(_ADDED.get(entry.dialect, "/")),
        "override_params": {"model": entry.model},
        # Portkey rejects a target without a key, even if the provider needs none.
        "api_key": f"{{{{KEY:{entry.credential_ref}}}}}" if entry.credential_ref else "none",
    }
    if with_weight:
        member["weight"] = round(entry.weight, 6) or 1
    return member
