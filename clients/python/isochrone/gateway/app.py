"""The application of the gateway: requests of callers to the routing engine, and its responses back, byte for byte.

A response begins when the engine has one to keep: with the first content of a stream. Each piece is sent as it arrives,
and the next one is read when the caller has room for it. A caller that leaves ends the request to the member.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httpcore
import structlog
from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from isochrone.gateway.access import Access
from isochrone.routing.engine import ERRORS, MEMBER, Engine, Incoming, Outgoing, own_response, refusal
from isochrone.routing.requests import KEY_HEADERS, ProviderRequest, without_keys
from isochrone_wire.durations import SECOND_US

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

REQUESTS = Counter(
    "isochrone_gateway_requests",
    "Requests by route, member that answered and status; without a member, the gateway answered, or the caller left.",
    ("route", "target", "status"),
)
FIRST_CONTENT = Histogram(
    "isochrone_gateway_first_content_seconds",
    "Time from a request to the head of its answer, which is sent with the first content of a stream.",
    ("route", "target"),
    buckets=(0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.5, 2, 3, 5, 8, 13, 21, 34, 60),
)
EVENTS = Counter("isochrone_gateway_events", "Events that `counters` of the clients count, too.", ("event",))
STALE = Gauge("isochrone_gateway_table_stale_timestamp_seconds", "When the table in use expires.", ("route",))


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
        if known := ", ".join(map(repr, self.names)):
            message = f"the model {request.route[:80]!r} is not a route of this gateway: use {known}"
            return _refused(404, message, "model_not_found")
        return _refused(503, "no route table has arrived from the collector yet")

    async def send(self, outgoing: Outgoing) -> Incoming:
        """As `Engine.send`; without any response of a member, an error that says so."""
        try:
            return await super().send(outgoing)
        except ERRORS as error:
            status = 504 if isinstance(error, httpcore.TimeoutException) else 502
            return _refused(status, f"no member has answered; the last one: {type(error).__name__} {error}".strip())


@dataclass(eq=False)
class Forwarding:
    """Answers the requests for members, whose bodies have to arrive within `request_s` seconds. The state of a request
    has `left`, a future of the end of its connection.
    """

    engine: GatewayEngine
    request_s: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, unless the caller leaves before."""
        request = Request(scope, receive)
        try:
            async with asyncio.timeout(self.request_s):
                body = await _body(request)
        except TimeoutError as error:
            raise HTTPException(408, f"the body of the request is not complete after {self.request_s:g} s") from error
        left, answering = request.state.left, asyncio.current_task()
        assert answering is not None
        left.add_done_callback(cancel := lambda _: answering.cancel())
        try:
            await self._exchange(request, body, send)
        finally:
            left.remove_done_callback(cancel)

    async def _exchange(self, request: Request, body: bytes, send: Send) -> None:
        """Send a request to its members, and the response to the caller; one that breaks off stays incomplete."""
        began_s, incoming, member = time.perf_counter(), None, dict[str, str]()
        line: dict[str, Any] = {"status": None, "first_ms": None, "bytes": 0, "ending": "the caller left"}
        headers = [pair for pair in request.headers.raw if pair[0] not in _NOT_SENT]
        url = without_keys(str(request.url))
        outgoing = Outgoing(method=request.method, url=url, headers=headers, body=body, extensions=_EXTENSIONS)
        try:
            incoming = await self.engine.send(outgoing)
            first_s, member = time.perf_counter() - began_s, incoming.extensions.get(MEMBER, {})
            line |= {"status": incoming.status, "first_ms": round(1000 * first_s, 1)}
            FIRST_CONTENT.labels(*_labels(member)).observe(first_s)
            await send(_head(incoming, member))
            async for data in incoming.body():
                line["bytes"] += len(data)
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            line["ending"] = "complete"
        except ERRORS as error:
            line["ending"] = f"broken off: {type(error).__name__} {error}".strip()
        except Exception as error:  # noqa: BLE001  # uvicorn answers with status 500
            line["ending"] = f"failed: {error!r}"
        finally:
            if incoming is not None:
                await incoming.aclose()
            REQUESTS.labels(*_labels(member), str(line["status"] or "")).inc()
            _log.info("gateway.request", **member, **line, ms=round(1000 * (time.perf_counter() - began_s), 1))


def create_app(engine: GatewayEngine, access: Access, request_s: float) -> ASGIApp:
    """Create the application."""

    async def readyz(_request: Request) -> Response:
        names = engine.names
        return JSONResponse({"ready": bool(names), "routes": names}, status_code=200 if names else 503)

    async def models(_request: Request) -> Response:
        since = {"created": 0, "created_at": "1970-01-01T00:00:00Z"}
        common = {"object": "model", "type": "model", "owned_by": "isochrone", **since}
        found = [{"id": name, "display_name": name, **common} for name in engine.names]
        return JSONResponse({"object": "list", "data": found, "has_more": False})

    async def metrics(request: Request) -> Response:
        for table in engine.routes.tables():
            STALE.labels(table.route).set(table.stale_until_at / SECOND_US)
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(REGISTRY), headers={"content-type": media_type})

    routes = [
        Route("/healthz", lambda _: JSONResponse({"alive": True})),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        Route("/v1/models", models),
        Route("/{path:path}", Forwarding(engine, request_s)),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _own})
    return _guarded(app, access)


def _guarded(app: ASGIApp, access: Access) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        if scope["path"] in _OPEN or not (why := access.refusal(request.headers)):
            return await app(scope, receive, send)
        _log.info("gateway.refused", status=why[0], reason=why[1])
        return await (await _own(request, HTTPException(*why)))(scope, receive, send)

    return guard


async def _body(request: Request) -> bytes:
    body, parts, stated = bytearray(), request.stream(), int(request.headers.get("content-length", 0))
    while max(len(body), stated) <= MAX_BODY_BYTES:
        if (part := await anext(parts, None)) is None:
            return bytes(body)
        body += part
    raise HTTPException(413, f"the body of the request is larger than {MAX_BODY_BYTES >> 20} MiB")


def _labels(member: Mapping[str, str]) -> tuple[str, str]:
    return member.get("route", ""), member.get("target", "")


def _head(incoming: Incoming, member: Mapping[str, str]) -> dict[str, Any]:
    kept = [(name.lower(), value) for name, value in incoming.headers if name.lower() not in _OF_CONNECTION]
    if member:
        kept.append((b"x-isochrone-target", member["target"].encode("latin-1", "replace")))
    return {"type": "http.response.start", "status": incoming.status, "headers": kept}


async def _own(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse(refusal(HTTPStatus(error.status_code).name.lower(), error.detail), error.status_code)


def _refused(status: int, message: str, code: str = "") -> Incoming:
    return own_response(status, refusal(code or HTTPStatus(status).name.lower(), message))
