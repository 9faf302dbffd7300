"""Requests and their refusals: parsing with h11, parameters, error responses and rate limits, independent of a dialect.

h11 is used for parsing only: responses are written as plain bytes. A model has two token buckets, for requests and for
tokens, that refill evenly within a minute.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from urllib.parse import parse_qsl, urlsplit

import h11

MAX_BODY_BYTES = 8 << 20
_NONCE = re.compile(r"\[([0-9A-Za-z]{6,32})\]")
MINUTE_US = 60_000_000


class Malformed(Exception):  # noqa: N818  # named after the event
    """Bytes that are not an acceptable HTTP/1.1 request; `status` is the status of the response."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One complete request; header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def keeps_alive(self) -> bool:
        """True if the client allows the connection to stay open after the response."""
        return self.headers.get("connection", "").lower() != "close"


class RequestReader:
    """Incremental parser: receives bytes and returns complete requests in order."""

    def __init__(self) -> None:
        self._parser: h11.Connection
        self._head: h11.Request | None
        self._body: list[bytes]
        self._size: int
        self._renew()

    def receive(self, data: bytes) -> None:
        """Add received bytes."""
        self._parser.receive_data(data)

    @property
    def wants_continue(self) -> bool:
        """True if the client waits for `100 Continue` before it sends the body."""
        return self._parser.they_are_waiting_for_100_continue

    def next_request(self) -> Request | None:
        """Return the next complete request; `None` until more bytes arrive. Raises `Malformed`."""
        try:
            while (event := self._parser.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.EndOfMessage):
                    return self._complete()
                self._take(event)
        except h11.RemoteProtocolError as error:
            raise Malformed(str(error), status=error.error_status_hint) from error
        return None

    def _take(self, event: object) -> None:
        if isinstance(event, h11.Request):
            self._head = event
        elif isinstance(event, h11.Data):
            self._body.append(bytes(event.data))
            self._size += len(event.data)
        elif isinstance(event, h11.ConnectionClosed):
            raise Malformed("the client closed the connection")
        if self._size > MAX_BODY_BYTES:
            raise Malformed(f"the body is larger than {MAX_BODY_BYTES} bytes", status=413)

    def _complete(self) -> Request:
        assert self._head is not None
        head, body = self._head, b"".join(self._body)
        target = urlsplit(head.target.decode("latin-1"))
        request = Request(
            method=head.method.decode("latin-1"),
            path=target.path,
            query=dict(parse_qsl(target.query)),
            headers={name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers},
            body=body,
        )
        # h11 requires the response before it parses another request; a new parser does not.
        rest = self._parser.trailing_data[0]
        self._renew()
        if rest:
            self.receive(rest)
        return request

    def _renew(self) -> None:
        self._parser = h11.Connection(h11.SERVER)
        self._head = None
        self._body = []
        self._size = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestParameters:
    """The parameters of a request. `reasoning_effort` is `None` if no reasoning was requested; `hidden_reasoning` means
    that the reasoning must not be sent, `has_thinking_budget` that a number of tokens was given instead of an effort.
    `include_usage` matters in dialects with a separate usage event. `gzip` allows a compressed response.
    """

    model: str
    stream: bool = False
    max_tokens: int | None = None
    temperature: float | None = None
    include_usage: bool = False
    reasoning_effort: str | None = None
    hidden_reasoning: bool = False
    has_thinking_budget: bool = False
    prompt_tokens: int = 0
    nonce: str | None = None
    gzip: bool = False


def count_prompt_tokens(texts: list[str]) -> int:
    """Return a rough, deterministic count: one token per four bytes of UTF-8, four per message, three for the reply."""
    return sum(-(-len(text.encode("utf-8", "replace")) // 4) + 4 for text in texts) + 3


def find_nonce(texts: list[str]) -> str | None:
    """Return the `[nonce]` at the start of the last message, if any."""
    found = _NONCE.match(texts[-1]) if texts else None
    return found[1] if found else None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketStatus:
    """The state of a bucket after a request: limit per minute, remaining amount, and time until it is full again.

    `wait_us` is the time that a refused request has to wait, 0 if it was accepted.
    """

    limit: int
    remaining: int
    reset_us: int
    wait_us: int = 0


class Bucket:
    """A bucket of `limit` per minute, full at first. Instants are microseconds and passed in."""

    __slots__ = ("_at", "_left", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = float(limit)
        self._at = 0

    def take(self, amount: int, *, at: int) -> BucketStatus:
        """Take `amount` if available; otherwise take nothing and return the time to wait."""
        self._refill(at)
        wait_us = 0
        if amount <= self._left:
            self._left -= amount
        else:
            wait_us = self._time_us(min(amount, self._limit) - self._left)
        return BucketStatus(
            limit=self._limit,
            remaining=int(self._left),
            reset_us=self._time_us(self._limit - self._left),
            wait_us=wait_us,
        )

    def _refill(self, at: int) -> None:
        # If the wall clock steps back, nothing is refilled and nothing is lost.
        gained = max(0, at - self._at) * self._limit / MINUTE_US
        self._left = min(float(self._limit), self._left + gained)
        self._at = at

    def _time_us(self, amount: float) -> int:
        return max(1, round(amount / self._limit * MINUTE_US)) if amount > 0 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitStatus:
    """The state of both buckets after one request."""

    requests: BucketStatus
    tokens: BucketStatus

    def spent(self, wait_us: int) -> "RateLimitStatus":
        """Return the same status with no request left for `wait_us` microseconds."""
        return replace(self, requests=replace(self.requests, remaining=0, reset_us=wait_us))


class RateLimits:
    """The buckets of all models, created on first use."""

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[Bucket, Bucket]] = {}

    def take(self, name: str, *, tokens: int, at: int, limits: tuple[int, int]) -> RateLimitStatus:
        """Count one request of `tokens` tokens to the model `name`; `limits` are requests and tokens per minute."""
        requests_bucket, tokens_bucket = self._buckets.setdefault(name, (Bucket(limits[0]), Bucket(limits[1])))
        requests = requests_bucket.take(1, at=at)
        return RateLimitStatus(requests=requests, tokens=tokens_bucket.take(0 if requests.wait_us else tokens, at=at))


def format_duration(us: int) -> str:
    """Format a duration as in OpenAI's headers: `12ms`, `1.5s`, `1m30s`."""
    if us < 1_000_000:  # noqa: PLR2004  # a second
        return f"{-(-us // 1000)}ms"
    minutes, rest = divmod(us, MINUTE_US)
    seconds = f"{rest / 1e6:.3f}".rstrip("0").rstrip(".")
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
