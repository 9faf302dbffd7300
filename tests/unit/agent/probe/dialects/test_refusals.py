"""Temporary refusals: the wait time where only the error itself states it."""

import json
from typing import Any

import pytest

from isochrone_agent.probe.dialects.base import in_band_failure, stated_wait_us
from isochrone_agent.probe.dialects.signals import Failed, Opened, Sent
from isochrone_agent.probe.measurement import Measurement
from isochrone_wire.model import Outcome, RateLimit

# The shape of Gemini's 429 when a quota of the free tier is used up.
GEMINI = {
    "code": 429,
    "message": "You exceeded your current quota, please check your plan and billing details.",
    "status": "RESOURCE_EXHAUSTED",
    "details": [
        {
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{"quotaMetric": "requests", "quotaId": "PerMinute", "quotaValue": "10"}],
        },
        {"@type": "type.googleapis.com/google.rpc.Help", "links": [{"description": "More", "url": "https://x.test"}]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "12s"},
    ],
}


def delayed(delay: Any) -> dict[str, Any]:
    return {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}]}


@pytest.mark.parametrize(
    ("body", "wait_us"),
    [
        ({"error": GEMINI}, 12_000_000),
        ([{"error": GEMINI}], 12_000_000),
        ({"error": delayed("0.837192s")}, 837_192),
        ({"error": delayed("0s")}, 0),
        ({"error": delayed("-3s")}, None),
        ({"error": delayed("soon")}, None),
        ({"error": delayed("1000000s")}, None),
        ({"error": delayed(12)}, None),
        ({"error": {"details": ["12s", None]}}, None),
        ({"error": {"details": "retryDelay: 12s"}}, None),
        ({"error": {"message": "Try again in 12s."}}, None),
        ({"error": "12s"}, None),
        ({}, None),
        ([], None),
    ],
)
def test_a_wait_in_the_body(body: object, wait_us: int | None) -> None:
    """Only `RetryInfo` is used; anything else is an unknown wait, and never an error."""
    assert stated_wait_us(json.dumps(body).encode()) == wait_us


def test_a_body_cut_short_says_nothing() -> None:
    """A body longer than the part that is read has no wait, and does no harm."""
    assert stated_wait_us(json.dumps({"error": GEMINI}).encode()[:-9]) is None


def test_a_wait_inside_a_stream() -> None:
    """The same error as an event under status 200 has the same wait."""
    failure = in_band_failure(GEMINI)
    assert (failure.outcome, failure.retry_after_us) == (Outcome.THROTTLED, 12_000_000)


@pytest.mark.parametrize(
    ("error", "throttled"),
    [
        ({"code": "RateLimitExceeded.EndpointRPMExceeded", "type": "TooManyRequests"}, True),
        ({"code": "AccountRateLimitExceeded"}, True),
        ({"code": "TooManyRequests"}, True),
        ({"code": "Throttling.RateQuota"}, True),
        ({"code": "ThrottlingException"}, True),
        ({"code": "limit_requests", "type": "limit_requests"}, True),
        ({"code": "limit_burst_rate"}, True),
        ({"type": "rate_limit_error"}, True),
        ({"code": "rate_limit_exceeded"}, True),
        ({"code": 429}, True),
        ({"code": "HTTP_429"}, True),
        ({"status": "RESOURCE_EXHAUSTED"}, True),
        ({"code": 14290}, False),
        ({"type": "overloaded_error"}, False),
        ({"code": "context_length_exceeded"}, False),
        ({"message": "the rate limit of 429 rooms"}, False),
        ("rate limit", False),
    ],
)
def test_a_throttle_has_many_names(error: object, throttled: bool) -> None:  # noqa: FBT001  # a case
    """A rate limit inside a stream is recognised by its code, type or status, not by its message."""
    assert in_band_failure(error).outcome is (Outcome.THROTTLED if throttled else Outcome.HTTP_ERROR)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (None, RateLimit(retry_after_us=12)),
        (RateLimit(limit_requests=5), RateLimit(limit_requests=5, retry_after_us=12)),
        (RateLimit(retry_after_us=7), RateLimit(retry_after_us=7)),
    ],
)
def test_headers_are_believed_first(told: RateLimit | None, expected: RateLimit) -> None:
    """The wait of the body is used only if the headers have none."""
    measurement = Measurement()
    measurement.observe(Sent(), 0)
    measurement.observe(Opened(status=429, ratelimit=told), 1)
    measurement.observe(Failed(outcome=Outcome.THROTTLED, error="HTTP 429", retry_after_us=12), 1)
    assert measurement.sample(target_id=1, round_at=0, dispatched_at=0).ratelimit == expected
