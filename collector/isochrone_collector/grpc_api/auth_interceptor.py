"""Interceptor that authenticates calls, by one table of roles. Methods that the table lacks are refused."""

from collections.abc import Awaitable, Callable
from functools import partial

import grpc
import grpc.aio

from isochrone_collector.auth.authenticator import Authenticator, Metadata
from isochrone_collector.auth.limits import REFUSALS
from isochrone_collector.errors import CollectorError, Forbidden
from isochrone_collector.grpc_api import discovery
from isochrone_collector.grpc_api.guarded_calls import Caller, CallGuard, Handler
from isochrone_collector.grpc_api.responses import STATUS_OF
from isochrone_wire.operations import Role
from isochrone_wire.text import shortened

_OURS = ("/isochrone.", "/envoy.")

# Service or method → the roles that may call it; `None` for every caller.
ROLES_OF: dict[str, tuple[Role, ...] | None] = {
    "/isochrone.v1.Fleet/Join": None,
    "/isochrone.v1.Fleet/Renew": tuple(Role),
    "/isochrone.v1.Fleet": (Role.VANTAGE,),
    "/isochrone.v1.Observatory": (Role.READER, Role.OPERATOR),
    "/isochrone.v1.Operations": (Role.OPERATOR,),
    "/isochrone.v1.Routes": (Role.READER, Role.OPERATOR),
    **dict.fromkeys(discovery.METHODS, (Role.READER, Role.OPERATOR)),
}


class AuthInterceptor(grpc.aio.ServerInterceptor):
    """Authenticates every call of an Isochrone service before its request is read, and guards its handler; health and
    reflection need no credential. `on_refused` is called with the method and the status of every call that is refused.
    """

    def __init__(self, authenticator: Authenticator, *, on_refused: Callable[[str, str], None]) -> None:
        self._authenticator = authenticator
        self._guard = CallGuard()
        self._on_refused = on_refused

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the guarded handler of the call, or one that refuses it."""
        handler = await continuation(handler_call_details)
        if handler is None:
            # gRPC itself answers UNIMPLEMENTED, which is right for a newer client.
            return handler
        method = handler_call_details.method
        try:
            caller = await self._caller(method, handler_call_details.invocation_metadata)
        except CollectorError as error:
            status = STATUS_OF.get(type(error), grpc.StatusCode.INTERNAL)
            self._on_refused(method, status.name)
            REFUSALS.write(method=method, status=status.name, reason=shortened(str(error)))
            return self._guard.refusing(error)
        return self._guard.guarded(handler, caller)

    async def _caller(self, method: str, metadata: Metadata) -> Caller:
        roles = roles_of(method)
        if roles is None:
            return Caller(method=method)
        authenticate = partial(self._authenticator.authenticate, metadata, roles)
        return Caller(method=method, principal=await authenticate(), recheck=authenticate)


def roles_of(method: str) -> tuple[Role, ...] | None:
    """Return the roles that may call `/package.Service/Method`; `None` for every caller.

    Raises `Forbidden` for a method that the table lacks.
    """
    if not method.startswith(_OURS):
        return None
    for key in (method, method.rpartition("/")[0]):
        if key in ROLES_OF:
            return ROLES_OF[key]
    raise Forbidden(f"{method} has no roles that may call it")
