"""Bearer authentication over HTTP for readers and operators; the health paths and the files of the page are open to
all, and metrics to this machine. A browser may read with the cookie of a session instead, or through a trusted proxy.

Without credentials, a page in a browser of this machine could send requests under a name of its own that it
makes resolve to this address (DNS rebinding). Its requests have that name in the Host header.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from isochrone_collector.auth.authenticator import Authenticator, Principal
from isochrone_collector.auth.limits import REFUSALS
from isochrone_collector.errors import BadRequest, CollectorError, Unauthenticated
from isochrone_collector.http_api import requests, responses
from isochrone_common.address import host_of
from isochrone_wire.operations import Role
from isochrone_wire.text import shortened
from isochrone_wire.workloads import MAX_NAME_CHARS

ROLES = (Role.READER, Role.OPERATOR)
OPEN = frozenset({"/healthz", "/readyz"})
# Open where HTTP is in plain text, which only this machine can reach, unless a proxy passes requests of others on.
_OPEN_HERE = frozenset({"/metrics"})
PROXIED_STREAM_S = 900.0
"""Maximum duration of a stream of a user of a proxy, in seconds."""

_READING = frozenset({"GET", "HEAD"})


@dataclass(eq=False)
class BearerAuth:
    """Middleware that authenticates requests to paths that are not public, and refuses malformed paths and hosts."""

    app: ASGIApp
    authenticator: Authenticator
    hosts: Collection[str] | None
    is_public: Callable[[str], bool]
    is_exposed: bool = False

    def __post_init__(self) -> None:
        has_open_metrics = self.hosts is not None and not self.is_exposed and self.authenticator.proxy is None
        self._open_here = _OPEN_HERE if has_open_metrics else frozenset()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        try:
            if scope["path"] not in OPEN:
                request = Request(scope)
                self._require_host(request)
                if not self.is_public(scope["path"]) and scope["path"] not in self._open_here:
                    request.state.principal = await authenticate(self.authenticator, request)
            requests.require_readable(scope["raw_path"])
        except CollectorError as error:
            REFUSALS.write(method=shortened(scope["method"], MAX_NAME_CHARS), reason=shortened(str(error)))
            await responses.response(error)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _require_host(self, request: Request) -> None:
        """Raises `BadRequest`. A request without a Host header is not from a browser."""
        given = request.headers.get("host")
        if self.hosts is None or given is None or request.url.scheme == "https":
            return
        if host_of(given) not in self.hosts:
            shown = shortened(given, MAX_NAME_CHARS)
            raise BadRequest(f"{shown!r} is not a host of this collector: use localhost, or allow it with --http-host")


async def authenticate(authenticator: Authenticator, request: Request) -> Principal:
    """Return the caller: of a read also a trusted proxy's user or that of the session's cookie."""
    if request.method in _READING and (user := proxy_user(authenticator, request)) is not None:
        # The user may have logged out at the proxy since, which knows only when a stream is opened again.
        now_s = asyncio.get_running_loop().time()
        began_s: float = request.scope["state"].setdefault("proxied_s", now_s)
        if now_s - began_s > PROXIED_STREAM_S:
            raise Unauthenticated("the user of the proxy is checked again; open another stream")
        return user
    values = request.headers.getlist("authorization")
    if len(values) > 1:
        raise Unauthenticated("more than one Authorization header")
    token = session_token(request)
    if token and not values and request.method in _READING:
        return await authenticator.authenticate_session(token, ROLES)
    return await authenticator.authenticate([("authorization", value) for value in values], ROLES)


def proxy_user(authenticator: Authenticator, request: Request) -> Principal | None:
    """Return the user in the header of a trusted proxy; `None` in requests of others. Raises `Unauthenticated`."""
    address = request.client.host if request.client else ""
    return authenticator.authenticate_proxy(request.headers.getlist, address)


def session_token(request: Request) -> str:
    """Return the token in the session's cookie, or nothing. Unlike `request.cookies` it takes linear time, also before
    the caller is known: it unquotes nothing, and the collector's own value has no quotes.
    """
    own = f"{cookie_name(request)}="
    cookies = ";".join(request.headers.getlist("cookie")).split(";")
    return next((cookie.strip().removeprefix(own) for cookie in cookies if cookie.strip().startswith(own)), "")


def cookie_name(request: Request) -> str:
    """Return the name of the session's cookie. Browsers accept `__Host-` only with TLS, and then from no other host."""
    return "__Host-isochrone-session" if request.url.scheme == "https" else "isochrone-session"
