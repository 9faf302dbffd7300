"""Streams of samples: all of a selection as lines of JSON, and new ones as server-sent events."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from isochrone_collector.auth.authenticator import Authenticator
from isochrone_collector.auth.limits import StreamCounts
from isochrone_collector.http_api import bearer_auth, event_stream, query_parameters
from isochrone_collector.http_api.endpoint import Parameter, ParsedRequest
from isochrone_collector.http_api.parameters import EXPORT, LINES, WATCH
from isochrone_collector.queries import samples
from isochrone_collector.queries.context import QueryContext
from isochrone_wire.answers import Selection, Window
from isochrone_wire.fleet import StoredSample
from isochrone_wire.json_format import rfc3339
from isochrone_wire.queries.documents import FORMATS
from isochrone_wire.queries.json_text import plain_text

MAX_STREAMS = 16
"""Maximum number of streams of samples of one caller, of each of the two kinds."""

_record = FORMATS["SampleList"].record


class SampleStreams:
    """The routes of both streams."""

    def __init__(self, *, query_context: QueryContext, authenticator: Authenticator) -> None:
        self._query_context = query_context
        self._authenticator = authenticator
        self._exports, self._watches = StreamCounts(each=MAX_STREAMS), StreamCounts(each=MAX_STREAMS)

    async def export(self, request: Request) -> Response:
        """Stream the samples of a selection as lines of JSON; without the end of the body they are incomplete."""
        asked = self._parsed(request, EXPORT)
        found = samples.export(
            self._query_context, asked.selection, newest=asked.count("newest"), after=asked.text("after")
        )
        return await self._start(request, self._lines(request, found), media_type=LINES)

    async def watch(self, request: Request) -> Response:
        """Stream samples as they are stored. The id of an event is the instant, in microseconds since the epoch, from
        which a stream that broke continues: earlier samples have been sent, later ones may have been.
        """
        asked = self._parsed(request, WATCH)
        event_id, since = request.headers.get("last-event-id", ""), asked.text("since")
        since_at = query_parameters.count(event_id, name="Last-Event-ID") or query_parameters.instant("since", since)
        selection = Selection(
            window=Window(from_at=0, until_at=1), targets=asked.texts("target"), regions=asked.texts("region")
        )
        return await self._start(
            request, self._events(request, selection, since_at), media_type=event_stream.MEDIA_TYPE
        )

    def _parsed(self, request: Request, parameters: Sequence[Parameter]) -> ParsedRequest:
        query = query_parameters.parse(request.scope["query_string"], known=[one.name for one in parameters])
        return ParsedRequest(query=query, now_at=self._query_context.clock())

    async def _start(self, request: Request, items: AsyncGenerator[bytes, None], *, media_type: str) -> Response:
        if request.method == "HEAD":
            return Response(headers=event_stream.HEADERS, media_type=media_type)
        return await event_stream.start(
            items,
            event=bytes,
            authenticate=partial(bearer_auth.authenticate, self._authenticator, request),
            media_type=media_type,
            first_timeout_s=None,
        )

    async def _lines(
        self, request: Request, portions: AsyncGenerator[list[StoredSample], None]
    ) -> AsyncGenerator[bytes, None]:
        """Yield portions of samples, counted for the caller. Raises `ResourceExhausted`."""
        with self._exports.hold(request.state.principal.key):
            async with aclosing(portions):
                async for portion in portions:
                    yield await asyncio.to_thread(_encoded_lines, portion)

    async def _events(self, request: Request, selection: Selection, since_at: int) -> AsyncGenerator[bytes, None]:
        """Yield as `samples.follow`, counted for the caller. Raises `ResourceExhausted`."""
        with self._watches.hold(request.state.principal.key):
            found = samples.follow(self._query_context, selection, since_at=since_at)
            async with aclosing(found):
                async for one in found:
                    yield await asyncio.to_thread(_encoded_event, one.resume_at, one.samples)


def _encoded_lines(portion: Sequence[StoredSample]) -> bytes:
    return b"".join(plain_text(_record(one)).encode() + b"\n" for one in portion)


def _encoded_event(resume_at: int, portion: Sequence[StoredSample]) -> bytes:
    rows = ",".join(plain_text(_record(one)) for one in portion)
    data = f'{{"resume_at":"{rfc3339(resume_at)}","rows":[{rows}]}}'
    return b"id: %d\nevent: samples\ndata: %s\n\n" % (resume_at, data.encode())
