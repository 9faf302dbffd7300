"""How a service answers: with what the work gives, or with the status that its error stands for."""

from collections.abc import Awaitable
from typing import Any, TypeVar

import grpc
import structlog

from isochrone_collector.errors import BadRequest, CollectorError, Conflict, DatabaseUnavailable, UnknownName
from isochrone_wire.codec import CodecError

Answer = TypeVar("Answer")
# The generated servicers speak of sync and async contexts at once; ours is always the asyncio one.
Context = Any

_log = structlog.get_logger()

_STATUS_OF: dict[type[Exception], grpc.StatusCode] = {
    BadRequest: grpc.StatusCode.INVALID_ARGUMENT,
    CodecError: grpc.StatusCode.INVALID_ARGUMENT,
    UnknownName: grpc.StatusCode.NOT_FOUND,
    Conflict: grpc.StatusCode.FAILED_PRECONDITION,
    DatabaseUnavailable: grpc.StatusCode.UNAVAILABLE,
}


async def answer(context: Context, work: Awaitable[Answer]) -> Answer:
    """The answer of `work`, or its error as a status."""
    try:
        return await work
    except (CollectorError, CodecError) as error:
        status, message = _STATUS_OF.get(type(error), grpc.StatusCode.INTERNAL), str(error)
        _log.warning("request.refused", status=status.name, reason=message)
    except Exception:  # noqa: BLE001  # a bug of ours: the asker learns that, and the log learns everything
        status, message = grpc.StatusCode.INTERNAL, "the collector failed to answer; its log says why"
        _log.exception("request.failed")
    await context.abort(status, message)
    raise AssertionError("abort raises")
