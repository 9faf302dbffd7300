"""How a service answers: with what the work gives, or with the status that its error stands for."""

from collections.abc import Awaitable
from typing import Any, TypeVar

import grpc
import structlog

from isochrone_collector.errors import (
    BadRequest,
    CollectorError,
    Conflict,
    DatabaseUnavailable,
    Forbidden,
    NotAdmitted,
    TooMany,
    UnknownName,
)
from isochrone_wire.codec import CodecError

Answer = TypeVar("Answer")
# The generated servicers speak of sync and async contexts at once; ours is always the asyncio one.
Context = Any

_log = structlog.get_logger()

# gRPC's own word for how long a client should wait.
_PUSHBACK = "grpc-retry-pushback-ms"

STATUS_OF: dict[type[Exception], grpc.StatusCode] = {
    BadRequest: grpc.StatusCode.INVALID_ARGUMENT,
    CodecError: grpc.StatusCode.INVALID_ARGUMENT,
    UnknownName: grpc.StatusCode.NOT_FOUND,
    Conflict: grpc.StatusCode.FAILED_PRECONDITION,
    NotAdmitted: grpc.StatusCode.UNAUTHENTICATED,
    Forbidden: grpc.StatusCode.PERMISSION_DENIED,
    TooMany: grpc.StatusCode.RESOURCE_EXHAUSTED,
    DatabaseUnavailable: grpc.StatusCode.UNAVAILABLE,
}


async def answer(context: Context, work: Awaitable[Answer]) -> Answer:
    """The answer of `work`, or its error as a status."""
    pushback: tuple[tuple[str, str], ...] = ()
    try:
        return await work
    except (CollectorError, CodecError) as error:
        status, message = STATUS_OF.get(type(error), grpc.StatusCode.INTERNAL), str(error)
        if isinstance(error, TooMany):
            pushback = ((_PUSHBACK, str(error.delay_us // 1000)),)
        _log.warning("request.refused", status=status.name, reason=message)
    except Exception:  # noqa: BLE001  # a bug of ours: the asker learns that, and the log learns everything
        status, message = grpc.StatusCode.INTERNAL, "the collector failed to answer; its log says why"
        _log.exception("request.failed")
    await context.abort(status, message, pushback)
    raise AssertionError("abort raises")
