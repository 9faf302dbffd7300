"""Answers that are the gateway's own, in a form that the SDKs of OpenAI and Anthropic both read. Pure."""

import json
from collections.abc import Iterable
from typing import Any

# The types of errors that both name, by status.
_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
_TYPES |= {413: "request_too_large", 429: "rate_limit_error"}


def error(status: int, message: str, *, code: str | None = None) -> bytes:
    """The body of an error."""
    kind = _TYPES.get(status, "api_error")
    detail = {"message": message, "type": kind, "code": code or kind, "param": None}
    return json.dumps({"type": "error", "error": detail}).encode()


def models(names: Iterable[str]) -> dict[str, Any]:
    """The list of models, which are the names of routes."""
    since = {"created": 0, "created_at": "1970-01-01T00:00:00Z"}
    found = [
        {"id": name, "display_name": name, "object": "model", "type": "model", "owned_by": "isochrone", **since}
        for name in names
    ]
    return {"object": "list", "data": found, "has_more": False}
