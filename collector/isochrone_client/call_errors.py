"""Errors of gRPC calls as errors of the client, with the hint that helps."""

from typing import cast

import grpc

from isochrone_client.errors import (
    AccessError,
    ClientError,
    CollectorError,
    NoTableError,
    RefusedError,
    SlowError,
    UnreachableError,
)
from isochrone_common.address import Address
from isochrone_common.local_socket import plain_text_refusal

_ERROR_OF: dict[grpc.StatusCode, tuple[type[ClientError], str]] = {
    grpc.StatusCode.INVALID_ARGUMENT: (RefusedError, "see --help for the valid values"),
    grpc.StatusCode.NOT_FOUND: (
        RefusedError,
        "`isochrone targets` lists the targets, `isochrone coverage` the regions, `isochrone routes` the routes",
    ),
    grpc.StatusCode.UNAVAILABLE: (
        UnreachableError,
        "is it running? start one with `isochrone-collector serve`, or give its address with --collector HOST:PORT",
    ),
    grpc.StatusCode.UNAUTHENTICATED: (AccessError, "ask an operator for access: isochrone-collector access add"),
    grpc.StatusCode.PERMISSION_DENIED: (AccessError, "ask an operator for the role: isochrone-collector access add"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (SlowError, "use a shorter --window or a longer --timeout"),
    # Only this client cancels calls, and only after a timeout.
    grpc.StatusCode.CANCELLED: (SlowError, "it may be stopped or unreachable; or use a longer --timeout"),
    grpc.StatusCode.UNIMPLEMENTED: (
        CollectorError,
        "is it an Isochrone collector, and at least as new as this command?",
    ),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (CollectorError, "use a shorter --window or fewer --target"),
}
# Hints for other unknown names, by the start of the collector's message.
_HINT_OF_UNKNOWN = {
    "unknown region ": "`isochrone regions` lists them; a region becomes known when an agent starts there: "
    "isochrone-agent run --vantage NAME --region REGION",
    "unknown client region ": "`isochrone routes` shows the tables of all regions",
    "unknown route ": "`isochrone routes` shows the tables of all routes",
    "unknown use ": "`isochrone slo` shows all uses",
    "there is no route table yet": "add `routes` to the plan and apply it: isochrone-collector apply plan.yaml; "
    "`isochrone coverage` shows the samples",
    "there is no generation ": "`isochrone routes history` lists the generations; `isochrone explain` without "
    "--generation takes the newest",
}
# The starts of the messages of a collector without the table that was asked for.
_NO_TABLE = ("there is no route table yet", "there is no table of ")
# The start of the message that gRPC makes if there was no connection; the collector or a proxy wrote any other.
_CONNECT_FAILED = "failed to connect"
# Part of gRPC's message if the certificate was not trusted.
_CERTIFICATE_REJECTED = "CERTIFICATE_VERIFY_FAILED"
# gRPC's message if the client's own deadline passed; other messages report the collector's limit.
_CLIENT_DEADLINE = "Deadline Exceeded"
_OTHER_ERROR = (CollectorError, "see the collector's log")


def client_error(error: grpc.RpcError, address: Address, *, is_plain: bool = False) -> ClientError:
    """Return the error of a call to the collector at `address`, in plain text or with TLS."""
    call = cast(grpc.Call, error)  # gRPC raises the call itself
    if call.code() is grpc.StatusCode.UNAVAILABLE and is_plain:
        refusal = plain_text_refusal(address)
        if refusal is not None:
            sentence, hint = refusal
            return AccessError(sentence, hint=hint)
    if _CERTIFICATE_REJECTED in (call.details() or ""):
        sentence = f"the collector at {address} is not the one that was joined: its certificate differs"
        return AccessError(sentence, hint="if its operator has replaced the certificate, join again")
    kind, hint = _ERROR_OF.get(call.code(), _OTHER_ERROR)
    details = call.details() or call.code().name.lower()
    if call.code() is grpc.StatusCode.NOT_FOUND:
        hint = next((better for start, better in _HINT_OF_UNKNOWN.items() if details.startswith(start)), hint)
        kind = NoTableError if details.startswith(_NO_TABLE) else kind
    return kind(_message(kind, address, details), hint=hint)


def _message(kind: type[ClientError], address: Address, details: str) -> str:
    if issubclass(kind, RefusedError | AccessError):
        return details
    if kind is UnreachableError and details.startswith(_CONNECT_FAILED):
        return f"no collector answers at {address}: {details.rpartition(': ')[2]}"
    if kind is SlowError and details == _CLIENT_DEADLINE:
        return f"the collector at {address} did not answer in time"
    return f"the collector at {address} failed: {details}"
