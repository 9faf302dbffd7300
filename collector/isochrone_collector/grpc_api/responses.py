from typing import Any

import grpc
import structlog

from isochrone_collector import errors
from isochrone_collector.auth.limits import REFUSALS
from isochrone_common.channel import HINT_KEY, UNKNOWN_TARGETS_KEY
from isochrone_wire.codec import CodecError
from isochrone_wire.text import shortened

# The generated servicers declare sync and async contexts at once; ours is always the asyncio one.
Context = Any

_log = structlog.get_logger()

# The metadata key of gRPC for the time that a client should wait.
_PUSHBACK = "grpc-retry-pushback-ms"
# In the metadata a byte takes up to three, and clients of gRPC refuse metadata of more than 8 KiB.
_MAX_MESSAGE_BYTES = 2_048

STATUS_OF: dict[type[Exception], grpc.StatusCode] = {
    errors.BadRequest: grpc.StatusCode.INVALID_ARGUMENT,
    CodecError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.UnknownName: grpc.StatusCode.NOT_FOUND,
    errors.Conflict: grpc.StatusCode.FAILED_PRECONDITION,
    errors.UnknownTargets: grpc.StatusCode.NOT_FOUND,
    errors.SequenceConflict: grpc.StatusCode.ALREADY_EXISTS,
    errors.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    errors.Forbidden: grpc.StatusCode.PERMISSION_DENIED,
    errors.ResourceExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.MessageTooLarge: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.DatabaseUnavailable: grpc.StatusCode.UNAVAILABLE,
}


def status_of(error: Exception) -> grpc.StatusCode:
    """Return the status of an error, that of its nearest base class."""
    return next((STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF), grpc.StatusCode.INTERNAL)


async def refuse(context: Context, error: Exception) -> None:
    """Abort a call with the status of an error."""
    await context.abort(*_ending(error))


def decline(context: Context, error: errors.CollectorError) -> None:
    """Let a call end with the status of an error when its handler returns, which costs less than to abort it."""
    status, message, metadata = _ending(error)
    context.set_code(status)
    context.set_details(message)
    context.set_trailing_metadata(metadata)


def _ending(error: Exception) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str | bytes], ...]]:
    """Return the status, the message and the metadata with which a call ends, and log the refusal."""
    metadata: tuple[tuple[str, str | bytes], ...] = ()
    if isinstance(error, errors.CollectorError | CodecError):
        status, message = status_of(error), str(error)
        if isinstance(error, errors.ResourceExhausted):
            metadata = ((_PUSHBACK, str(error.delay_us // 1000)),)
        elif isinstance(error, errors.UnknownTargets):
            metadata = ((UNKNOWN_TARGETS_KEY, ",".join(map(str, error.targets))),)
        elif isinstance(error, errors.DatabaseUnavailable):
            metadata = ((HINT_KEY, error.hint.encode()),)
        message = shortened(message).encode(errors="replace")[:_MAX_MESSAGE_BYTES].decode(errors="ignore")
        REFUSALS.write(status=status.name, reason=message)
    else:
        # A bug in the collector: the caller gets a general message, and the log has the traceback.
        status, message = grpc.StatusCode.INTERNAL, "the collector failed to answer; see its log"
        _log.error("request.failed", exc_info=error)
    return status, message, metadata
