"""The application of the gateway: requests of callers to the routing engine, and its responses back, byte for byte.

A response begins when the engine has one to keep: with the first content of a stream. Each piece is sent as it arrives,
and the next one is read when the caller has room for it. A caller that leaves ends the request to the member.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpcore
import structlog
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from isochrone.gateway import answers, metrics
from isochrone.gateway.access import Access
from isochrone.routing.engine import ERRORS, MEMBER, Engine, Incoming, Outgoing, own_response
from isochrone.routing.requests import KEY_HEADERS, ProviderRequest

MAX_BODY_BYTES = 32 << 20
_EXTENSIONS = {"timeout": {"connect": 5.0, "read": 600.0, "write": 60.0}}
_OF_CONNECTION = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade expect date set-cookie alt-svc".split()
)
# The key is for the gateway only, and the others describe the caller.
_NOT_SENT = {*_OF_CONNECTION, *KEY_HEADERS, *b"forwarded via x-forwarded-for x-real-ip origin referer".split()}
_OPEN = ("/healthz", "/readyz")
_log = structlog.get_logger("isochrone.gateway")


class GatewayEngine(Engine):
    """The engine of a gateway: requests have no address but the members of the routes that are `served`."""

    @property
    def names(self) -> list[str]:
        """The routes that are served and have a table."""
        return [table.route for table in self.routes.tables() if not self.served or table.route in self.served]

    async def elsewhere(self, outgoing: Outgoing, request: ProviderRequest | None) -> Incoming:
        """Refuse a request without a route, with the reason."""
        if request is None:
            known = "POST /v1/chat/completions, /v1/responses and /v1/messages with a JSON object"
            return _refused(404, f"this gateway takes {known}, not this {outgoing.method}")
        if names := self.names:
            known = ", ".join(map(repr, names))
            message = f"the model {request.route[:80]!r} is not a route of this gateway: use {known}"
            return _refused(404, message, code="model_not_found")
        return _refused(503, "no route table has arrived from the collector yet", code="no_table")


@dataclass(frozen=True, slots=True)
class Limits:
    """The number of connections of callers, and the seconds in which a request has to arrive."""

    connections: int
    request_s: float


@dataclass(slots=True)
class _Outcome:
    """What the log has of a request. The times are seconds, the size is that of the body in bytes."""

    began_s: float = field(default_factory=time.perf_counter)
    first_s: float | None = None
    status: int | None = None
    member: Mapping[str, str] = field(default_factory=dict)
    size: int = 0
    ending: str = "the caller left"

    def note(self) -> None:
        """Log and count the request."""
        whole_s, first_ms = time.perf_counter() - self.began_s, None
        labels = self.member.get("route", ""), self.member.get("target", "")
        metrics.REQUESTS.labels(*labels, str(self.status or "")).inc()
        if self.first_s is not None:
            first_ms = round(1000 * self.first_s, 1)
            metrics.FIRST_CONTENT.labels(*labels).observe(self.first_s)
        figures = {"first_ms": first_ms, "ms": round(1000 * whole_s, 1), "bytes": self.size}
        _log.info("gateway.request", **self.member, status=self.status, **figures, ending=self.ending)


@dataclass(eq=False)
class Forwarding:
    """Answers the requests for members."""

    engine: GatewayEngine
    limits: Limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, unless the caller leaves before."""
        request, request_s = Request(scope, receive), self.limits.request_s
        try:
            async with asyncio.timeout(request_s):
                body = await _body(request)
        except TimeoutError:
            await _own(408, f"the body of the request is not complete after {request_s:g} s")(scope, receive, send)
            return
        if body is None:
            too_large = f"the body of the request is larger than {MAX_BODY_BYTES >> 20} MiB"
            await _own(413, too_large)(scope, receive, send)
            return
        exchange = asyncio.create_task(self._exchange(request, body, send))
        left = asyncio.ensure_future(receive())
        try:
            await asyncio.wait((exchange, left), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (left, exchange):
                task.cancel()
            await asyncio.gather(exchange, return_exceptions=True)

    async def _exchange(self, request: Request, body: bytes, send: Send) -> None:
        """Send a request to its members, and the response to the caller; one that breaks off stays incomplete."""
        outcome, incoming = _Outcome(), None
        headers = [pair for pair in request.headers.raw if pair[0] not in _NOT_SENT]
        outgoing = Outgoing(
            method=request.method, url=str(request.url), headers=headers, body=body, extensions=_EXTENSIONS
        )
        try:
            incoming = await self._answer(outgoing)
            outcome.first_s, outcome.status = time.perf_counter() - outcome.began_s, incoming.status
            outcome.member = incoming.extensions.get(MEMBER, {})
            await send(_head(incoming, outcome.member))
            async for data in incoming.body():
                outcome.size += len(data)
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            outcome.ending = "complete"
        except ERRORS as error:
            outcome.ending = f"broken off: {type(error).__name__} {error}".strip()
        except Exception as error:  # noqa: BLE001  # uvicorn answers with status 500
            outcome.ending = f"failed: {error!r}"
        finally:
            if incoming is not None:
                await incoming.aclose()
            outcome.note()

    async def _answer(self, outgoing: Outgoing) -> Incoming:
        try:
            return await self.engine.send(outgoing)
        except ERRORS as error:
            status = 504 if isinstance(error, httpcore.TimeoutException) else 502
            return _refused(status, f"no member has answered; the last one: {type(error).__name__} {error}".strip())


@dataclass(eq=False)
class Guard:
    """Middleware that refuses callers without access."""

    app: ASGIApp
    access: Access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        refusal = None if scope["path"] in _OPEN else self.access.refusal(Headers(scope=scope))
        if refusal is not None:
            _log.info("gateway.refused", status=refusal[0], reason=refusal[1])
        await (self.app if refusal is None else _own(*refusal))(scope, receive, send)


def create_app(engine: GatewayEngine, access: Access, limits: Limits) -> Starlette:
    """Create the application."""

    async def readyz(_request: Request) -> Response:
        names = engine.names
        return JSONResponse({"ready": bool(names), "routes": names}, status_code=200 if names else 503)

    async def exposition(request: Request) -> Response:
        content, media_type = metrics.exposition(engine.routes, request.headers.get("accept", ""))
        return Response(content, headers={"content-type": media_type})

    return Starlette(
        routes=[
            Route("/healthz", lambda _: JSONResponse({"alive": True})),
            Route("/readyz", readyz),
            Route("/metrics", exposition),
            Route("/v1/models", lambda _: JSONResponse(answers.models(engine.names))),
            Route("/{path:path}", Forwarding(engine, limits)),
        ],
        middleware=[Middleware(Guard, access=access)],
    )


async def _body(request: Request) -> bytes | None:
    """The body of a request; `None` if it is too large."""
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > MAX_BODY_BYTES:
        return None
    parts, size = list[bytes](), 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > MAX_BODY_BYTES:
            return None
    return b"".join(parts)


def _head(incoming: Incoming, member: Mapping[str, str]) -> dict[str, Any]:
    kept = [(name.lower(), value) for name, value in incoming.headers if name.lower() not in _OF_CONNECTION]
    if member:
        kept.append((b"x-isochrone-target", member["target"].encode("latin-1", "replace")))
    return {"type": "http.response.start", "status": incoming.status, "headers": kept}


def _own(status: int, message: str) -> Response:
    return Response(answers.error(status, message), status, media_type="application/json")


def _refused(status: int, message: str, *, code: str | None = None) -> Incoming:
    return own_response(status, answers.error(status, message, code=code))
