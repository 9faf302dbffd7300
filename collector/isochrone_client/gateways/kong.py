"""A declarative configuration of Kong Gateway, which decK applies: for each route, the plug-in `ai-proxy-advanced`.

A request names its route in the header `x-isochrone-route`. Its `model` is removed, because the plug-in refuses another
one than that of its target. If one member has all the traffic, the order of the members is their priority. Otherwise
they share it by weight, and each member without a weight has about one request in ten thousand. The keys are variables
in the environment of decK.

Formats: https://developer.konghq.com/plugins/ai-proxy-advanced/reference/ (versions 3.10 to 3.15),
https://developer.konghq.com/plugins/request-transformer/reference/, https://developer.konghq.com/deck/gateway/tags/,
https://developer.konghq.com/deck/reference/env-variables/
"""

from dataclasses import dataclass
from typing import Any

from isochrone_client.gateways.expressible import expressible, host, identifier, left_out_lines
from isochrone_client.gateways.yaml_text import Template, dump_yaml
from isochrone_common.envoy import ROUTE_HEADER
from isochrone_common.route_consumer import header_lines, key_variable, priority_groups, read_header_lines
from isochrone_wire.routes import RegionTables, RouteEntry, RouteTable

# A POST is repeated only with `non_idempotent`.
_ON_FAILURE = (
    *("error", "timeout", "invalid_header", "non_idempotent"),
    *("http_429", "http_500", "http_502", "http_503", "http_504"),
)
_TAG = "isochrone"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Driver:
    """Kong's driver for a dialect. `path` follows the base URL; a driver without one calls `only_host`."""

    provider: str
    route_type: str = "llm/v1/chat"
    path: str = ""
    only_host: str = ""


_DRIVERS = {
    "openai-chat": _Driver(provider="openai", path="/chat/completions"),
    "openai-responses": _Driver(provider="openai", path="/responses", route_type="llm/v1/responses"),
    "anthropic": _Driver(provider="anthropic", path="/messages"),
    "gemini": _Driver(provider="gemini", only_host="generativelanguage.googleapis.com"),
    "cohere": _Driver(provider="cohere", only_host="api.cohere.com"),
}


def render(tables: RegionTables) -> dict[str, str]:
    """The configuration as YAML. Raises `ClientError` if Kong can call no member."""
    parts = expressible(tables, _callable, gateway="Kong", hint="members of gemini and cohere need the vendor's host")
    document = {
        "_format_version": "3.0",
        # decK leaves everything without this tag alone.
        "_info": {"select_tags": [_TAG]},
        # The plug-in calls the members; the address of the service is never used.
        "services": [
            {
                "name": _TAG,
                "url": "http://localhost:32000",
                "routes": [_route(part.table) for part in parts if part.table.entries],
            }
        ],
    }
    return {"": dump_yaml(document, comment=[*header_lines(tables), *left_out_lines(parts)])}


read_metadata = read_header_lines


def _callable(table: RouteTable) -> list[RouteEntry]:
    """The members at hosts that Kong can call, with the operation of the first one."""
    known = [entry for entry in table.entries if _DRIVERS[entry.dialect].only_host in ("", host(entry))]
    operations = [_DRIVERS[entry.dialect].route_type for entry in known]
    return [entry for entry, operation in zip(known, operations, strict=True) if operation == operations[0]]


def _route(table: RouteTable) -> dict[str, Any]:
    first, *others = priority_groups(table)
    members = [*first, *(entry for (entry,) in others)]
    # Members of equal weight would be one group.
    algorithm, weights = "priority", [*range(len(members), 0, -1)]
    if len(first) > 1:
        algorithm = "round-robin"
        weights = [*(max(1, round(entry.weight * 10_000)) for entry in first), *(1 for _ in others)]
    targets = [_target(entry, weight) for entry, weight in zip(members, weights, strict=True)]
    balancer = {"algorithm": algorithm, "retries": len(members), "failover_criteria": list(_ON_FAILURE)}
    return {
        "name": f"{_TAG}-{identifier(table.route)}",
        "headers": {ROUTE_HEADER: [table.route]},
        "plugins": [
            {"name": "request-transformer", "config": {"remove": {"body": ["model"]}}},
            {"name": "ai-proxy-advanced", "config": {"balancer": balancer, "targets": targets}},
        ],
    }


def _target(entry: RouteEntry, weight: int) -> dict[str, Any]:
    driver = _DRIVERS[entry.dialect]
    options = {"upstream_url": f"{entry.base_url}{driver.path}"} if driver.path else {}
    if entry.dialect == "anthropic":
        options["anthropic_version"] = "2023-06-01"
    model = {"provider": driver.provider, "name": entry.model} | ({"options": options} if options else {})
    auth = {"auth": _auth(entry.dialect, entry.credential_ref)} if entry.credential_ref else {}
    return {"route_type": driver.route_type, "model": model, **auth, "weight": weight}


def _auth(dialect: str, credential_ref: str) -> dict[str, str]:
    key = f'${{{{ env "DECK_{key_variable(credential_ref)}" }}}}'
    if dialect == "gemini":
        return {"param_name": "key", "param_location": "query", "param_value": Template(key)}
    if dialect == "anthropic":
        return {"header_name": "x-api-key", "header_value": Template(key)}
    return {"header_name": "Authorization", "header_value": Template(f"Bearer {key}")}
