"""Resources and requests as messages of Envoy's API."""

import json
import os
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.json_format import MessageToDict, ParseError

from isochrone_collector.xds import envoy_pb2
from isochrone_collector.xds.encoding import MESSAGE_OF, EncodedResources, encode, request_of
from isochrone_collector.xds.stream_state import CLUSTERS, ROUTES, Request, Resource, Response, resources_of
from testdata.routes import CHAT, VOICE

PYTHON = os.environ.get("ISOCHRONE_TEST_XDS_PYTHON")
SERVICE, CORE, ROUTE = "envoy.service.discovery.v3", "envoy.config.core.v3", "envoy.config.route.v3"
ENDPOINT, TLS = "envoy.config.endpoint.v3", "envoy.extensions.transport_sockets.tls.v3"
FILTERS = "envoy.extensions.filters.http"
# Our message → Envoy's package, and the full name where its own name differs.
PACKAGE_OF = {
    **dict.fromkeys(("DiscoveryRequest", "DiscoveryResponse", "Resource"), SERVICE),
    **dict.fromkeys(("DeltaDiscoveryRequest", "DeltaDiscoveryResponse"), SERVICE),
    **dict.fromkeys(("Node", "Locality", "Address", "SocketAddress", "TransportSocket", "DataSource"), CORE),
    **dict.fromkeys(("HeaderValueOption", "HeaderValue", "Metadata"), CORE),
    "Status": "google.rpc",
    "Cluster": "envoy.config.cluster.v3",
    "OutlierDetection": "envoy.config.cluster.v3",
    **dict.fromkeys(("ClusterLoadAssignment", "LocalityLbEndpoints", "LbEndpoint", "Endpoint"), ENDPOINT),
    **dict.fromkeys(
        ("UpstreamTlsContext", "CommonTlsContext", "CertificateValidationContext", "SubjectAltNameMatcher"), TLS
    ),
    "StringMatcher": "envoy.type.matcher.v3",
    "ClusterConfig": "envoy.extensions.clusters.aggregate.v3",
    "PreviousPrioritiesConfig": "envoy.extensions.retry.priority.previous_priorities.v3",
    "PreviousHostsPredicate": "envoy.extensions.retry.host.previous_hosts.v3",
    **dict.fromkeys(("RouteConfiguration", "VirtualHost", "Route", "RouteMatch", "HeaderMatcher"), ROUTE),
    **dict.fromkeys(("RouteAction", "WeightedCluster", "RetryPolicy", "HedgePolicy"), ROUTE),
    "HttpProtocolOptions": "envoy.extensions.upstreams.http.v3",
    "Http1ProtocolOptions": CORE,
    "HttpFilter": "envoy.extensions.filters.network.http_connection_manager.v3",
    **dict.fromkeys(("HeaderMutation", "Mutations"), f"{FILTERS}.header_mutation.v3"),
    "Lua": f"{FILTERS}.lua.v3",
    "UpstreamCodec": f"{FILTERS}.upstream_codec.v3",
}
NAME_OF = {
    "TypedConfig": "google.protobuf.Any",
    "HeaderMutationRule": "envoy.config.common.mutation_rules.v3.HeaderMutation",
}
DESCRIBE = """
import importlib, json, sys
from google.protobuf import any_pb2, descriptor_pool
for module in json.loads(sys.argv[1]):
    importlib.import_module(module)
pool, found = descriptor_pool.Default(), {}
for name in json.loads(sys.argv[2]):
    message = pool.FindMessageTypeByName(name)
    found[name] = {field.name: [field.number, field.type, field.is_repeated] for field in message.fields}
    for enum in message.enum_types:
        found[f"{name}.{enum.name}"] = {value.name: value.number for value in enum.values}
print(json.dumps(found))
"""
MODULES = (
    "envoy.service.discovery.v3.discovery_pb2",
    "envoy.config.cluster.v3.cluster_pb2",
    "envoy.config.route.v3.route_pb2",
    "envoy.extensions.clusters.aggregate.v3.cluster_pb2",
    "envoy.extensions.transport_sockets.tls.v3.tls_pb2",
    "envoy.extensions.retry.priority.previous_priorities.v3.previous_priorities_config_pb2",
    "envoy.extensions.upstreams.http.v3.http_protocol_options_pb2",
    "envoy.extensions.filters.http.header_mutation.v3.header_mutation_pb2",
    "envoy.extensions.filters.http.lua.v3.lua_pb2",
    "envoy.extensions.filters.http.upstream_codec.v3.upstream_codec_pb2",
    "envoy.extensions.retry.host.previous_hosts.v3.previous_hosts_pb2",
)


