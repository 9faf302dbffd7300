"""Route tables over HTTP: requests, long polls and streams, with cache headers (RFC 9110, 9111, 5861)."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

from google.protobuf.json_format import Parse, ParseError
from starlette.requests import Request
from starlette.responses import Response

from isochrone_collector.auth.authenticator import MAX_WATCHES, Authenticator, while_valid
from isochrone_collector.auth.limits import StreamCounts
from isochrone_collector.errors import BadRequest, UnknownName
from isochrone_collector.http_api import bearer_auth, requests, streams
from isochrone_collector.http_api.requests import QueryParameters
from isochrone_collector.http_api.responses import (
    EncodedTables,
    JsonResponse,
    NotBuilt,
    encode_line,
    is_current,
    none_match,
    quoted,
    read_body,
)
from isochrone_collector.plans.service import Plans
from isochrone_collector.publishing.publisher import Publisher
from isochrone_collector.queries.routes import NO_TABLE
from isochrone_collector.xds import envoy_pb2
from isochrone_collector.xds.encoding import NO_REGION, request_of
from isochrone_collector.xds.resources import CLUSTERS, ROUTES, version_of
from isochrone_collector.xds.snapshots import Rejections, Snapshots
from isochrone_collector.xds.stream_state import Rejection
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RegionTables, RouteTable

GENERATION = "X-Isochrone-Generation"
ANSWERED_AT = "X-Isochrone-Answered-At"
STALE_SINCE = "X-Isochrone-Stale-Since"

ONE_REGION = ("route", "format", "wait", "after")
WATCHING = ("route", "after")
WATCHING_ALL = ("client_region", *WATCHING)

MAX_AGE_US = 5 * SECOND_US
"""The maximum age in a cache, in microseconds: a cache must not hide a switch, however fresh the evidence is."""


class TableRoutes:
    """Routes for the publisher's tables."""

    def __init__(
        self, *, publisher: Publisher, plans: Plans, authenticator: Authenticator, clock: Callable[[], int]
    ) -> None:
        self._publisher = publisher
        self._plans = plans
        self._authenticator = authenticator
        self._clock = clock
        self._encoded = EncodedTables()
        self._watches = StreamCounts(each=MAX_WATCHES)

    async def overview(self, request: Request) -> Response:
        """Return the regions and routes that have a table, with its state."""
        requests.parse(request.scope["query_string"], known=())
        tables = sorted(self._publisher.in_force(), key=lambda table: (table.client_region, table.route))
        overview = {
            "generation": max((table.generation for table in tables), default=0),
            "plan_version": self._plans.version,
            "client_regions": sorted({table.client_region for table in tables}),
            "routes": self._planned(),
            "tables": [
                {
                    "client_region": table.client_region,
                    "route": table.route,
                    "generation": table.generation,
                    "state": table.state.value,
                    "built_at": rfc3339(table.built_at),
                    "weights": {entry.target: entry.weight for entry in table.entries},
                    "fresh_until_at": rfc3339(table.fresh_until_at),
                    "stale_until_at": rfc3339(table.stale_until_at),
                }
                for table in tables
            ],
        }
        headers = {"Cache-Control": "no-cache", **self._staleness()}
        return JsonResponse(encode_line(overview), headers=headers)

    async def region(self, request: Request) -> Response:
        """Return the tables of a region, at once or as soon as there is a newer one than the client has."""
        parameters = requests.parse(request.scope["query_string"], known=ONE_REGION)
        requests.require_json(parameters.one("format"))
        wait_us = requests.wait_us(parameters.one("wait"))
        after = requests.generation(parameters.one("after"), name="after")
        route = parameters.one("route")
        if_none_match = none_match(request.headers)
        found = self._find(request, route)
        if wait_us and is_current(if_none_match, found.etag):
            after = max(after, found.generation)
        if wait_us and after:
            waiting = self._wait(request, found, route, after=after, wait_us=wait_us)
            has_newer = await while_valid(_unless_disconnected(request, waiting), self._authenticate(request))
            found = self._find(request, route)
            if not has_newer and if_none_match is None:
                return Response(status_code=204, headers=self._headers(found))
        if is_current(if_none_match, found.etag):
            return Response(status_code=304, headers=self._headers(found))
        return Response(self._encoded.region(found), headers=self._headers(found), media_type="application/json")

    async def watch(self, request: Request) -> Response:
        """Stream the tables of a region as server-sent events."""
        parameters = requests.parse(request.scope["query_string"], known=WATCHING)
        found = self._find(request, parameters.one("route"))
        return await self._stream(request, parameters, found.client_region)

    async def watch_all(self, request: Request) -> Response:
        """Stream the tables of all regions, or of one, as server-sent events."""
        parameters = requests.parse(request.scope["query_string"], known=WATCHING_ALL)
        return await self._stream(request, parameters, parameters.one("client_region"))

    async def _stream(self, request: Request, parameters: QueryParameters, client_region: str) -> Response:
        after = requests.generation(
            request.headers.get("last-event-id") or parameters.one("after"), name="Last-Event-ID or after"
        )
        if request.method == "HEAD":
            return Response(headers=streams.HEADERS, media_type=streams.MEDIA_TYPE)
        return await streams.start(
            self._watched(request, client_region, parameters.one("route"), after=after),
            event=self._encoded.event,
            authenticate=self._authenticate(request),
        )

    def _find(self, request: Request, route: str) -> RegionTables:
        """Return the tables in force. Raises `UnknownName`, and `NotBuilt` if a table is not built yet."""
        region: str = request.path_params["client_region"]
        planned = self._planned()
        if route and route not in planned:
            raise UnknownName.among("route", route, planned)
        known = {table.client_region for table in self._publisher.in_force()}
        if not known:
            raise NotBuilt("no table was built yet; retry in a moment") if planned else UnknownName(NO_TABLE)
        if region not in known:
            raise UnknownName.among("client region", region, known)
        try:
            return self._publisher.tables(region, route)
        except UnknownName as error:
            raise NotBuilt(f"there is no table of {route!r} in {region!r} yet; retry in a moment") from error

    def _planned(self) -> list[str]:
        plan = self._plans.current
        return sorted(route.name for route in plan.routes) if plan else []

    def _authenticate(self, request: Request) -> Callable[[], Awaitable[object]]:
        return partial(bearer_auth.authenticate, self._authenticator, request)

    async def _watched(
        self, request: Request, client_region: str, route: str, *, after: int
    ) -> AsyncGenerator[RouteTable | None, None]:
        """Yield as `Publisher.watch`, counted for the caller. Raises `ResourceExhausted`."""
        with self._watches.hold(request.state.principal.key):
            async with aclosing(self._publisher.watch(client_region, route, after=after)) as tables:
                async for table in tables:
                    yield table

    async def _wait(self, request: Request, found: RegionTables, route: str, *, after: int, wait_us: int) -> bool:
        """Wait for a table after that generation; return whether there was one in time. Raises as `_watched`."""
        tables = self._watched(request, found.client_region, route, after=after)
        with suppress(TimeoutError):
            async with aclosing(tables), asyncio.timeout(wait_us / SECOND_US):
                async for table in tables:
                    if table is not None:
                        return True
        return False

    def _headers(self, found: RegionTables) -> dict[str, str]:
        return {
            "ETag": quoted(found.etag),
            "Cache-Control": cache_control(found, now_at=self._clock()),
            GENERATION: str(found.generation),
            ANSWERED_AT: rfc3339(found.answered_at),
            **self._staleness(),
        }

    def _staleness(self) -> dict[str, str]:
        stale_since_at = self._publisher.stale_since_at
        return {} if stale_since_at is None else {STALE_SINCE: rfc3339(stale_since_at)}


async def _unless_disconnected(request: Request, work: Coroutine[Any, Any, bool]) -> bool:
    """Return the result of `work`; `False` as soon as the client disconnects."""
    disconnect, task = asyncio.ensure_future(streams.disconnected(request.receive)), asyncio.ensure_future(work)
    try:
        await asyncio.wait({disconnect, task}, return_when=asyncio.FIRST_COMPLETED)
        return task.done() and task.result()
    finally:
        disconnect.cancel()
        task.cancel()
        await asyncio.gather(disconnect, task, return_exceptions=True)


def cache_control(region: RegionTables, *, now_at: int) -> str:
    """Return Cache-Control in whole seconds: max-age, stale-while-revalidate and stale-if-error, by the table that ages
    first.
    """
    fresh_us = min(table.fresh_until_at for table in region.tables) - now_at
    stale_us = min(table.stale_until_at for table in region.tables) - now_at
    age_us = max(0, min(fresh_us, MAX_AGE_US))
    return (
        f"max-age={age_us // SECOND_US}, stale-while-revalidate={_seconds(fresh_us - age_us)}, "
        f"stale-if-error={_seconds(stale_us - age_us)}"
    )


def _seconds(us: int) -> int:
    return max(0, us) // SECOND_US


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
