"""Requests and their refusals: parsing with h11, parameters, error responses and rate limits, independent of a dialect.

h11 is used for parsing only: responses are written as plain bytes. A model has two token buckets, for requests and for
tokens, that refill evenly within a minute.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
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
        self._head: h11.Request | None
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
        self._body: list[bytes] = []
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


@dataclass(slots=True)
class Bucket:
    """A bucket of `limit` per minute, full at first. Instants are microseconds and passed in."""

    limit: int
    _at: int = 0
    _left: float = float("inf")

    def take(self, amount: int, *, at: int) -> BucketStatus:
        """Take `amount` if available; otherwise take nothing and return the time to wait."""
        # If the wall clock steps back, nothing is refilled and nothing is lost.
        self._left = min(float(self.limit), self._left + max(0, at - self._at) * self.limit / MINUTE_US)
        self._at, wait_us = at, 0
        if amount <= self._left:
            self._left -= amount
        else:
            wait_us = self._time_us(min(amount, self.limit) - self._left)
        reset_us = self._time_us(self.limit - self._left)
        return BucketStatus(limit=self.limit, remaining=int(self._left), reset_us=reset_us, wait_us=wait_us)

    def _time_us(self, amount: float) -> int:
        return max(1, round(amount / self.limit * MINUTE_US)) if amount > 0 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitStatus:
    """The state of both buckets after one request."""

    requests: BucketStatus
    tokens: BucketStatus


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
