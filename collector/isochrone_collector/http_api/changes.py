"""Notices of new data as server-sent events, for open pages."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from isochrone_collector.auth.authenticator import Authenticator
from isochrone_collector.auth.limits import StreamCounts
from isochrone_collector.http_api import bearer_auth, event_stream, query_parameters
from isochrone_collector.http_api.encoded_tables import encode
from isochrone_collector.publishing.change_event import ChangeEvent
from isochrone_collector.publishing.changes import Changes

MAX_PAGES = 200
"""Maximum number of streams of notices of one caller."""


class ChangeRoutes:
    """The route of the stream."""

    def __init__(self, *, changes: Changes, authenticator: Authenticator) -> None:
        self._changes = changes
        self._authenticator = authenticator
        self._streams = StreamCounts(each=MAX_PAGES)

    async def watch(self, request: Request) -> Response:
        """Stream notices: at most one a second, and a heartbeat without topics at once and every ten seconds."""
        query_parameters.parse(request.scope["query_string"], known=())
        if request.method == "HEAD":
            return Response(headers=event_stream.HEADERS, media_type=event_stream.MEDIA_TYPE)
        return await event_stream.start(
            self._counted(request),
            event=_event,
            authenticate=partial(bearer_auth.authenticate, self._authenticator, request),
        )

    async def _counted(self, request: Request) -> AsyncGenerator[ChangeEvent | None, None]:
        """Yield as `Changes.watch`, counted for the caller. Raises `ResourceExhausted`."""
        with self._streams.hold(request.state.principal.key):
            async with aclosing(self._changes.watch()) as notices:
                async for notice in notices:
                    yield notice


def _event(notice: ChangeEvent) -> bytes:
    return b"event: change\ndata: %s\n\n" % encode(notice)
