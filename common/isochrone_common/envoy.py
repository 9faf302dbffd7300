"""Envoy's resources for route tables: a `RouteConfiguration` that splits traffic by weight, and its clusters, as JSON.

A request names its route in the header `x-isochrone-route`. Each member is a cluster that sets its host name in TLS and
in the request. Weights apply to aggregate clusters: the member first, then the others, so that retries and hedged
requests go to another member. `per_try_timeout` is the hedge delay of the table; it ends with the response's headers.

Before each try a script gives the request the path, the query, the key and the model of the member that was chosen.
Keys come from Envoy's environment. A member without a credential receives the caller's key, so the other ones are no
fallbacks of it, nor it of them. Members that speak another dialect than the first one are left out.
"""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from isochrone_common.route_consumer import key_variable, priority_groups, table_metadata
from isochrone_wire.durations import SECOND_US
from isochrone_wire.routes import RegionTables, RouteEntry, RouteTable

ROUTE_HEADER = "x-isochrone-route"
CONFIGURATION = "isochrone"
"""The name of the route configuration."""

_TYPE = "type.googleapis.com/envoy"
_TOTAL_WEIGHT = 10_000
_PREFIX = "/v1/"
_CA = "/etc/ssl/certs/ca-certificates.crt"
_RETRY_ON = "connect-failure,refused-stream,reset,5xx,retriable-status-codes"
_THROTTLED = 429
_KEY_HEADER = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}
_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_METADATA = ("base", "query", "variable", "key", "model")
# Larger requests are refused with 413: the script and retries need the whole body.
_MAX_BODY_BYTES = 32 << 20
# Requests of this dialect have the model in their path.
_MODEL_IN_PATH = "gemini"

_MEMBER_HEADER = "x-isochrone-member-"
"""The beginning of the headers in which the script receives the metadata, whose names are in `_METADATA`."""

_PATH_HEADER = "x-isochrone-path"
"""The header with the path as the application sent it, which begins with `/v1/`."""

# The Lua script that Envoy runs before each try of a request. All tries share the headers, so each try replaces those
# of the one before; each has the original body. Only the `model` of the outermost object is replaced: the script looks
# for it without parsing the values that it passes.
_SCRIPT = """\
local function end_of_string(text, at)
  while true do
    local to = text:find('"', at, true)
    if not to then return nil end
    local before = to - 1
    while text:byte(before) == 92 do before = before - 1 end
    if (to - before) % 2 == 1 then return to end
    at = to + 1
  end
end

local function with_model(text, model)
  local depth, at = 0, 1
  while true do
    local from = text:find('["{}%[%]]', at)
    if not from then return text end
    local mark = text:sub(from, from)
    at = from + 1
    if mark == '{' or mark == '[' then
      depth = depth + 1
    elseif mark ~= '"' then
      depth = depth - 1
    else
      local to = end_of_string(text, at)
      if not to then return text end
      at = to + 1
      local value = depth == 1 and text:sub(from, to) == '"model"' and text:match('^%s*:%s*()"', at)
      if value then
        local last = end_of_string(text, value + 1)
        return last and text:sub(1, value - 1) .. model .. text:sub(last + 1) or text
      end
    end
  end
end

function envoy_on_request(handle)
  local headers, member = handle:headers(), {}
  for _, name in ipairs({'base', 'query', 'variable', 'key', 'model'}) do
    member[name] = headers:get('x-isochrone-member-' .. name)
    headers:remove('x-isochrone-member-' .. name)
  end
  local path, query = headers:get('x-isochrone-path'):sub(4):match('^([^?]*)%??(.*)$')
  if member.query then query = query == '' and member.query or member.query .. '&' .. query end
  headers:replace(':path', (member.base or '') .. path .. (query == '' and '' or '?' .. query))
  if member.variable then
    for _, name in ipairs({'authorization', 'x-api-key', 'x-goog-api-key'}) do headers:remove(name) end
    local key = os.getenv(member.variable) or ''
    headers:add(member.key, member.key == 'authorization' and 'Bearer ' .. key or key)
  end
  if member.model and (headers:get('content-type') or ''):find('json') then
    local body = handle:body()
    if body then body:setBytes(with_model(body:getBytes(0, body:length()), member.model)) end
  end
end
"""


def route_configuration(tables: RegionTables) -> dict[str, Any]:
    """Return the route configuration, with a route per table that has members."""
    return {
        "@type": f"{_TYPE}.config.route.v3.RouteConfiguration",
        "name": CONFIGURATION,
        "virtual_hosts": [{"name": CONFIGURATION, "domains": ["*"], "routes": [*map(_route, _ranked(tables))]}],
        "response_headers_to_add": [_header("x-isochrone-generation", str(tables.generation))],
        "metadata": {"filter_metadata": {"isochrone": {"tables": list(table_metadata(tables))}}},
    }


def clusters(tables: RegionTables) -> list[dict[str, Any]]:
    """Return the clusters of the members, then those that the route configuration refers to."""
    ranked = _ranked(tables)
    hosts = {entry.target: entry for table in ranked for entry in _reachable(table)}
    return [
        *map(_cluster, hosts.values()),
        *(cluster for table in ranked for cluster in _aggregate_clusters(table)),
    ]


def _ranked(tables: RegionTables) -> list[RouteTable]:
    return [table for table in tables.tables if table.entries]


def _header(key: str, value: str) -> dict[str, Any]:
    return {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}


def _reachable(table: RouteTable) -> list[RouteEntry]:
    """The members in the order of attempts that take the same requests as the first one."""
    ordered = [entry for group in priority_groups(table) for entry in group]
    return [entry for entry in ordered if _requests_of(entry) == _requests_of(ordered[0])]


