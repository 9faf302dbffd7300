"""The Starlette application of the HTTP interface."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from isochrone_collector.auth.authenticator import Authenticator
from isochrone_collector.errors import CollectorError
from isochrone_collector.http_api import openapi, problems
from isochrone_collector.http_api.bearer_auth import BearerAuth
from isochrone_collector.http_api.encoded_tables import encode_line
from isochrone_collector.http_api.queries import QueryRoutes
from isochrone_collector.http_api.route_tables import TableRoutes
from isochrone_collector.plans.service import Plans
from isochrone_collector.publishing.publisher import Publisher
from isochrone_collector.queries.context import QueryContext
from isochrone_wire.json_format import rfc3339
from isochrone_wire.metrics.endpoint import encode_metrics

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_GET = ["GET"]
_DESCRIPTION = encode_line(openapi.document())


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The services behind the application; `clock` returns microseconds since the epoch. `metrics` is called in the
    event loop, and its result is read in a thread.
    """

    publisher: Publisher
    plans: Plans
    query_context: QueryContext
    authenticator: Authenticator
    clock: Callable[[], int]
    metrics: Callable[[], "Iterable[Metric]"]


def create_app(sources: Sources, hosts: Collection[str] | None = None) -> Starlette:
    """Create the application, for requests to these `hosts` only, if there are any."""
    tables = TableRoutes(
        publisher=sources.publisher, plans=sources.plans, authenticator=sources.authenticator, clock=sources.clock
    )
    queries = QueryRoutes(sources.query_context)
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
            Route("/v1/routes/{client_region}", tables.region, methods=_GET),
            Route("/v1/routes/{client_region}/watch", tables.watch, methods=_GET),
            Route("/v1/explain/{client_region}/{route}", queries.explain, methods=_GET),
            Route("/v1/diff", queries.diff, methods=_GET),
            Route("/v1/openapi.json", _openapi, methods=_GET),
            Route("/metrics", metrics, methods=_GET),
            Route("/healthz", _healthz, methods=_GET),
            Route("/readyz", readyz, methods=_GET),
        ],
        middleware=[Middleware(BearerAuth, authenticator=sources.authenticator, hosts=hosts)],
        exception_handlers={
            CollectorError: problems.handle,
            HTTPException: problems.handle,
            Exception: problems.handle,
        },
    )
    # A redirect would answer for another name than the requested one.
    app.router.redirect_slashes = False
    return app


async def _openapi(_request: Request) -> Response:
    """Return the OpenAPI document."""
    return Response(_DESCRIPTION, headers={"Cache-Control": "no-cache"}, media_type="application/json")


async def _healthz(_request: Request) -> Response:
    """Report that this process answers."""
    return _uncached({"alive": True})


def _uncached(value: Mapping[str, object]) -> Response:
    return Response(encode_line(value), headers={"Cache-Control": "no-store"}, media_type="application/json")
