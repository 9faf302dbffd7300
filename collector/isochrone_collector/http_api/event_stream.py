"""Server-sent events to one reader: tables as they come, a heartbeat while none does, and an end for whoever is slow.

What is on its way to a reader is bounded by the buffer of its connection: while that is full nothing more is written,
and a reader that has not made room for a while is dropped. It resumes with the last event it saw.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import structlog
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from isochrone_collector.errors import CollectorError, DatabaseUnavailable, TooMany
from isochrone_wire.model import SECOND_US
from isochrone_wire.routes import RouteTable

SEND_TIMEOUT_US = 20 * SECOND_US
MEDIA_TYPE = "text/event-stream"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

# Whoever is refused is refused at once, and learns it as a status; what fails later ends a stream that has begun.
_FIRST_TIMEOUT_S = 0.05
_RETRY = b"retry: 2000\n\n"
_HEARTBEAT = b": still here\n\n"
_END: Message = {"type": "http.response.body", "body": b"", "more_body": False}

_log = structlog.get_logger()

Tables = AsyncGenerator[RouteTable | None, None]


class EventStream(Response):
    """The answer that goes on, begun by `begin`. Before each event `admit` may raise that the reader is no longer
    welcome.
    """

    def __init__(
        self,
        tables: Tables,
        first: "asyncio.Future[RouteTable | None]",
        *,
        event: Callable[[RouteTable], bytes],
        admit: Callable[[], Awaitable[object]],
    ) -> None:
        super().__init__(headers=HEADERS, media_type=MEDIA_TYPE)
        # A stream has no length.
        del self.headers["content-length"]
        self._tables = tables
        self._next = first
        self._event = event
        self._admit = admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the reader leaves, is too slow or is shut out, or the tables end because the collector stops."""
        disconnect = asyncio.ensure_future(disconnected(receive))
        try:
            await _sent(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await _sent(send, _body(_RETRY))
            async for content in self._contents(disconnect):
                await _sent(send, _body(content))
            await _sent(send, _END)
        except TimeoutError:
            _log.info("watcher.dropped", reason="it does not read", client=str(scope.get("client")))
            scope["state"]["abort"]()
        finally:
            disconnect.cancel()
            self._next.cancel()
            await asyncio.gather(disconnect, self._next, return_exceptions=True)
            await self._tables.aclose()

    async def _contents(self, disconnect: "asyncio.Future[None]") -> AsyncGenerator[bytes, None]:
        while True:
            either: set[asyncio.Future[Any]] = {self._next, disconnect}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if disconnect.done() or not await self._is_admitted():
                return
            try:
                table = self._next.result()
            except (StopAsyncIteration, CollectorError) as error:
                _log.info("watcher.ended", reason=str(error))
                return
            self._next = asyncio.ensure_future(anext(self._tables))
            yield _HEARTBEAT if table is None else self._event(table)

    async def _is_admitted(self) -> bool:
        try:
            await self._admit()
        except (DatabaseUnavailable, TooMany):
            # Nobody can tell now, and they were welcome before.
            return True
        except CollectorError as error:
            _log.info("watcher.ended", reason=str(error))
            return False
        return True


async def start(
    tables: Tables, *, event: Callable[[RouteTable], bytes], admit: Callable[[], Awaitable[object]]
) -> EventStream:
    """A stream of tables as events. Raises what the tables raise at once, `TooMany` for instance."""
    first = asyncio.ensure_future(anext(tables))
    await asyncio.wait({first}, timeout=_FIRST_TIMEOUT_S)
    error = first.exception() if first.done() else None
    if error is not None:
        await tables.aclose()
        raise error
    return EventStream(tables, first, event=event, admit=admit)


async def disconnected(receive: Receive) -> None:
    """Return when whoever asked has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _sent(send: Send, message: Message) -> None:
    """Raises `TimeoutError` when the reader makes no room for it."""
    async with asyncio.timeout(SEND_TIMEOUT_US / SECOND_US):
        await send(message)


def _body(content: bytes) -> Message:
    return {"type": "http.response.body", "body": content, "more_body": True}
