"""The status of all targets, and badges with parts of it, which the public may read with `--public-page`.

Callers without a credential cost little: all share one answer, which is computed at most once a second and takes at
most a twentieth of the time, and each address has a limit of requests.
"""

import asyncio
from contextlib import nullcontext
from math import ceil

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from isochrone_collector.auth.limits import BucketPerKey, LeakyBucket, RefusalPause, network_of, without_details
from isochrone_collector.errors import ResourceExhausted
from isochrone_collector.http_api import badges, entity_tags, query_parameters
from isochrone_collector.http_api.bodies import VARY, JsonResponse
from isochrone_collector.http_api.encoded_documents import EncodedDocument, encode_document
from isochrone_collector.http_api.endpoint import Endpoint, ParsedRequest
from isochrone_collector.http_api.parameters import FORMAT
from isochrone_collector.http_api.shared_answers import SharedAnswers
from isochrone_collector.names import EVERY_NAME, NameFilter
from isochrone_collector.queries import status
from isochrone_collector.queries.context import QueryContext
from isochrone_wire.queries.status import StatusList, TargetStatus

STATUS = Endpoint(
    path="/v1/status",
    summary="The state of each target from each region. Open to all with --public-page.",
    answer=StatusList,
    query=lambda context, _request: status.status(context),
    parameters=(FORMAT,),
)
BADGE = "/badge/{target:path}/{region}.svg"
PUBLIC_PATHS = (STATUS.path, BADGE)
"""All paths with data that need no credential with `--public-page`."""

MAX_AGE_S = 60.0
"""The greatest age of a shared answer, in seconds; it is that old only if its query took three seconds."""

# Requests of the public, of one address and of all.
_PER_SECOND, _BURST = 10.0, 100.0
_ALL_PER_SECOND, _ALL_BURST = 200.0, 400.0
_KEPT_S = 10
_BADGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'",
    "X-Content-Type-Options": "nosniff",
}

_Answer = tuple[StatusList, EncodedDocument]


class StatusRoutes:
    """The routes of the status and of badges, open to the public if `is_public`. They have these `targets` only, for
    readers, too: all callers share one answer, in which another target does not exist.
    """

    def __init__(self, query_context: QueryContext, *, is_public: bool, targets: NameFilter = EVERY_NAME) -> None:
        self._query_context = query_context
        self._is_public = is_public
        self._targets = targets
        self._shared = SharedAnswers[_Answer]()
        self._of_address = BucketPerKey(per_second=_PER_SECOND, burst=_BURST)
        self._of_all = LeakyBucket(per_second=_ALL_PER_SECOND, burst=_ALL_BURST)
        self._pause = RefusalPause()
        self.routes = (
            Route(STATUS.path, self._status, methods=["GET"]),
            Route(BADGE, self._badge, methods=["GET"], include_in_schema=False),
        )
        """The routes of `PUBLIC_PATHS`."""

    def is_public(self, path: str) -> bool:
        """Return whether a path needs no credential."""
        return self._is_public and any(route.path_regex.match(path) for route in self.routes)

    async def _status(self, request: Request) -> Response:
        STATUS.parse(request.scope["query_string"], path={}, now_at=self._query_context.clock())
        (_, document), age_s = await self._answer(request)
        headers = {"Cache-Control": self._cache_control, "ETag": entity_tags.weak(document.etag), **VARY}
        if age_s:
            headers["Age"] = str(ceil(age_s))
        if entity_tags.is_current(entity_tags.none_match(request.headers), document.etag):
            return Response(status_code=304, headers=headers)
        return JsonResponse(document.content, headers=headers)

    async def _badge(self, request: Request) -> Response:
        """Return the badge of a target from a region; a neutral one with 404 if either is unknown."""
        query = query_parameters.parse(request.scope["query_string"], known=["metric"])
        metric = ParsedRequest(query=query, now_at=0).choice("metric", badges.METRICS) or "state"
        (found, _), _ = await self._answer(request)
        row = _row_of(found, request.path_params["target"], request.path_params["region"])
        badge = badges.unknown_badge() if row is None else badges.badge_of(row, metric)
        headers = {
            "Cache-Control": self._cache_control,
            "ETag": entity_tags.quoted(badge.etag),
            "Cross-Origin-Resource-Policy": "cross-origin" if self._is_public else "same-origin",
            **_BADGE_HEADERS,
        }
        if row is not None and entity_tags.is_current(entity_tags.none_match(request.headers), badge.etag):
            return Response(status_code=304, headers=headers)
        status_code = 404 if row is None else 200
        return Response(badge.content, status_code=status_code, headers=headers, media_type="image/svg+xml")

    @property
    def _cache_control(self) -> str:
        return f"public, max-age={_KEPT_S}" if self._is_public else "private, no-cache"

    async def _answer(self, request: Request) -> tuple[_Answer, float]:
        """Return the shared answer and its age in seconds. Raises `ResourceExhausted`, and as the query."""
        if self._is_public:
            await self._limit(request)
        with without_details() if self._is_public else nullcontext():
            return await self._shared.get(STATUS.path, self._make, max_age_s=MAX_AGE_S)

    async def _make(self) -> _Answer:
        found = await status.status(self._query_context, shown=self._targets)
        return found, await asyncio.to_thread(encode_document, found)

    async def _limit(self, request: Request) -> None:
        now_at = self._query_context.clock()
        address = network_of(request.client.host if request.client else "")
        if not (self._of_address.take(address, now_at) and self._of_all.take(now_at)):
            await self._pause.wait()
            raise ResourceExhausted("too many requests; the answer changes every few seconds only")


def _row_of(found: StatusList, target: str, region: str) -> TargetStatus | None:
    return next((row for row in found.rows if (row.target, row.region) == (target, region)), None)
