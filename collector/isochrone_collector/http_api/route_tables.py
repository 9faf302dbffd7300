"""Route tables over HTTP: requests, long polls and streams, with cache headers (RFC 9110, 9111, 5861)."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from google.protobuf.json_format import Parse, ParseError
from starlette.requests import Request
from starlette.responses import Response

from isochrone_collector.auth.authenticator import MAX_WATCHES, while_valid
from isochrone_collector.auth.limits import StreamCounts
from isochrone_collector.errors import BadRequest, UnknownName
from isochrone_collector.http_api import bearer_auth, responses, streams
from isochrone_collector.http_api.requests import (
    COUNT,
    EVENTS,
    FORMAT,
    INSTANT,
    JSON,
    ROUTE,
    TEXT,
    Endpoint,
    Parameter,
    generation,
    parsed,
    wait_us,
)
from isochrone_collector.http_api.sources import Sources
from isochrone_collector.queries.routes import NO_TABLE
from isochrone_collector.xds import envoy_pb2
from isochrone_collector.xds.encoding import NO_REGION, request_of
from isochrone_collector.xds.stream_state import CLUSTERS, ROUTES, Rejection, version_of
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import Overview, RegionTables, RouteTable

GENERATION = "X-Isochrone-Generation"
ANSWERED_AT = "X-Isochrone-Answered-At"
STALE_SINCE = "X-Isochrone-Stale-Since"

MAX_AGE_US = 5 * SECOND_US
"""The maximum age in a cache, in microseconds: a cache must not hide a switch, however fresh the evidence is."""


@dataclass(eq=False)
class TableRoutes:
    """Routes for the publisher's tables."""

    sources: Sources

    def __post_init__(self) -> None:
        self._encoded = responses.EncodedTables()
        self._watches = StreamCounts(each=MAX_WATCHES)

    async def overview(self, _request: Request) -> Response:
        """Return the regions and routes that have a table, with its state."""
        tables, plan = self.sources.publisher.in_force(), self.sources.plans.version
        overview = Overview.of(tables, plan_version=plan, routes=tuple(self._planned()))
        return responses.JsonResponse(
            responses.encode_line(overview), headers={"Cache-Control": "no-cache", **self._staleness()}
        )

    async def region(self, request: Request, *, client_region: str, route: str, wait_us: int, after: int) -> Response:
        """Return the tables of a region, at once or as soon as there is a newer one than the client has."""
        if_none_match = responses.none_match(request.headers)
        found = self._find(client_region, route)
        if wait_us and responses.is_current(if_none_match, found.etag):
            after = max(after, found.generation)
        if wait_us and after:
            waiting = self._wait(request, found, route, after=after, wait_us=wait_us)
            recheck = partial(bearer_auth.authenticate, self.sources.authenticator, request)
            has_newer = await while_valid(_unless_disconnected(request, waiting), recheck)
            found = self._find(client_region, route)
            if not has_newer and if_none_match is None:
                return Response(status_code=204, headers=self._headers(found))
        if responses.is_current(if_none_match, found.etag):
            return Response(status_code=304, headers=self._headers(found))
        return Response(self._encoded.region(found), headers=self._headers(found), media_type=JSON)

    async def watch(self, request: Request, *, client_region: str, route: str, after: int) -> Response:
        """Stream the tables of a region as server-sent events."""
        self._find(client_region, route)
        return await self.watch_all(request, client_region=client_region, route=route, after=after)

    async def watch_all(self, request: Request, *, client_region: str, route: str, after: int) -> Response:
        """Stream the tables of all regions, or of one, as server-sent events."""
        if event_id := request.headers.get("last-event-id"):
            after = generation(event_id, name="Last-Event-ID")
        tables = self.sources.publisher.watch(client_region, route, after=after)
        items = streams.counted(self._watches, request, tables)
        return await streams.start(request, self.sources.authenticator, items, event=self._encoded.event)

    def _find(self, region: str, route: str) -> RegionTables:
        """Return the tables in force. Raises `UnknownName`, and `NotBuilt` if a table is not built yet."""
        planned = self._planned()
        if route and route not in planned:
            raise UnknownName.among("route", route, planned)
        known = {table.client_region for table in self.sources.publisher.in_force()}
        if not known:
            raise responses.NotBuilt("no table was built yet; retry in a moment") if planned else UnknownName(NO_TABLE)
        if region not in known:
            raise UnknownName.among("client region", region, known)
        try:
            return self.sources.publisher.tables(region, route)
        except UnknownName as error:
            raise responses.NotBuilt(f"there is no table of {route!r} in {region!r} yet; retry in a moment") from error

    def _planned(self) -> list[str]:
        plan = self.sources.plans.current
        return sorted(route.name for route in plan.routes) if plan else []

    async def _wait(self, request: Request, found: RegionTables, route: str, *, after: int, wait_us: int) -> bool:
        """Wait for a table after that generation; return whether there was one in time. Raises as `counted`."""
        watched = self.sources.publisher.watch(found.client_region, route, after=after)
        tables = streams.counted(self._watches, request, watched)
        with suppress(TimeoutError):
            async with aclosing(tables), asyncio.timeout(wait_us / SECOND_US):
                async for table in tables:
                    if table is not None:
                        return True
        return False

    def _headers(self, found: RegionTables) -> dict[str, str]:
        return {
            "ETag": responses.quoted(found.etag),
            "Cache-Control": cache_control(found, now_at=self.sources.clock()),
            GENERATION: str(found.generation),
            ANSWERED_AT: rfc3339(found.answered_at),
            **self._staleness(),
        }

    def _staleness(self) -> dict[str, str]:
        stale_since_at = self.sources.publisher.stale_since_at
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
    """Return Cache-Control in whole seconds, by the table that ages first."""
    fresh_us = min(table.fresh_until_at for table in region.tables) - now_at
    stale_us = min(table.stale_until_at for table in region.tables) - now_at
    age_us = max(0, min(fresh_us, MAX_AGE_US))
    return (
        f"max-age={age_us // SECOND_US}, stale-while-revalidate={_seconds(fresh_us - age_us)}, "
        f"stale-if-error={_seconds(stale_us - age_us)}"
    )


