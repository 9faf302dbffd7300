"""Response headers: the provider's own processing time, edge, request id and rate limits."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime

from isochrone_common.dialects.signals import Opened
from isochrone_wire.model import DAY_US, SECOND_US, RateLimit

_MAX_CHARS = 120
_UNIT_US = {"ms": 1_000, "us": 1, "µs": 1, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|s|m|h|d)")
_NUMBER = re.compile(r"\d+(\.\d+)?")
_SERVER_TIMING = re.compile(r"dur=(\d+(?:\.\d+)?)")
_REQUEST_IDS = ("x-request-id", "request-id", "x-amzn-requestid", "apim-request-id", "x-debug-trace-id", "cf-ray")
# A number without a unit from here on is a time since the epoch, not a wait: (lowest number, microseconds per unit) for
# nanoseconds, microseconds, milliseconds and seconds.
_EPOCHS = ((1e18, 1e-3), (1e15, 1.0), (1e12, 1e3), (1e9, 1e6))
# Longer waits and processing times are implausible and ignored.
MAX_WAIT_US = 30 * DAY_US
MAX_PROVIDER_US = DAY_US
# The headers of each field, in order of preference.
_COUNTS = {
    "limit_requests": (
        "x-ratelimit-limit-requests",
        "anthropic-ratelimit-requests-limit",
        "x-ratelimit-limit",
        "x-trial-endpoint-call-limit",
    ),
    "remaining_requests": (
        "x-ratelimit-remaining-requests",
        "anthropic-ratelimit-requests-remaining",
        "x-ratelimit-remaining",
        "x-trial-endpoint-call-remaining",
    ),
    "limit_tokens": ("x-ratelimit-limit-tokens", "anthropic-ratelimit-tokens-limit"),
    "remaining_tokens": ("x-ratelimit-remaining-tokens", "anthropic-ratelimit-tokens-remaining"),
}
_RESETS = {
    "reset_requests_us": ("x-ratelimit-reset-requests", "anthropic-ratelimit-requests-reset", "x-ratelimit-reset"),
    "reset_tokens_us": ("x-ratelimit-reset-tokens", "anthropic-ratelimit-tokens-reset"),
    "retry_after_us": ("retry-after-ms", "retry-after"),
}


def read_headers(status: int, headers: Mapping[str, str], *, now_at: int) -> Opened:
    """Build the `Opened` signal; `headers` have lower-case names, `now_at` is in microseconds since the epoch."""
    return Opened(
        status=status,
        request_id=next((headers[name][:_MAX_CHARS] for name in _REQUEST_IDS if headers.get(name)), None),
        provider_us=_provider_us(headers),
        edge=_edge(headers),
        ratelimit=_ratelimit(headers, now_at),
    )


def parse_wait_us(text: str, *, now_at: int) -> int | None:
    """Parse a wait time, and return it in microseconds. The text may be `12ms`, `1m30s`, a number of seconds, a time
    since the epoch in seconds, milliseconds, microseconds or nanoseconds, RFC 3339 or an HTTP date. Returns `None` for
    anything else and for more than 30 days; a time in the past is 0.
    """
    text = text.strip()
    if _NUMBER.fullmatch(text):
        number = float(text)
        since_epoch_us = (number * unit_us - now_at for least, unit_us in _EPOCHS if number >= least)
        return _bounded(next(since_epoch_us, number * SECOND_US), MAX_WAIT_US)
    parts = _DURATION_PART.findall(text.lower())
    if parts and "".join(number + unit for number, unit in parts) == text.lower():
        return _bounded(sum(float(number) * _UNIT_US[unit] for number, unit in parts), MAX_WAIT_US)
    instant = _instant(text)
    return None if instant is None else _bounded(instant.timestamp() * SECOND_US - now_at, MAX_WAIT_US)


def parse_count(text: str | None) -> int | None:
    """Parse a count; -1, empty and malformed text are `None`."""
    return int(text) if text is not None and re.fullmatch(r"\d{1,15}", text.strip()) else None


def _bounded(us: float, most_us: int) -> int | None:
    """Round to whole microseconds, at least 0; `None` above `most_us`, including infinity."""
    return round(max(us, 0)) if us <= most_us else None


def _instant(text: str) -> datetime | None:
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            instant = parse(text)
        except (ValueError, OverflowError):
            continue
        return instant if instant.tzinfo else None
    return None


def _provider_us(headers: Mapping[str, str]) -> int | None:
    for name in ("openai-processing-ms", "x-envoy-upstream-service-time"):
        if _NUMBER.fullmatch(headers.get(name, "")):
            return _bounded(float(headers[name]) * 1000, MAX_PROVIDER_US)
    # There may be several phases; the longest one includes the others.
    stated = [float(duration) for duration in _SERVER_TIMING.findall(headers.get("server-timing", ""))]
    return _bounded(max(stated) * 1000, MAX_PROVIDER_US) if stated else None


def _edge(headers: Mapping[str, str]) -> str | None:
    if "-" in headers.get("cf-ray", ""):
        return f"cloudflare/{headers['cf-ray'].rsplit('-', 1)[1]}"[:_MAX_CHARS]
    if headers.get("x-amz-cf-pop"):
        return f"cloudfront/{headers['x-amz-cf-pop']}"[:_MAX_CHARS]
    return headers.get("server", "")[:_MAX_CHARS] or None


def _ratelimit(headers: Mapping[str, str], now_at: int) -> RateLimit | None:
    counts = {field: _first(parse_count(headers.get(name)) for name in names) for field, names in _COUNTS.items()}
    stated = {name: f"{text}ms" if text and name.endswith("-ms") else text for name, text in headers.items()}
    waits = {
        field: _first(parse_wait_us(stated.get(name, ""), now_at=now_at) for name in names)
        for field, names in _RESETS.items()
    }
    found = RateLimit(**counts, **waits)
    return None if found == RateLimit() else found


def _first(found: Iterator[int | None]) -> int | None:
    return next((value for value in found if value is not None), None)
