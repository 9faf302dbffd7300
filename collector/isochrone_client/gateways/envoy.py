"""Envoy configuration files: a `RouteConfiguration` that splits traffic by weight, and its clusters.

A request names its route in the header `x-isochrone-route`. Each member is a cluster that sets its host name in TLS and
in the request. Weights apply to aggregate clusters: the member first, then the others, so that retries and hedged
requests go to another member. `per_try_timeout` is the hedge delay of the table; it ends with the response's headers.

Keys come from Envoy's environment and replace the caller's. Envoy sets the key once for all tries of a request, so an
aggregate cluster holds only members with the same key. Envoy does not change bodies: the model is the one in the
request, and members whose base URL has a different path from the first one's are left out.
"""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from isochrone_client.gateways.members import key_variable, priority_groups, table_metadata
from isochrone_wire.routes import RegionTables, RouteEntry, RouteTable

ROUTE_HEADER = "x-isochrone-route"
CLUSTERS = "clusters"
"""The part of the second file's name before the suffix."""

_TYPE = "type.googleapis.com/envoy"
_TOTAL_WEIGHT = 10_000
_PREFIX = "/v1/"
_CA = "/etc/ssl/certs/ca-certificates.crt"
_RETRY_ON = "connect-failure,refused-stream,reset,5xx,retriable-status-codes"
_THROTTLED = 429
_US_PER_S = 1_000_000
_KEY_HEADERS = ("authorization", "x-api-key", "x-goog-api-key")
_KEY_HEADER = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}


def render(tables: RegionTables) -> dict[str, str]:
    """The RDS response and, under `clusters`, the CDS response, as files that Envoy can watch."""
    ranked = [table for table in tables.tables if table.entries]
    routes = {
        "@type": f"{_TYPE}.config.route.v3.RouteConfiguration",
        "name": "isochrone",
        "virtual_hosts": [{"name": "isochrone", "domains": ["*"], "routes": [_route(table) for table in ranked]}],
        "response_headers_to_add": [_header("x-isochrone-generation", str(tables.generation))],
    }
    hosts = {entry.target: entry for table in ranked for entry in _reachable(table)}
    clusters = [
        *map(_cluster, hosts.values()),
        *(cluster for table in ranked for cluster in _aggregate_clusters(table)),
    ]
    return {CLUSTERS: _answer(tables, clusters), "": _answer(tables, [_with_metadata(tables, routes)])}


def _answer(tables: RegionTables, resources: list[dict[str, Any]]) -> str:
    document = {"version_info": str(tables.generation), "resources": resources}
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _with_metadata(tables: RegionTables, routes: dict[str, Any]) -> dict[str, Any]:
    return routes | {"metadata": {"filter_metadata": {"isochrone": {"tables": list(table_metadata(tables))}}}}


def _header(key: str, value: str) -> dict[str, Any]:
    return {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}


def _reachable(table: RouteTable) -> list[RouteEntry]:
    """The members in the order of attempts, without those with a different base path from the first one's."""
    ordered = [entry for group in priority_groups(table) for entry in group]
    return [entry for entry in ordered if urlsplit(entry.base_url).path == urlsplit(ordered[0].base_url).path]


def _route(table: RouteTable) -> dict[str, Any]:
    members = _reachable(table)
    path = urlsplit(members[0].base_url).path
    match = {"prefix": _PREFIX, "headers": [{"name": ROUTE_HEADER, "string_match": {"exact": table.route}}]}
    action: dict[str, Any] = {
        "weighted_clusters": {"clusters": list(_weighted(table, members))},
        "prefix_rewrite": f"{path}/",
        "auto_host_rewrite": True,
        # No limit: a stream may take any time.
        "timeout": "0s",
    }
    return {
        "name": table.route,
        "match": match,
        "route": action | _retry_and_hedge(_fallback_order(members[0], members)),
    }


def _weighted(table: RouteTable, members: list[RouteEntry]) -> Iterator[dict[str, Any]]:
    """Weighted clusters with integer weights that add up to `_TOTAL_WEIGHT`; the first one takes the rounding error."""
    weighted = [entry for entry in members if entry.weight > 0] or members[:1]
    whole = sum(entry.weight for entry in weighted) or 1.0
    rest = [round(_TOTAL_WEIGHT * entry.weight / whole) for entry in weighted[1:]]
    for entry, weight in zip(weighted, [_TOTAL_WEIGHT - sum(rest), *rest], strict=True):
        yield {"name": _cluster_name(table, entry), "weight": weight, **_key(entry)}


