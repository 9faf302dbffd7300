"""The Starlette application of the HTTP interface."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from isochrone_collector.auth.authenticator import Authenticator
from isochrone_collector.errors import CollectorError
from isochrone_collector.http_api import openapi, responses
from isochrone_collector.http_api.bearer_auth import BearerAuth
from isochrone_collector.http_api.page import STATUS, PageRoutes, StatusRoutes
from isochrone_collector.http_api.queries import ENDPOINTS, QueryRoutes
from isochrone_collector.http_api.responses import JsonResponse, encode_line
from isochrone_collector.http_api.route_tables import DiscoveryRoutes, TableRoutes
from isochrone_collector.http_api.streams import ChangeRoutes, SampleStreams
from isochrone_collector.names import EVERY_NAME, NameFilter
from isochrone_collector.plans.service import Plans
from isochrone_collector.publishing.changes import Changes
from isochrone_collector.publishing.publisher import Publisher
from isochrone_collector.queries.context import QueryContext
from isochrone_collector.xds.snapshots import Rejections, Snapshots
from isochrone_common.metrics_server import encode_metrics
from isochrone_wire.json_format import rfc3339

if TYPE_CHECKING:
    from prometheus_client.core import Metric

DESCRIBED = (*ENDPOINTS, STATUS)
"""The paths of queries in the OpenAPI document."""

_GET = ["GET"]
_POST = ["POST"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The services behind the application; `clock` returns microseconds since the epoch. `metrics` is called in the
    event loop, and its result is read in a thread.
    """

    publisher: Publisher
    changes: Changes
    plans: Plans
    query_context: QueryContext
    authenticator: Authenticator
    snapshots: Snapshots
    rejections: Rejections
    clock: Callable[[], int]
    metrics: Callable[[], "Iterable[Metric]"]


def create_app(
    sources: Sources,
    hosts: Collection[str] | None = None,
    *,
    public_page: bool = False,
    public_targets: NameFilter = EVERY_NAME,
) -> Starlette:
    """Create the application, for requests to these `hosts` only, if there are any. With `public_page` the status needs
    no credential; it has the `public_targets` only.
    """
    tables = TableRoutes(
        publisher=sources.publisher, plans=sources.plans, authenticator=sources.authenticator, clock=sources.clock
    )
    changes = ChangeRoutes(changes=sources.changes, authenticator=sources.authenticator)
    page = PageRoutes(authenticator=sources.authenticator, has_public_page=public_page)
    status = StatusRoutes(sources.query_context, is_public=public_page, targets=public_targets)
    queries = QueryRoutes(sources.query_context)
    streams = SampleStreams(query_context=sources.query_context, authenticator=sources.authenticator)
    discovery = DiscoveryRoutes(snapshots=sources.snapshots, rejections=sources.rejections)
    # One after the other, because the metrics of many series take much of a second.
    scrape = asyncio.Lock()

    async def readyz(_request: Request) -> Response:
        """Report that tables are served, and since when without the database."""
        since_at = sources.publisher.stale_since_at
        value = {
            "ready": True,
            "generation": sources.publisher.generation,
            "stale_since_at": None if since_at is None else rfc3339(since_at),
        }
        return _uncached(value)

    async def metrics(request: Request) -> Response:
        """Return the metrics in a format of Prometheus."""
        accept = request.headers.get("accept", "")
        async with scrape:
            content, media_type = await asyncio.to_thread(encode_metrics, sources.metrics(), accept)
        return Response(content, headers={"Cache-Control": "no-store", "Content-Type": media_type})

    app = Starlette(
        routes=[
            Route("/v1/routes", tables.overview, methods=_GET),
            Route("/v1/routes/watch", tables.watch_all, methods=_GET),
            Route("/v1/routes/{client_region}", tables.region, methods=_GET),
            Route("/v1/routes/{client_region}/watch", tables.watch, methods=_GET),
            Route("/v1/samples/export", streams.export, methods=_GET),
            Route("/v1/samples/watch", streams.watch, methods=_GET),
            *(Route(endpoint.path, queries.handler(endpoint), methods=_GET) for endpoint in ENDPOINTS),
            Route("/v1/changes", changes.watch, methods=_GET),
            Route("/v3/discovery:clusters", discovery.clusters, methods=_POST),
            Route("/v3/discovery:routes", discovery.routes, methods=_POST),
            Route("/v1/openapi.json", _openapi, methods=_GET),
            Route("/metrics", metrics, methods=_GET),
            Route("/healthz", _healthz, methods=_GET),
            Route("/readyz", readyz, methods=_GET),
            *status.routes,
            *page.routes,
        ],
        middleware=[
            Middleware(
                BearerAuth,
                authenticator=sources.authenticator,
                hosts=hosts,
                is_public=lambda path: page.is_public(path) or status.is_public(path),
                is_exposed=public_page,
            )
        ],
        exception_handlers={
            CollectorError: responses.handle,
            HTTPException: responses.handle,
            Exception: responses.handle,
        },
    )
    # A redirect would answer for another name than the requested one.
    app.router.redirect_slashes = False
    return app


async def _openapi(_request: Request) -> Response:
    """Return the OpenAPI document."""
    return JsonResponse(_description(), headers={"Cache-Control": "no-cache"})


@cache
def _description() -> bytes:
    return encode_line(openapi.document(DESCRIBED))


async def _healthz(_request: Request) -> Response:
    """Report that this process answers."""
    return _uncached({"alive": True})


def _uncached(value: Mapping[str, object]) -> Response:
    return JsonResponse(encode_line(value), headers={"Cache-Control": "no-store"})
