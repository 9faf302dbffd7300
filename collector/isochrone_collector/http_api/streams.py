"""Streams: notices of new data and new samples as server-sent events, and samples as lines of JSON.

Pending data is bounded by the connection's buffer: while it is full nothing is written, and the listener disconnects a
reader that does not read. It resumes from the last event or line that it received.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Generic, TypeVar

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from isochrone_collector.auth.authenticator import Authenticator, while_valid
from isochrone_collector.auth.limits import StreamCounts
from isochrone_collector.errors import CollectorError
from isochrone_collector.http_api import bearer_auth, requests
from isochrone_collector.http_api.responses import encode
from isochrone_collector.http_api.sources import Sources
from isochrone_collector.publishing.changes import ChangeEvent
from isochrone_collector.queries import samples
from isochrone_wire.answers import Selection
from isochrone_wire.fleet import SampleList, StoredSample
from isochrone_wire.json_format import plain_text, rfc3339
from isochrone_wire.queries.documents import FORMATS

HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

# A refusal comes at once and becomes a status code; later errors end the stream.
_FIRST_TIMEOUT_S = 0.05
_END: Message = {"type": "http.response.body", "body": b"", "more_body": False}

_log = structlog.get_logger()

Item = TypeVar("Item")


class EventStream(Response, Generic[Item]):
    """A streaming response, created by `start`, with the events of `items`; `None` among them is a heartbeat.
    `authenticate` raises if the reader's credential has been revoked. A stream of lines is complete only if its body
    ends: after an error the connection is aborted.
    """

    def __init__(
        self,
        items: AsyncGenerator[Item | None, None],
        first: "asyncio.Future[Item | None]",
        *,
        event: Callable[[Item], bytes],
        authenticate: Callable[[], Awaitable[object]],
        media_type: str,
    ) -> None:
        super().__init__(headers=HEADERS, media_type=media_type)
        # A stream has no content length.
        del self.headers["content-length"]
        self._items = items
        self._first = first
        self._event = event
        self._authenticate = authenticate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the reader disconnects or loses its access, or the collector stops."""
        pending: list[asyncio.Future[Any]] = [self._first]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            sending = asyncio.ensure_future(self._send_events(send))
            pending += (sending, asyncio.ensure_future(disconnected(receive)))
            await asyncio.wait(pending[1:], return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and not sending.result():
                scope["state"]["abort"]()
            else:
                await send(_END)
        finally:
            for future in pending:
                future.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            await self._items.aclose()

    async def _send_events(self, send: Send) -> bool:
        """Send events; return false if the connection must be aborted."""
        try:
            await while_valid(self._copy(send), self._authenticate)
        except CollectorError as error:
            _log.info("watcher.ended", reason=str(error))
            return self.media_type == requests.EVENTS
        return True

    async def _copy(self, send: Send) -> None:
        # There is no task for each event: a table goes to a thousand readers at once.
        if self.media_type == requests.EVENTS:
            await send(_body(b"retry: 2000\n\n"))
        with suppress(StopAsyncIteration):
            item = await self._first
            while True:
                await send(_body(b": still here\n\n" if item is None else self._event(item)))
                item = await anext(self._items)


async def start(
    request: Request,
    authenticator: Authenticator,
    items: AsyncGenerator[Item | None, None],
    *,
    event: Callable[[Item], bytes],
    media_type: str = requests.EVENTS,
    first_timeout_s: float | None = _FIRST_TIMEOUT_S,
) -> Response:
    """Start a stream of items as events. Raises the errors of the first item, such as `ResourceExhausted`."""
    if request.method == "HEAD":
        return Response(headers=HEADERS, media_type=media_type)
    first = asyncio.ensure_future(anext(items))
    await asyncio.wait({first}, timeout=first_timeout_s)
    error = first.exception() if first.done() else None
    if error is not None and not isinstance(error, StopAsyncIteration):
        await items.aclose()
        raise error
    authenticate = partial(bearer_auth.authenticate, authenticator, request)
    return EventStream(items, first, event=event, authenticate=authenticate, media_type=media_type)


async def counted(
    counts: StreamCounts, request: Request, items: AsyncGenerator[Item, None]
) -> AsyncGenerator[Item, None]:
    """Yield items, counted for the caller. Raises `ResourceExhausted`, and as the items."""
    with counts.hold(request.state.principal.key):
        async with aclosing(items):
            async for item in items:
                yield item


async def disconnected(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _body(content: bytes) -> Message:
    return {"type": "http.response.body", "body": content, "more_body": True}


MAX_PAGES = 200
"""Maximum number of streams of notices of one caller."""


class ChangeRoutes:
    """The stream of notices."""

    def __init__(self, sources: Sources) -> None:
        self._sources, self._streams = sources, StreamCounts(each=MAX_PAGES)

    async def watch(self, request: Request) -> Response:
        """Stream notices: at most one a second, and a heartbeat without topics at once and every ten seconds."""
        items = counted(self._streams, request, self._sources.changes.watch())
        return await start(
            request,
            self._sources.authenticator,
            items,
            event=lambda notice: b"event: change\ndata: %s\n\n" % encode(notice),
        )


CHANGES = (
    requests.Endpoint(
        path="/v1/changes",
        summary="Notices of new data, as server-sent events named `change`: at most one a second, and a heartbeat "
        "without topics at once and every ten seconds.",
        work=ChangeRoutes.watch,
        answer=ChangeEvent,
        media_type=requests.EVENTS,
    ),
)

MAX_STREAMS = 16
"""Maximum number of streams of samples of one caller, of each of the two kinds."""

_record = FORMATS["SampleList"].record


class SampleStreams:
    """The streams of samples."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._exports, self._watches = StreamCounts(each=MAX_STREAMS), StreamCounts(each=MAX_STREAMS)

    async def export(
        self, request: Request, *, selection: Selection, newest: int, after: str, matching: str
    ) -> Response:
        """Stream the samples of a selection as lines of JSON; without the end of the body they are incomplete."""
        context = self._sources.query_context
        found = samples.export(context, selection, newest=newest, after=after, matching=matching)
        return await self._start(request, counted(self._exports, request, _lines(found)), media_type=requests.LINES)

    async def watch(self, request: Request, *, selection: Selection, since_at: int, matching: str) -> Response:
        """Stream samples as they are stored. The id of an event is the instant, in microseconds since the epoch, from
        which a stream that broke continues: earlier samples have been sent, later ones may have been.
        """
        if event_id := request.headers.get("last-event-id"):
            since_at = requests.microseconds(event_id, name="Last-Event-ID") or since_at
        found = samples.follow(self._sources.query_context, selection, since_at=since_at, matching=matching)
        return await self._start(request, counted(self._watches, request, _events(found)), media_type=requests.EVENTS)

    async def _start(self, request: Request, items: AsyncGenerator[bytes, None], *, media_type: str) -> Response:
        authenticator = self._sources.authenticator
        return await start(request, authenticator, items, event=bytes, media_type=media_type, first_timeout_s=None)


async def _lines(portions: AsyncGenerator[list[StoredSample], None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(portions):
        async for portion in portions:
            yield await asyncio.to_thread(_encoded_lines, portion)


async def _events(found: AsyncGenerator[SampleList, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(found):
        async for one in found:
            yield await asyncio.to_thread(_encoded_event, one.resume_at, one.samples)


def _encoded_lines(portion: Sequence[StoredSample]) -> bytes:
    return b"".join(plain_text(_record(one)).encode() + b"\n" for one in portion)


def _encoded_event(resume_at: int, portion: Sequence[StoredSample]) -> bytes:
    rows = ",".join(plain_text(_record(one)) for one in portion)
    data = f'{{"resume_at":"{rfc3339(resume_at)}","rows":[{rows}]}}'
    return b"id: %d\nevent: samples\ndata: %s\n\n" % (resume_at, data.encode())


SAMPLES = (
    requests.Endpoint(
        path="/v1/samples/export",
        summary="All samples of a selection, as lines of JSON with the rows of /v1/samples; complete if the body ends.",
        work=SampleStreams.export,
        parameters=(
            requests.Parameter(
                "newest",
                {**requests.COUNT, "maximum": samples.MAX_SAMPLES},
                "So many of the newest samples, newest first; all, oldest round first, if 0 or missing.",
            ),
            requests.Parameter("after", requests.TEXT, "Continue after the sample with this id; not with newest."),
            requests.FILTER,
            *requests.SELECTION,
        ),
        answer=SampleList,
        media_type=requests.LINES,
    ),
    requests.Endpoint(
        path="/v1/samples/watch",
        summary="Samples as they are stored, as server-sent events: data has rows as /v1/samples, and resume_at, which "
        "is the id in microseconds: samples received before it have been sent, later ones may have been.",
        work=SampleStreams.watch,
        parameters=(
            requests.Parameter(
                "since",
                requests.INSTANT,
                "Samples received from this instant on; now if missing.",
                "since_at",
                requests.parsed(requests.instant),
            ),
            requests.FILTER,
            requests.TARGET,
            requests.REGION,
        ),
        answer=SampleList,
        media_type=requests.EVENTS,
        request_headers={"Last-Event-ID": "Continue from this id."},
    ),
)
