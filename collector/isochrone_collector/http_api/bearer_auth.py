"""Bearer authentication over HTTP for readers and operators; the health paths are open to all."""

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from isochrone_collector.auth.authenticator import Authenticator, Principal
from isochrone_collector.auth.refusal_log import REFUSALS
from isochrone_collector.errors import CollectorError, NotAdmitted
from isochrone_collector.http_api import problems, query_parameters
from isochrone_wire.operations import Role
from isochrone_wire.text import shortened

ROLES = (Role.READER, Role.OPERATOR)
OPEN = frozenset({"/healthz", "/readyz"})


class BearerAuth:
    """Middleware that authenticates every request as `request.state.principal`, and refuses malformed paths."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        self._app = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        try:
            if scope["path"] not in OPEN:
                request = Request(scope)
                request.state.principal = await authenticate(self._authenticator, request)
            query_parameters.require_readable(scope["raw_path"])
        except CollectorError as error:
            REFUSALS.write(method=scope["method"], reason=shortened(str(error)))
            await problems.response(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)


async def authenticate(authenticator: Authenticator, request: Request) -> Principal:
    """Authenticate a request. Raises as `Authenticator.authenticate`."""
    values = request.headers.getlist("authorization")
    if len(values) > 1:
        raise NotAdmitted("more than one Authorization header")
    return await authenticator.authenticate([("authorization", value) for value in values], ROLES)