def _requests_of(entry: RouteEntry) -> tuple[str, str]:
    return entry.dialect, entry.model if entry.dialect == _MODEL_IN_PATH else ""


def _route(table: RouteTable) -> dict[str, Any]:
    members = _reachable(table)
    match = {"prefix": _PREFIX, "headers": [{"name": ROUTE_HEADER, "string_match": {"exact": table.route}}]}
    action: dict[str, Any] = {
        "weighted_clusters": {"clusters": list(_weighted(table, members))},
        "auto_host_rewrite": True,
        # No limit: a stream may take any time.
        "timeout": "0s",
    }
    return {
        "name": table.route,
        "match": match,
        "route": action | _retry_and_hedge(_fallback_order(members[0], members)),
        "request_headers_to_add": [_header(_PATH_HEADER, "%REQ(:PATH)%")],
        "request_headers_to_remove": [ROUTE_HEADER],
        "request_body_buffer_limit": _MAX_BODY_BYTES,
    }


def _weighted(table: RouteTable, members: list[RouteEntry]) -> Iterator[dict[str, Any]]:
    """Weighted clusters with integer weights that add up to `_TOTAL_WEIGHT`; the first one takes the rounding error."""
    weighted = [entry for entry in members if entry.weight > 0] or members[:1]
    whole = sum(entry.weight for entry in weighted) or 1.0
    rest = [round(_TOTAL_WEIGHT * entry.weight / whole) for entry in weighted[1:]]
    for entry, weight in zip(weighted, [_TOTAL_WEIGHT - sum(rest), *rest], strict=True):
        yield {"name": _cluster_name(table, entry), "weight": weight}


def _retry_and_hedge(members: list[RouteEntry]) -> dict[str, Any]:
    """Retries on another member and, if the table hedges, a second request after the hedge delay."""
    if len(members) == 1:
        return {}
    retry: dict[str, Any] = {
        "retry_on": _RETRY_ON,
        "retriable_status_codes": [_THROTTLED],
        "num_retries": len(members) - 1,
        "retry_host_predicate": [
            {
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": {"@type": f"{_TYPE}.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"},
            }
        ],
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
    delayed = retry | {"per_try_timeout": f"{hedge.delay_us / SECOND_US:.6f}s"}
    return {"retry_policy": delayed, "hedge_policy": {"hedge_on_per_try_timeout": True}}


def _fallback_order(entry: RouteEntry, members: list[RouteEntry]) -> list[RouteEntry]:
    """The member, then the others, all of them with a credential or all without one."""
    others = (one for one in members if one.target != entry.target)
    return [entry, *(one for one in others if bool(one.credential_ref) == bool(entry.credential_ref))]


def _cluster_name(table: RouteTable, entry: RouteEntry) -> str:
    return f"{table.route}: {entry.target} first"


def _aggregate_clusters(table: RouteTable) -> Iterator[dict[str, Any]]:
    """One cluster per member, whatever its weight: after a switch the routes refer to clusters that Envoy has."""
    members = _reachable(table)
    for entry in members:
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
            "typed_extension_protocol_options": {_OPTIONS: _protocol_options()},
        }


def _protocol_options() -> dict[str, Any]:
    """The filters of every try. They are those of the aggregate cluster, while the metadata are the member's."""
    # The metadata as headers for the script; what the application sent under these names is removed.
    headers = {_MEMBER_HEADER + name: f"%UPSTREAM_METADATA({CONFIGURATION}:{name})%" for name in _METADATA}
    changes = (({"remove": name}, {"append": _header(name, value)}) for name, value in headers.items())
    mutations = [one for change in changes for one in change]
    return {
        "@type": f"{_TYPE}.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http_protocol_options": {}},
        "http_filters": [
            _filter("header_mutation", "HeaderMutation", mutations={"request_mutations": mutations}),
            _filter("lua", "Lua", default_source_code={"inline_string": _SCRIPT}),
            _filter("upstream_codec", "UpstreamCodec"),
        ],
    }


def _filter(name: str, message: str, **config: dict[str, Any]) -> dict[str, Any]:
    kind = f"{_TYPE}.extensions.filters.http.{name}.v3.{message}"
    return {"name": f"envoy.filters.http.{name}", "typed_config": {"@type": kind, **config}}


def _cluster(entry: RouteEntry) -> dict[str, Any]:
    parts = urlsplit(entry.base_url)
    host, is_tls = parts.hostname or "", parts.scheme == "https"
    address = {"socket_address": {"address": host, "port_value": parts.port or (443 if is_tls else 80)}}
    # The member's part of a request, for the script; the model is a JSON string.
    member = {
        "base": parts.path.rstrip("/"),
        "query": parts.query,
        "variable": key_variable(entry.credential_ref) if entry.credential_ref else "",
        "key": _KEY_HEADER.get(entry.dialect, "authorization"),
        "model": "" if entry.dialect == _MODEL_IN_PATH else json.dumps(entry.model),
    }
    metadata = {"filter_metadata": {CONFIGURATION: member}}
    endpoint = {"endpoint": {"hostname": parts.netloc, "address": address}, "metadata": metadata}
    cluster = {
        "@type": f"{_TYPE}.config.cluster.v3.Cluster",
        "name": entry.target,
        "type": "STRICT_DNS",
        "connect_timeout": "5s",
        "load_assignment": {"cluster_name": entry.target, "endpoints": [{"lb_endpoints": [endpoint]}]},
        # An aggregate cluster passes over a member that failed five times in a row.
        "outlier_detection": {"consecutive_5xx": 5, "base_ejection_time": "30s", "max_ejection_percent": 100},
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
