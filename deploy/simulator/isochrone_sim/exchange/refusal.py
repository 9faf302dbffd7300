"""What a provider says instead of an answer, before any dialect gives it a shape."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error response: HTTP status, code for programs, sentence for people; `retry_after_us` when it will pass."""

    status: int
    code: str
    message: str
    param: str | None = None
    retry_after_us: int | None = None


def invalid(message: str, *, param: str | None = None) -> Refusal:
    """400: the request makes no sense."""
    return Refusal(status=400, code="invalid_request", message=message, param=param)


def unsupported_temperature(model: str, temperature: float) -> Refusal:
    """400: the model has one temperature, and this is another."""
    message = f"Unsupported value: `temperature` does not support {temperature:g} with `{model}`, only the default (1)."
    return Refusal(status=400, code="unsupported_value", message=message, param="temperature")


def unsupported_effort(model: str, effort: str, known: Iterable[str]) -> Refusal:
    """400: the model does not know this word of reasoning effort."""
    message = f"Unsupported value: the effort `{effort}` is not supported with `{model}`; use {', '.join(known)}."
    return Refusal(status=400, code="unsupported_value", message=message, param="reasoning_effort")


def unsupported_budget(model: str) -> Refusal:
    """400: the model is told how hard to think, not how long."""
    message = f"A thinking budget is not supported with `{model}`: use adaptive thinking and `output_config.effort`."
    return Refusal(status=400, code="unsupported_value", message=message, param="thinking")


def wrong_key(key: str | None) -> Refusal:
    """401: no key, or not the right one; like the real providers it quotes the ends of the key it refuses."""
    if key is None:
        return Refusal(status=401, code="missing_api_key", message="You didn't provide an API key.")
    shown = f"{key[:5]}***{key[-4:]}" if len(key) > 12 else "***"  # noqa: PLR2004  # too short to hide its middle
    return Refusal(status=401, code="invalid_api_key", message=f"Incorrect API key provided: {shown}.")


def unknown_model(name: str, known: Iterable[str]) -> Refusal:
    """404: no such model; names the nearest one."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.3)
    nearest = f" The nearest name is `{close[0]}`." if close else ""
    message = f"The model `{name}` does not exist in this world.{nearest}"
    return Refusal(status=404, code="model_not_found", message=message, param="model")


def unknown_route(method: str, path: str) -> Refusal:
    """404: nothing is served there."""
    return Refusal(status=404, code="unknown_url", message=f"Unknown request URL: {method} {path}.")


def throttled(model: str, what: str, *, retry_after_us: int) -> Refusal:
    """429: the allowance of `what` (requests or tokens) is used up for now."""
    message = f"Rate limit reached for `{model}`: too many {what} per minute. Try again in {retry_after_us / 1e6:.3g}s."
    return Refusal(status=429, code="rate_limit_exceeded", message=message, retry_after_us=retry_after_us)
