"""Request fields that several dialects share. All functions raise `RequestRefused` for invalid values."""

import json
from collections.abc import Mapping
from typing import Any

from isochrone_sim.errors import RequestRefused
from isochrone_sim.exchange.error_response import invalid


def parse_body(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a request."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(invalid("We could not parse the JSON body of your request.")) from error
    if not isinstance(parsed, dict):
        raise RequestRefused(invalid("The body of your request is not a JSON object."))
    return parsed


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """Return the bearer token, if any."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def model_name(value: object) -> str:
    """Return the requested model."""
    if isinstance(value, str) and value:
        # The name is quoted in responses, so it must be encodable.
        return value.encode("utf-8", "replace").decode()
    raise RequestRefused(invalid("you must provide a model parameter", param="model"))


def token_limit(fields: Mapping[str, Any], *names: str) -> int | None:
    """Return the first of these fields that is present: the limit of output tokens."""
    for name in names:
        value = fields.get(name)
        if value is None:
            continue
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
        raise RequestRefused(invalid(f"{name} must be a whole number of at least 1", param=name))
    return None


def temperature(fields: Mapping[str, Any]) -> float | None:
    """Return the requested temperature."""
    value = fields.get("temperature")
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 2):  # noqa: PLR2004  # the range of every API
        return value
    raise RequestRefused(invalid("temperature must be a number from 0 to 2", param="temperature"))


def object_or_empty(value: object) -> dict[str, Any]:
    """Return the object, or an empty one."""
    return value if isinstance(value, dict) else {}


def message_texts(messages: object, *, param: str = "messages", content: str = "content") -> list[str]:
    """Return the text of every message, from its field `content`."""
    if not isinstance(messages, list) or not messages:
        raise RequestRefused(invalid(f"{param} must be a list with at least one message", param=param))
    return [_text(object_or_empty(message).get(content)) for message in messages]


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
