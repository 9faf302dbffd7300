"""Envoy's discovery services over HTTP: Envoy polls, and gets 304 while it has the newest version."""

import json

from google.protobuf.json_format import Parse, ParseError
from starlette.requests import Request
from starlette.responses import Response

from isochrone_collector.errors import BadRequest
from isochrone_collector.http_api.bodies import JsonResponse, read_body
from isochrone_collector.xds import envoy_pb2
from isochrone_collector.xds.encoding import NO_REGION, request_of
from isochrone_collector.xds.rejections import Rejections
from isochrone_collector.xds.resources import CLUSTERS, ROUTES, version_of
from isochrone_collector.xds.snapshots import Snapshots
from isochrone_collector.xds.stream_state import Rejection

MAX_BODY_BYTES = 256 << 10
"""Maximum size of a request body. Envoy lists its extensions in it."""


class DiscoveryRoutes:
    """Routes for the resources of each type."""

    def __init__(self, *, snapshots: Snapshots, rejections: Rejections) -> None:
        self._snapshots = snapshots
        self._rejections = rejections

    async def clusters(self, request: Request) -> Response:
        """Return the clusters of the region in the request."""
        return await self._answer(request, CLUSTERS)

    async def routes(self, request: Request) -> Response:
        """Return the route configuration of the region in the request."""
        return await self._answer(request, ROUTES)

    async def _answer(self, request: Request, type_url: str) -> Response:
        body = await read_body(request, max_bytes=MAX_BODY_BYTES)
        try:
            message = Parse(body, envoy_pb2.DiscoveryRequest(), ignore_unknown_fields=True)
        except (ParseError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest("the body is not a DiscoveryRequest in JSON") from error
        asked = request_of(message, type_url)
        if not asked.client_region:
            raise BadRequest(NO_REGION)
        if asked.type_url != type_url:
            raise BadRequest(f"{request.url.path} has no {asked.type_url!r}")
        resources = self._snapshots.of(asked.client_region, asked.node_id).select(type_url, asked.names or None)
        if asked.error is not None:
            rejection = Rejection(type_url=type_url, version=asked.version, reason=asked.error)
            self._rejections.note(asked.client_region, rejection)
        version = version_of(resources)
        if version == asked.version:
            return Response(status_code=304)
        document = {
            "version_info": version,
            "type_url": type_url,
            "resources": [one.document for one in resources.values()],
        }
        return JsonResponse(json.dumps(document).encode(), headers={"Cache-Control": "no-store"})
