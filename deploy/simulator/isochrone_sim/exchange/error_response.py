"""Error responses of a provider, independent of the dialect."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorResponse:
    """An error response: HTTP status, code for programs, message for people; `retry_after_us` if it is temporary."""

    status: int
    code: str
    message: str
    param: str | None = None
    retry_after_us: int | None = None


def invalid(message: str, *, param: str | None = None) -> ErrorResponse:
    """400: the request is invalid."""
    return ErrorResponse(status=400, code="invalid_request", message=message, param=param)


def unsupported_temperature(model: str, temperature: float) -> ErrorResponse:
    """400: the model supports its default temperature only."""
    message = f"Unsupported value: `temperature` does not support {temperature:g} with `{model}`, only the default (1)."
    return ErrorResponse(status=400, code="unsupported_value", message=message, param="temperature")


def unsupported_effort(model: str, effort: str, known: Iterable[str]) -> ErrorResponse:
    """400: the model does not support this reasoning effort."""
    message = f"Unsupported value: the effort `{effort}` is not supported with `{model}`; use {', '.join(known)}."
    return ErrorResponse(status=400, code="unsupported_value", message=message, param="reasoning_effort")


def unsupported_budget(model: str) -> ErrorResponse:
    """400: the model accepts an effort, but no thinking budget."""
    message = f"A thinking budget is not supported with `{model}`: use adaptive thinking and `output_config.effort`."
    return ErrorResponse(status=400, code="unsupported_value", message=message, param="thinking")


def wrong_key(key: str | None) -> ErrorResponse:
    """401: the key is missing or wrong; like real providers, the message quotes the ends of the key."""
    if key is None:
        return ErrorResponse(status=401, code="missing_api_key", message="You didn't provide an API key.")
    shown = f"{key[:5]}***{key[-4:]}" if len(key) > 12 else "***"  # noqa: PLR2004  # shorter keys are hidden completely
    return ErrorResponse(status=401, code="invalid_api_key", message=f"Incorrect API key provided: {shown}.")


def unknown_model(name: str, known: Iterable[str]) -> ErrorResponse:
    """404: the model does not exist; the message names the nearest one."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.3)
    nearest = f" The nearest name is `{close[0]}`." if close else ""
    message = f"The model `{name}` does not exist in this world.{nearest}"
    return ErrorResponse(status=404, code="model_not_found", message=message, param="model")


def unknown_route(method: str, path: str) -> ErrorResponse:
    """404: nothing is served at this path."""
    return ErrorResponse(status=404, code="unknown_url", message=f"Unknown request URL: {method} {path}.")


def throttled(model: str, what: str, *, retry_after_us: int) -> ErrorResponse:
    """429: the limit for `what` (requests or tokens) is exhausted."""
    message = f"Rate limit reached for `{model}`: too many {what} per minute. Try again in {retry_after_us / 1e6:.3g}s."
    return ErrorResponse(status=429, code="rate_limit_exceeded", message=message, retry_after_us=retry_after_us)
