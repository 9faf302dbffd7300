"""Streams for one reader: items as they come, as server-sent events with heartbeats or as lines, and a disconnect of
slow readers.

Pending data is bounded by the connection's buffer: while it is full nothing is written, and a reader that does not read
for `SEND_TIMEOUT_US` is disconnected. It resumes from the last event it received.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

import structlog
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from isochrone_collector.auth.authenticator import while_valid
from isochrone_collector.errors import CollectorError
from isochrone_wire.model import SECOND_US

SEND_TIMEOUT_US = 20 * SECOND_US
MEDIA_TYPE = "text/event-stream"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

# A refusal comes at once and becomes a status code; later errors end the stream.
_FIRST_TIMEOUT_S = 0.05
_RETRY = b"retry: 2000\n\n"
_HEARTBEAT = b": still here\n\n"
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
        """Stream until the reader disconnects, is too slow or loses its access, or the collector stops."""
        pending: list[asyncio.Future[Any]] = [self._first]
        send = partial(_sent, send, scope["state"]["is_full"])
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            sending = asyncio.ensure_future(self._send_events(send))
            pending += (sending, asyncio.ensure_future(disconnected(receive)))
            await asyncio.wait(pending[1:], return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and not sending.result():
                scope["state"]["abort"]()
            else:
                await send(_END)
        except TimeoutError:
            _log.info("watcher.dropped", reason="the reader is too slow", client=str(scope.get("client")))
            scope["state"]["abort"]()
        finally:
            for future in pending:
                future.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            await self._items.aclose()

    async def _send_events(self, send: Send) -> bool:
        """Send events until the stream ends; return false if the connection must be aborted. Raises `TimeoutError` if
        the reader does not read.
        """
        try:
            await while_valid(self._copy(send), self._authenticate)
        except CollectorError as error:
            _log.info("watcher.ended", reason=str(error))
            return self.media_type == MEDIA_TYPE
        return True

    async def _copy(self, send: Send) -> None:
        # Without a task for each event: a table goes to a thousand readers at once.
        if self.media_type == MEDIA_TYPE:
            await send(_body(_RETRY))
        with suppress(StopAsyncIteration):
            item = await self._first
            while True:
                await send(_body(_HEARTBEAT if item is None else self._event(item)))
                item = await anext(self._items)


async def start(
    items: AsyncGenerator[Item | None, None],
    *,
    event: Callable[[Item], bytes],
    authenticate: Callable[[], Awaitable[object]],
    media_type: str = MEDIA_TYPE,
    first_timeout_s: float | None = _FIRST_TIMEOUT_S,
) -> EventStream[Item]:
    """Start a stream of items as events. Raises the errors of the first item, such as `ResourceExhausted`."""
    first = asyncio.ensure_future(anext(items))
    await asyncio.wait({first}, timeout=first_timeout_s)
    error = first.exception() if first.done() else None
    if error is not None and not isinstance(error, StopAsyncIteration):
        await items.aclose()
        raise error
    return EventStream(items, first, event=event, authenticate=authenticate, media_type=media_type)


async def disconnected(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _sent(send: Send, is_full: Callable[[], bool], message: Message) -> None:
    """Send a message. Raises `TimeoutError` if the reader does not read."""
    if not is_full():
        await send(message)
        return
    async with asyncio.timeout(SEND_TIMEOUT_US / SECOND_US):
        await send(message)


def _body(content: bytes) -> Message:
    return {"type": "http.response.body", "body": content, "more_body": True}
