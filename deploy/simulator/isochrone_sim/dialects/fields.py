"""Fields of requests that several dialects read alike. All raise `RequestRefused` for what makes no sense."""

import json
from collections.abc import Mapping
from typing import Any

from isochrone_sim.errors import RequestRefused
from isochrone_sim.exchange.refusal import invalid


def parse_body(body: bytes) -> dict[str, Any]:
    """The JSON object of a request."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(invalid("We could not parse the JSON body of your request.")) from error
    if not isinstance(parsed, dict):
        raise RequestRefused(invalid("The body of your request is not a JSON object."))
    return parsed


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """The bearer token, if there is one."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def model_name(value: object) -> str:
    """The model asked for."""
    if isinstance(value, str) and value:
        # A name is quoted in answers, so it has to be text that can be written.
        return value.encode("utf-8", "replace").decode()
    raise RequestRefused(invalid("you must provide a model parameter", param="model"))


def token_limit(fields: Mapping[str, Any], *names: str) -> int | None:
    """The first of these fields that is there: how many tokens the answer may have."""
    for name in names:
        value = fields.get(name)
        if value is None:
            continue
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
        raise RequestRefused(invalid(f"{name} must be a whole number of at least 1", param=name))
    return None


def temperature(fields: Mapping[str, Any]) -> float | None:
    """The temperature asked for."""
    value = fields.get("temperature")
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 2):  # noqa: PLR2004  # as every API has it
        return value
    raise RequestRefused(invalid("temperature must be a number from 0 to 2", param="temperature"))


def table(value: object) -> dict[str, Any]:
    """The object, or an empty one where there is none."""
    return value if isinstance(value, dict) else {}


def texts_of(messages: object, *, param: str = "messages", content: str = "content") -> list[str]:
    """The text of every message, which stands in its field `content`."""
    if not isinstance(messages, list) or not messages:
        raise RequestRefused(invalid(f"{param} must be a list with at least one message", param=param))
    return [_text(table(message).get(content)) for message in messages]


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
