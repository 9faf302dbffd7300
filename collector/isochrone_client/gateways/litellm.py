"""A configuration of the LiteLLM proxy: `model_list` and `router_settings`.

LiteLLM tries the deployments of the lowest `order` first, by weight among them, and goes to the next order when they
fail. So those that carry traffic share order 1, and the others follow by rank.
"""

from collections import Counter
from typing import Any

from isochrone_client.gateways import yaml
from isochrone_client.gateways.members import groups, opening, variable_of
from isochrone_wire.routes import RegionTables, RouteEntry

# What LiteLLM calls each dialect, and what it wants behind a base URL.
_PROVIDER = {
    "openai-chat": ("openai/", ""),
    "openai-responses": ("openai/responses/", ""),
    "anthropic": ("anthropic/", ""),
    "gemini": ("gemini/", ""),
    "cohere": ("cohere/", "/chat"),
}
_DIGITS = 6
# One try for each of two others, which is what a caller's patience allows.
_MAX_RETRIES = 2


def render(tables: RegionTables) -> dict[str, str]:
    """The configuration as YAML."""
    named = Counter(entry.target for table in tables.tables for entry in table.entries)
    models = [
        _deployment(table.route, entry, order=order, shared=named[entry.target] > 1)
        for table in tables.tables
        for order, group in enumerate(groups(table), start=1)
        for entry in group
    ]
    most = max((len(table.entries) for table in tables.tables), default=1)
    settings = {
        "routing_strategy": "simple-shuffle",
        "enable_weighted_failover": True,
        "num_retries": min(most - 1, _MAX_RETRIES),
    }
    document = {"model_list": models, "router_settings": settings}
    head = [*opening(tables), "Keys are in the environment of the proxy, under the names that stand here."]
    return {"": yaml.written(document, head=head)}


def _deployment(route: str, entry: RouteEntry, *, order: int, shared: bool) -> dict[str, Any]:
    """One deployment. Ids must differ in a configuration, so a target of several routes has the route in its id."""
    prefix, suffix = _PROVIDER[entry.dialect]
    params: dict[str, Any] = {"model": f"{prefix}{entry.model}", "api_base": f"{entry.base_url}{suffix}"}
    # LiteLLM refuses a provider without a key, even one that asks for none.
    params["api_key"] = f"os.environ/{variable_of(entry.credential_ref)}" if entry.credential_ref else "none"
    return {
        "model_name": route,
        "litellm_params": params | {"weight": round(entry.weight, _DIGITS) or 1, "order": order},
        "model_info": {"id": f"{entry.target}@{route}" if shared else entry.target},
    }
