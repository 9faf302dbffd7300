"""Errors as `application/problem+json` (RFC 9457), with their status codes."""

import json
from collections.abc import Mapping
from http import HTTPStatus

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from isochrone_collector.errors import (
    BadRequest,
    CollectorError,
    Conflict,
    DatabaseUnavailable,
    DeadlineExceeded,
    Forbidden,
    MessageTooLarge,
    ResourceExhausted,
    Unauthenticated,
    UnknownName,
)
from isochrone_collector.http_api.bodies import JsonResponse
from isochrone_wire.model import SECOND_US
from isochrone_wire.text import shortened

MEDIA_TYPE = "application/problem+json"
_TYPE = "urn:isochrone:problem:"
_RETRY_AFTER_US = 2 * SECOND_US
# The maximum number of names in a response.
_MAX_NAMES = 200

_log = structlog.get_logger()

# Error → status, and the last part of the problem type.
STATUS_OF: dict[type[Exception], tuple[HTTPStatus, str]] = {
    BadRequest: (HTTPStatus.BAD_REQUEST, "bad-request"),
    UnknownName: (HTTPStatus.NOT_FOUND, "unknown-name"),
    Conflict: (HTTPStatus.CONFLICT, "conflict"),
    Unauthenticated: (HTTPStatus.UNAUTHORIZED, "unauthenticated"),
    Forbidden: (HTTPStatus.FORBIDDEN, "forbidden"),
    ResourceExhausted: (HTTPStatus.SERVICE_UNAVAILABLE, "resource-exhausted"),
    MessageTooLarge: (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large"),
    DeadlineExceeded: (HTTPStatus.GATEWAY_TIMEOUT, "deadline-exceeded"),
    DatabaseUnavailable: (HTTPStatus.SERVICE_UNAVAILABLE, "database-unavailable"),
}
_BROKEN = (HTTPStatus.INTERNAL_SERVER_ERROR, "internal")


class NotBuilt(CollectorError):  # noqa: N818  # a state that passes
    """The table is not built yet. Act: the client, by retrying in a moment."""


def response(error: Exception) -> Response:
    """Return the response to an error."""
    if isinstance(error, HTTPException):
        return _problem(HTTPStatus(error.status_code), "", error.detail, headers=error.headers or {})
    status, kind = _status(error)
    if status is HTTPStatus.INTERNAL_SERVER_ERROR:
        # A bug: the client gets a generic message, the log the details.
        _log.error("request.failed", exc_info=error)
        return _problem(status, kind, "internal error; see the collector's log")
    return _problem(status, kind, shortened(str(error)), headers=_headers(error, status), members=_members(error))


async def handle(_request: Request, error: Exception) -> Response:
    """Exception handler for Starlette."""
    return response(error)


def _status(error: Exception) -> tuple[HTTPStatus, str]:
    if isinstance(error, NotBuilt):
        return HTTPStatus.SERVICE_UNAVAILABLE, "not-built"
    return next((STATUS_OF[cls] for cls in type(error).__mro__ if cls in STATUS_OF), _BROKEN)


def _headers(error: Exception, status: HTTPStatus) -> dict[str, str]:
    if status is HTTPStatus.UNAUTHORIZED:
        return {"WWW-Authenticate": 'Bearer realm="isochrone"'}
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        delay_us = error.delay_us if isinstance(error, ResourceExhausted) else _RETRY_AFTER_US
        return {"Retry-After": str(max(1, -(-delay_us // SECOND_US)))}
    return {}


def _members(error: Exception) -> dict[str, object]:
    hint: dict[str, object] = {"hint": error.hint} if isinstance(error, CollectorError) and error.hint else {}
    if not isinstance(error, UnknownName) or not error.known:
        return hint
    return {**hint, "known": error.known[:_MAX_NAMES], "nearest": error.nearest}


def _problem(
    status: HTTPStatus,
    kind: str,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    members: Mapping[str, object] | None = None,
) -> Response:
    problem: dict[str, object] = {
        "type": _TYPE + kind if kind else "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": detail,
        **(members or {}),
    }
    content = json.dumps(problem, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    return JsonResponse(
        content, status_code=status, media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store", **(headers or {})}
    )
