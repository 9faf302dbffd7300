"""A Portkey config: what a client sends as `x-portkey-config`.

The members that carry traffic are a `loadbalance` group, behind which they come one by one as a `fallback`, and then
those that wait. Several routes become conditions on `metadata.route`; another name is an error and no guess. A key is
`{{KEY:name}}`, for whoever sends the config to fill in.
"""

import json
from typing import Any

from isochrone_client.errors import ClientError
from isochrone_client.gateways.members import groups, stamps
from isochrone_wire.routes import RegionTables, RouteEntry, RouteTable

MAX_BYTES = 8_000
"""What fits into a header."""

_PROVIDER = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "anthropic": "anthropic",
    "gemini": "google",
    "cohere": "cohere",
}
# What Portkey takes for trouble of the provider rather than of the request.
_ON_STATUS = [429, 500, 502, 503, 504, 529]
_DIGITS = 6


def render(tables: RegionTables) -> dict[str, str]:
    """The config as JSON. Raises `ClientError` when it would not fit into a header."""
    one, *others = tables.tables
    config = _several(tables.tables) if others else _route(one)
    text = json.dumps({**config, "isochrone": list(stamps(tables))}, ensure_ascii=False, separators=(",", ":"))
    if len(text.encode()) > MAX_BYTES:
        raise ClientError(
            f"the config of {len(tables.tables)} routes has {len(text.encode())} bytes, and a header holds {MAX_BYTES}",
            hint="export one route, with --route",
        )
    return {"": text + "\n"}


def _several(tables: tuple[RouteTable, ...]) -> dict[str, Any]:
    conditions = [{"query": {"metadata.route": {"$eq": table.route}}, "then": table.route} for table in tables]
    return {
        "strategy": {"mode": "conditional", "conditions": conditions},
        "targets": [{"name": table.route, **_route(table)} for table in tables],
    }


def _route(table: RouteTable) -> dict[str, Any]:
    first, *waiting = groups(table)
    balanced = {"strategy": {"mode": "loadbalance"}, "targets": [_member(entry) for entry in first]}
    # Whoever was drawn and failed is most likely the heaviest, so that one comes last when all are tried one by one.
    again = reversed(first) if len(first) > 1 else ()
    behind = [_member(entry, weighed=False) for group in ((*again,), *waiting) for entry in group]
    strategy = {"mode": "fallback", "on_status_codes": _ON_STATUS}
    return {"strategy": strategy, "targets": [balanced, *behind]}


def _member(entry: RouteEntry, *, weighed: bool = True) -> dict[str, Any]:
    member: dict[str, Any] = {
        "provider": _PROVIDER[entry.dialect],
        "custom_host": entry.base_url,
        "override_params": {"model": entry.model},
        # Portkey refuses a target without a key, even one that asks for none.
        "api_key": f"{{{{KEY:{entry.credential_ref}}}}}" if entry.credential_ref else "none",
    }
    if weighed:
        member["weight"] = round(entry.weight, _DIGITS) or 1
    return member