def _retry_and_hedge(members: list[RouteEntry]) -> dict[str, Any]:
    """Retries on another member and, if the table hedges, a second request after the hedge delay."""
    if len(members) == 1:
        return {}
    retry: dict[str, Any] = {
        "retry_on": _RETRY_ON,
        "retriable_status_codes": [_THROTTLED],
        "num_retries": len(members) - 1,
        "retry_host_predicate": [_predicate("retry_host_predicates.previous_hosts", "retry.host.previous_hosts.v3")],
        "retry_priority": {
            "name": "envoy.retry_priorities.previous_priorities",
            "typed_config": {
                "@type": f"{_TYPE}.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig",
                "update_frequency": 1,
            },
        },
    }
    hedge = members[0].hedge
    if hedge is None or hedge.delay_us is None:
        return {"retry_policy": retry}
    delayed = retry | {"per_try_timeout": f"{hedge.delay_us / _US_PER_S:.6f}s"}
    return {"retry_policy": delayed, "hedge_policy": {"hedge_on_per_try_timeout": True}}


def _predicate(name: str, package: str) -> dict[str, Any]:
    return {
        "name": f"envoy.{name}",
        "typed_config": {"@type": f"{_TYPE}.extensions.{package}.PreviousHostsPredicate"},
    }


def _fallback_order(entry: RouteEntry, members: list[RouteEntry]) -> list[RouteEntry]:
    """The member, then the other members with the same key."""
    others = (one for one in members if one.target != entry.target)
    return [entry, *(one for one in others if _key(one) == _key(entry))]


def _cluster_name(table: RouteTable, entry: RouteEntry) -> str:
    return f"{table.route}: {entry.target} first"


def _aggregate_clusters(table: RouteTable) -> Iterator[dict[str, Any]]:
    """One aggregate cluster per member that requests may start with."""
    members = _reachable(table)
    for entry in [one for one in members if one.weight > 0] or members[:1]:
        yield {
            "@type": f"{_TYPE}.config.cluster.v3.Cluster",
            "name": _cluster_name(table, entry),
            "connect_timeout": "5s",
            "lb_policy": "CLUSTER_PROVIDED",
            "cluster_type": {
                "name": "envoy.clusters.aggregate",
                "typed_config": {
                    "@type": f"{_TYPE}.extensions.clusters.aggregate.v3.ClusterConfig",
                    "clusters": [one.target for one in _fallback_order(entry, members)],
                },
            },
        }


def _cluster(entry: RouteEntry) -> dict[str, Any]:
    parts = urlsplit(entry.base_url)
    host, is_tls = parts.hostname or "", parts.scheme == "https"
    address = {"socket_address": {"address": host, "port_value": parts.port or (443 if is_tls else 80)}}
    endpoint = {"endpoint": {"hostname": parts.netloc, "address": address}}
    cluster = {
        "@type": f"{_TYPE}.config.cluster.v3.Cluster",
        "name": entry.target,
        "type": "STRICT_DNS",
        "connect_timeout": "5s",
        "load_assignment": {"cluster_name": entry.target, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    return cluster | ({"transport_socket": _tls(host)} if is_tls else {})


def _tls(host: str) -> dict[str, Any]:
    """TLS that verifies the host's certificate; without a trusted CA, Envoy would not verify certificates."""
    name = {"san_type": "DNS", "matcher": {"exact": host}}
    validation = {"trusted_ca": {"filename": _CA}, "match_typed_subject_alt_names": [name]}
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": f"{_TYPE}.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "sni": host,
            "common_tls_context": {"validation_context": validation},
        },
    }


def _key(entry: RouteEntry) -> dict[str, Any]:
    """The changes to the request's key headers; a member without a credential receives the caller's key."""
    if not entry.credential_ref:
        return {}
    own = _KEY_HEADER.get(entry.dialect, _KEY_HEADERS[0])
    variable = f"%ENVIRONMENT({key_variable(entry.credential_ref)})%"
    return {
        "request_headers_to_remove": [name for name in _KEY_HEADERS if name != own],
        "request_headers_to_add": [_header(own, f"Bearer {variable}" if own == _KEY_HEADERS[0] else variable)],
    }
