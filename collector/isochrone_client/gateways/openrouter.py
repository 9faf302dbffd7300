"""Fields for the body of requests to OpenRouter, for each route: its providers, or its models, in the order to try.

Members at the addresses of providers become `provider.order`, without fallbacks to others. If a route has members that
are measured through OpenRouter, only these are used, as `models`; there may be three. OpenRouter tries an order and has
no weights.

Formats: https://openrouter.ai/docs/guides/routing/provider-selection,
https://openrouter.ai/docs/guides/routing/model-fallbacks
"""

import json
from typing import Any

from isochrone_client.gateways.expressible import VENDORS, expressible, host, metadata
from isochrone_common.route_consumer import read_json_metadata
from isochrone_wire.routes import RegionTables, RouteEntry, RouteTable

_SELF = "openrouter.ai"
_PROVIDER = VENDORS | {
    "api.deepinfra.com": "deepinfra",
    "api.fireworks.ai": "fireworks",
    "api.minimax.io": "minimax",
    "api.moonshot.ai": "moonshotai",
    "api.stepfun.com": "stepfun",
    "api.together.xyz": "together",
    "api.x.ai": "xai",
    "api.z.ai": "z-ai",
    "dashscope-intl.aliyuncs.com": "alibaba",
}


def render(tables: RegionTables) -> dict[str, str]:
    """The fields of each route as JSON. Raises `ClientError` if OpenRouter has no member."""
    hint = "it has providers at their own addresses, and members at openrouter.ai"
    parts = expressible(tables, _callable, gateway="OpenRouter", hint=hint)
    routes: dict[str, dict[str, Any]] = {}
    for table in (part.table for part in parts if part.table.entries):
        members = _order(table)
        if host(members[0]) == _SELF:
            routes[table.route] = {"models": [entry.model for entry in members]}
            continue
        # A provider may have several members, of which OpenRouter sees one.
        order = dict.fromkeys(_PROVIDER[host(entry)] for entry in members)
        routes[table.route] = {"provider": {"order": list(order), "allow_fallbacks": False}}
    document = {"isochrone": list(metadata(tables, parts)), "routes": routes}
    return {"": json.dumps(document, ensure_ascii=False, indent=1) + "\n"}


read_metadata = read_json_metadata


def _callable(table: RouteTable) -> list[RouteEntry]:
    own = [entry for entry in _order(table) if host(entry) == _SELF][:3]
    return [entry for entry in table.entries if (entry in own if own else host(entry) in _PROVIDER)]


def _order(table: RouteTable) -> list[RouteEntry]:
    """The members, those with the largest weight first, and those without one by rank."""
    return sorted(table.entries, key=lambda entry: -entry.weight)
