"""Interceptor that authenticates calls, by one table of roles. Methods that the table lacks are refused."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import structlog

from isochrone_collector.auth.authenticator import Authenticator
from isochrone_collector.errors import CollectorError, Forbidden
from isochrone_collector.grpc_api.responses import STATUS_OF, Context
from isochrone_wire.operations import Role

# The stubs declare a generic handler class; at run time it is not generic.
Handler = Any

_OURS = "isochrone."

# Service or method → the roles that may call it; `None` for every caller.
ROLES_OF: dict[str, tuple[Role, ...] | None] = {
    "/isochrone.v1.Fleet/Join": None,
    "/isochrone.v1.Fleet": (Role.VANTAGE,),
    "/isochrone.v1.Observatory": (Role.READER, Role.OPERATOR),
    "/isochrone.v1.Operations": (Role.OPERATOR,),
    "/isochrone.v1.Routes": (Role.READER, Role.OPERATOR),
}

_log = structlog.get_logger()


class AuthInterceptor(grpc.aio.ServerInterceptor):
    """Authenticates every call of an Isochrone service; health and reflection need no credential."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the handler of the call, or one that refuses it."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None:
            # gRPC itself answers UNIMPLEMENTED, which is right for a newer client.
            return handler
        try:
            roles = roles_of(method)
            if roles is not None:
                await self._authenticator.authenticate(handler_call_details.invocation_metadata, roles)
        except CollectorError as error:
            status = STATUS_OF.get(type(error), grpc.StatusCode.INTERNAL)
            _log.warning("request.refused", method=method, status=status.name, reason=str(error))
            return _refusing(status, str(error))
        return handler


def roles_of(method: str) -> tuple[Role, ...] | None:
    """Return the roles that may call `/package.Service/Method`; `None` for every caller.

    Raises `Forbidden` for a method that the table lacks.
    """
    if not method.startswith(f"/{_OURS}"):
        return None
    for key in (method, method.rpartition("/")[0]):
        if key in ROLES_OF:
            return ROLES_OF[key]
    raise Forbidden(f"{method} has no roles that may call it")


def _refusing(status: grpc.StatusCode, reason: str) -> Handler:
    async def refuse(_request: bytes, context: Context) -> bytes:
        await context.abort(status, reason)
        raise AssertionError("abort raises")

    return grpc.unary_unary_rpc_method_handler(refuse)