def messages(descriptors: Any = envoy_pb2.DESCRIPTOR.message_types_by_name) -> dict[str, Descriptor]:
    """Every message of ours by name, also those within others."""
    found = {}
    for descriptor in descriptors.values():
        if not descriptor.GetOptions().map_entry:
            found[descriptor.full_name.removeprefix("isochrone.xds.")] = descriptor
            found |= messages(descriptor.nested_types_by_name)
    return found


def envoys_name(name: str) -> str:
    """Envoy's full name of a message of ours."""
    return NAME_OF.get(name) or f"{PACKAGE_OF[name.partition('.')[0]]}.{name}"


@pytest.mark.skipif(PYTHON is None, reason="ISOCHRONE_TEST_XDS_PYTHON is not set: a Python with the package xds-protos")
def test_fields_are_envoy_s() -> None:
    """Every field and enum value has the name, number and type that it has in the package `xds-protos`."""
    names = [envoys_name(name) for name in messages()]
    command = [str(PYTHON), "-c", DESCRIBE, json.dumps(MODULES), json.dumps(names)]
    theirs = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    for name, descriptor in messages().items():
        for field in descriptor.fields:
            expected = [field.number, field.type, field.is_repeated]
            assert theirs[envoys_name(name)][field.name] == expected, f"{name}.{field.name}"
        for enum in descriptor.enum_types:
            for value in enum.values:
                assert theirs[f"{envoys_name(name)}.{enum.name}"][value.name] == value.number, value.name


def test_every_resource_can_be_encoded() -> None:
    """The messages have every field of the mapping; one that they lack is an error."""
    found = resources_of("us", [CHAT, VOICE])
    for resource in (*found.clusters.values(), *found.routes.values()):
        message = encode(resource.document)
        assert message.type_url == resource.document["@type"]
        decoded = MESSAGE_OF[message.type_url].FromString(message.value)
        shown = MessageToDict(decoded, preserving_proto_field_name=True)
        assert set(shown) == set(resource.document) - {"@type"} - (
            {"lb_policy"} if not shown.get("lb_policy") else set()
        )
    with pytest.raises(ParseError):
        encode({"@type": CLUSTERS, "name": "a", "no_such_field": 1})


def test_inner_messages_are_encoded() -> None:
    """A message within another one is encoded as its type and bytes."""
    document = {
        "@type": CLUSTERS,
        "cluster_type": {
            "name": "aggregate",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig",
                "clusters": ["a", "b"],
            },
        },
    }
    cluster = envoy_pb2.Cluster.FromString(encode(document).value)
    inner = envoy_pb2.ClusterConfig.FromString(cluster.cluster_type.typed_config.value)
    assert list(inner.clusters) == ["a", "b"]


def test_responses_of_both_forms() -> None:
    """A response has the resources; a delta has their names and versions and what was removed, too."""
    resource = Resource("a", "v1", {"@type": ROUTES, "name": "a"})
    response = Response(type_url=ROUTES, nonce="7", version="v", resources=(resource,), removed=("b",))
    encoded = EncodedResources()
    world, delta = encoded.response(response), encoded.delta_response(response)
    assert (world.version_info, world.nonce, world.type_url, len(world.resources)) == ("v", "7", ROUTES, 1)
    assert (delta.system_version_info, delta.nonce, list(delta.removed_resources)) == ("v", "7", ["b"])
    assert [(one.name, one.version) for one in delta.resources] == [("a", "v1")]
    changed = replace(resource, version="v2", document={"@type": ROUTES, "name": "c"})
    assert encoded.of(changed) != encoded.of(resource) is encoded.of(resource)


def test_requests_of_both_forms() -> None:
    """A request has the region of its node; an `error_detail` is a rejection, whatever its message."""
    node = envoy_pb2.Node(id="n", locality=envoy_pb2.Locality(region="us"))
    first = envoy_pb2.DiscoveryRequest(node=node, resource_names=["isochrone"], version_info="v")
    assert request_of(first, ROUTES) == Request(
        type_url=ROUTES, client_region="us", node_id="n", version="v", names=("isochrone",)
    )
    rejected = envoy_pb2.DeltaDiscoveryRequest(type_url=CLUSTERS, response_nonce="1", error_detail=envoy_pb2.Status())
    assert request_of(rejected, "") == Request(type_url=CLUSTERS, nonce="1", error="")
