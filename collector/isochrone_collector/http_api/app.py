import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from isochrone_collector.errors import CollectorError
from isochrone_collector.http_api import openapi, responses
from isochrone_collector.http_api.bearer_auth import BearerAuth
from isochrone_collector.http_api.page import STATUS, PageRoutes, StatusRoutes
from isochrone_collector.http_api.queries import ENDPOINTS, QueryRoutes
from isochrone_collector.http_api.requests import JSON, Endpoint, routes
from isochrone_collector.http_api.responses import JsonResponse, encode_line
from isochrone_collector.http_api.route_tables import DISCOVERY, TABLES, DiscoveryRoutes, TableRoutes
from isochrone_collector.http_api.sources import Sources
from isochrone_collector.http_api.streams import CHANGES, SAMPLES, ChangeRoutes, SampleStreams
from isochrone_collector.names import EVERY_NAME, NameFilter
from isochrone_common.metrics_server import encode_metrics


def create_app(
    sources: Sources,
    hosts: Collection[str] | None = None,
    *,
    public_page: bool = False,
    public_targets: NameFilter = EVERY_NAME,
) -> Starlette:
    """Create the application, for requests to these `hosts` only if given; `public_page` opens the status to all."""
    page = PageRoutes(authenticator=sources.authenticator, has_public_page=public_page)
    status = StatusRoutes(sources.query_context, sources.authenticator, is_public=public_page, targets=public_targets)
    served = (
        (TABLES, TableRoutes(sources)),
        (SAMPLES, SampleStreams(sources)),
        (CHANGES, ChangeRoutes(sources)),
        (DISCOVERY, DiscoveryRoutes(sources)),
        (PROCESS, ProcessRoutes(sources)),
    )
    app = Starlette(
        routes=[
            *(route for endpoints, owner in served for route in routes(endpoints, owner, sources.clock)),
            *QueryRoutes(sources.query_context).routes,
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
        exception_handlers=dict.fromkeys((CollectorError, HTTPException, Exception), responses.handle),
    )
    # A redirect would answer for another name than the requested one.
    app.router.redirect_slashes = False
    return app


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """The process answers."""

    alive: Literal[True] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Tables are served."""

    ready: Literal[True] = True
    generation: int
    stale_since_at: Annotated[
        int | None, "The instant since when the database is unavailable; the tables known then are served."
    ]


@dataclass(eq=False)
class ProcessRoutes:
    """The state of the process, and the description of its interface."""

    sources: Sources

    def __post_init__(self) -> None:
        # One after the other, because the metrics of many series take much of a second.
        self._scrape = asyncio.Lock()

    async def openapi(self, _request: Request) -> Response:
        """Return the OpenAPI document."""
        return JsonResponse(_description(), headers={"Cache-Control": "no-cache"})

    async def metrics(self, request: Request) -> Response:
        """Return the metrics in a format of Prometheus."""
        accept = request.headers.get("accept", "")
        async with self._scrape:
            content, media_type = await asyncio.to_thread(encode_metrics, self.sources.metrics(), accept)
        return Response(content, headers={"Cache-Control": "no-store", "Content-Type": media_type})

    async def healthz(self, _request: Request) -> Response:
        """Report that this process answers."""
        return JsonResponse(encode_line(Alive()), headers={"Cache-Control": "no-store"})

    async def readyz(self, _request: Request) -> Response:
        """Report that tables are served, and since when without the database."""
        publisher = self.sources.publisher
        ready = Ready(generation=publisher.generation, stale_since_at=publisher.stale_since_at)
        return JsonResponse(encode_line(ready), headers={"Cache-Control": "no-store"})


def _of_process(path: str, summary: str, work: Callable[..., Any], answer: Any, media_type: str = JSON) -> Endpoint:  # noqa: ANN401  # a type
    return Endpoint(path=path, summary=summary, work=work, parameters=None, answer=answer, media_type=media_type)


PROCESS = (
    _of_process("/v1/openapi.json", "This document.", ProcessRoutes.openapi, dict),
    _of_process(
        "/metrics",
        "The metrics of this collector and of what it measured, for Prometheus.",
        ProcessRoutes.metrics,
        str,
        "text/plain",
    ),
    _of_process("/healthz", "Liveness of the process; open to all.", ProcessRoutes.healthz, Alive),
    _of_process("/readyz", "Readiness to serve tables; open to all.", ProcessRoutes.readyz, Ready),
)
DESCRIBED = (*TABLES, *SAMPLES, *CHANGES, *DISCOVERY, *PROCESS, *ENDPOINTS, *STATUS)
"""The paths in the OpenAPI document."""


@cache
def _description() -> bytes:
    return encode_line(openapi.document(DESCRIBED))
