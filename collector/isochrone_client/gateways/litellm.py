"""A configuration of the LiteLLM proxy: `model_list` and `router_settings`.

LiteLLM tries the deployments of the lowest `order` first, chosen by weight, and goes to the next order if they fail.
The members with a weight therefore have order 1, and the others follow by rank.
"""

from collections import Counter
from typing import Any

from isochrone_client.gateways.expressible import NO_QUERY, expressible, left_out_lines
from isochrone_client.gateways.yaml_text import dump_yaml
from isochrone_common.route_consumer import header_lines, key_variable, priority_groups, read_header_lines
from isochrone_wire.routes import RegionTables, RouteEntry

# LiteLLM's prefix for each dialect, and the suffix it needs after the base URL.
_PROVIDER = {
    "openai-chat": ("openai/", ""),
    "openai-responses": ("openai/responses/", ""),
    "anthropic": ("anthropic/", ""),
    "gemini": ("gemini/", ""),
    "cohere": ("cohere/", "/chat"),
}


def render(tables: RegionTables) -> dict[str, str]:
    """The configuration as YAML. Raises `ClientError` if LiteLLM can call no member."""
    parts = expressible(tables, lambda table: table.entries, gateway="LiteLLM", hint=NO_QUERY)
    usable = [part.table for part in parts]
    named = Counter(entry.target for table in usable for entry in table.entries)
    models = [
        _deployment(table.route, entry, order=order, shared=named[entry.target] > 1)
        for table in usable
        for order, group in enumerate(priority_groups(table), start=1)
        for entry in group
    ]
    most = max((len(table.entries) for table in usable), default=1)
    settings = {
        "routing_strategy": "simple-shuffle",
        "enable_weighted_failover": True,
        # One attempt on each of two other members; callers do not wait for more.
        "num_retries": min(most - 1, 2),
    }
    document = {"model_list": models, "router_settings": settings}
    comment = [
        *header_lines(tables),
        *left_out_lines(parts),
        "The proxy reads the keys from the environment variables named here.",
    ]
    return {"": dump_yaml(document, comment=comment)}


read_metadata = read_header_lines


def _deployment(route: str, entry: RouteEntry, *, order: int, shared: bool) -> dict[str, Any]:
    """One deployment. Ids must be unique, so the id of a target that several routes share includes the route."""
    prefix, suffix = _PROVIDER[entry.dialect]
    params: dict[str, Any] = {"model": f"{prefix}{entry.model}", "api_base": f"{entry.base_url}{suffix}"}
    # LiteLLM rejects a provider without a key, even if the provider needs none.
    params["api_key"] = f"os.environ/{key_variable(entry.credential_ref)}" if entry.credential_ref else "none"
    return {
        "model_name": route,
        "litellm_params": params | {"weight": round(entry.weight, 6) or 1, "order": order},
        "model_info": {"id": f"{entry.target}@{route}" if shared else entry.target},
    }