def _seconds(us: int) -> int:
    return max(0, us) // SECOND_US


def _watch(path: str, work: Callable[..., Awaitable[Response]], *parameters: Parameter) -> Endpoint:
    after = "Resume after this generation; a snapshot comes first if it is missing."
    return Endpoint(
        path=path,
        summary="Tables as they change, as server-sent events: id is the generation, data one RouteTable.",
        work=work,
        parameters=(*parameters, ROUTE, Parameter("after", COUNT, after, read=parsed(generation))),
        answer=RouteTable,
        media_type=EVENTS,
        request_headers={"Last-Event-ID": "As after, with precedence."},
    )


_WAIT = {"type": "string", "examples": ["30s"]}

TABLES = (
    Endpoint(
        path="/v1/routes",
        summary="The regions and routes that have a table.",
        work=TableRoutes.overview,
        answer=Overview,
    ),
    _watch("/v1/routes/watch", TableRoutes.watch_all, Parameter("client_region", TEXT, "One region; all if missing.")),
    Endpoint(
        path="/v1/routes/{client_region}",
        summary="The tables of a client region.",
        work=TableRoutes.region,
        parameters=(
            ROUTE,
            FORMAT,
            Parameter("wait", _WAIT, "Wait for a newer table, 1s to 60s; see after.", "wait_us", parsed(wait_us)),
            Parameter("after", COUNT, "The newest generation the client has.", read=parsed(generation)),
        ),
        answer=RegionTables,
        request_headers={"If-None-Match": "The ETag the client has."},
        headers={
            "ETag": {"schema": TEXT, "description": "Changes with every table in the answer."},
            "Cache-Control": {"schema": TEXT},
            GENERATION: {"schema": COUNT, "description": "The newest generation in the answer."},
            ANSWERED_AT: {"schema": INSTANT},
            STALE_SINCE: {
                "schema": INSTANT,
                "description": "Present while the database is unavailable to the collector: newer tables may exist.",
            },
        },
        other={"204": "No newer table while waiting.", "304": "The tables of If-None-Match are current."},
    ),
    _watch("/v1/routes/{client_region}/watch", TableRoutes.watch),
)

MAX_BODY_BYTES = 256 << 10
"""Maximum size of a request body. Envoy lists its extensions in it."""


@dataclass(eq=False)
class DiscoveryRoutes:
    """Routes for the resources of each type."""

    sources: Sources

    async def answer(self, request: Request) -> Response:
        """Return the resources of the region in the request, of the type of the path."""
        type_url = _DISCOVERED[request.url.path]
        body = await responses.read_body(request, max_bytes=MAX_BODY_BYTES)
        try:
            message = Parse(body, envoy_pb2.DiscoveryRequest(), ignore_unknown_fields=True)
        except (ParseError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest("the body is not a DiscoveryRequest in JSON") from error
        asked = request_of(message, type_url)
        if not asked.client_region:
            raise BadRequest(NO_REGION)
        if asked.type_url != type_url:
            raise BadRequest(f"{request.url.path} has no {asked.type_url!r}")
        resources = self.sources.snapshots.of(asked.client_region, asked.node_id).select(type_url, asked.names or None)
        if asked.error is not None:
            rejection = Rejection(type_url=type_url, version=asked.version, reason=asked.error)
            self.sources.rejections.note(asked.client_region, rejection)
        version = version_of(resources)
        if version == asked.version:
            return Response(status_code=304)
        documents = [one.document for one in resources.values()]
        document = {"version_info": version, "type_url": type_url, "resources": documents}
        return responses.JsonResponse(json.dumps(document).encode(), headers={"Cache-Control": "no-store"})


_DISCOVERED = {"/v3/discovery:clusters": CLUSTERS, "/v3/discovery:routes": ROUTES}
DISCOVERY = tuple(
    Endpoint(
        path=path,
        summary=f"The {path.rpartition(':')[2]} of a region, for Envoy.",
        work=DiscoveryRoutes.answer,
        parameters=None,
        answer=dict,
        method="POST",
        other={"304": "The version in the request is the newest."},
        body="A DiscoveryRequest of Envoy's API, version 3, with node.locality.region.",
    )
    for path in _DISCOVERED
)
