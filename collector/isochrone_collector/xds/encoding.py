"""Requests and resources as protobuf messages of `envoy.proto`."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from isochrone_collector.recent_values import RecentValues
from isochrone_collector.xds import envoy_pb2
from isochrone_collector.xds.stream_state import CLUSTERS, ROUTES, Request, Resource, Response

_PREFIX = "type.googleapis.com/envoy.extensions"
MESSAGE_OF: dict[str, type[Message]] = {
    CLUSTERS: envoy_pb2.Cluster,
    ROUTES: envoy_pb2.RouteConfiguration,
    f"{_PREFIX}.clusters.aggregate.v3.ClusterConfig": envoy_pb2.ClusterConfig,
    f"{_PREFIX}.filters.http.header_mutation.v3.HeaderMutation": envoy_pb2.HeaderMutation,
    f"{_PREFIX}.filters.http.lua.v3.Lua": envoy_pb2.Lua,
    f"{_PREFIX}.filters.http.upstream_codec.v3.UpstreamCodec": envoy_pb2.UpstreamCodec,
    f"{_PREFIX}.upstreams.http.v3.HttpProtocolOptions": envoy_pb2.HttpProtocolOptions,
    f"{_PREFIX}.transport_sockets.tls.v3.UpstreamTlsContext": envoy_pb2.UpstreamTlsContext,
    f"{_PREFIX}.retry.host.previous_hosts.v3.PreviousHostsPredicate": envoy_pb2.PreviousHostsPredicate,
    f"{_PREFIX}.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig": envoy_pb2.PreviousPrioritiesConfig,
}
"""The message of each type of Envoy's."""

NO_REGION = "the region is missing: set node.locality.region in Envoy's bootstrap"
"""The reason for refusing a request without a region."""


class EncodedResources:
    """The recent encodings; each resource is encoded once for all streams."""

    def __init__(self) -> None:
        self._encoded = RecentValues[envoy_pb2.TypedConfig](1_024)

    def of(self, resource: Resource) -> envoy_pb2.TypedConfig:
        """Return a resource as a message."""
        return self._encoded.get((resource.name, resource.version), lambda: encode(resource.document))

    def response(self, response: Response) -> envoy_pb2.DiscoveryResponse:
        """Return a response with the state of the world."""
        return envoy_pb2.DiscoveryResponse(
            version_info=response.version,
            type_url=response.type_url,
            nonce=response.nonce,
            resources=[self.of(one) for one in response.resources],
        )

    def delta_response(self, response: Response) -> envoy_pb2.DeltaDiscoveryResponse:
        """Return a response with what changed."""
        return envoy_pb2.DeltaDiscoveryResponse(
            system_version_info=response.version,
            type_url=response.type_url,
            nonce=response.nonce,
            resources=[
                envoy_pb2.Resource(name=one.name, version=one.version, resource=self.of(one))
                for one in response.resources
            ],
            removed_resources=response.removed,
        )


def encode(document: Mapping[str, Any]) -> envoy_pb2.TypedConfig:
    """Encode a message that is given as JSON with its `@type`."""
    type_url: str = document["@type"]
    fields = {name: _packed(value) for name, value in document.items() if name != "@type"}
    message = ParseDict(fields, MESSAGE_OF[type_url]())
    return envoy_pb2.TypedConfig(type_url=type_url, value=message.SerializeToString(deterministic=True))


def _packed(value: object) -> object:
    """Return a JSON value whose inner messages with an `@type` are encoded, in the JSON form of a `TypedConfig`."""
    if isinstance(value, list):
        return [_packed(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "@type" in value:
        message = encode(value)
        return {"type_url": message.type_url, "value": b64encode(message.value).decode()}
    return {name: _packed(one) for name, one in value.items()}


def request_of(message: envoy_pb2.DiscoveryRequest | envoy_pb2.DeltaDiscoveryRequest, type_url: str) -> Request:
    """Read a request of either form; `type_url` is that of the service, if it has only one."""
    request = Request(
        type_url=message.type_url or type_url,
        client_region=message.node.locality.region,
        node_id=message.node.id,
        nonce=message.response_nonce,
        error=message.error_detail.message if message.HasField("error_detail") else None,
    )
    if isinstance(message, envoy_pb2.DiscoveryRequest):
        return replace(request, version=message.version_info, names=tuple(message.resource_names))
    return replace(
        request,
        names=tuple(message.resource_names_subscribe),
        removed_names=tuple(message.resource_names_unsubscribe),
        versions=dict(message.initial_resource_versions),
    )
