"""Response headers: valid values are parsed, malformed and implausible ones are ignored."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from isochrone_agent.probe.response_headers import MAX_WAIT_US, parse_count, parse_wait_us, read_headers

NOW = 1_700_000_000_000_000


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("12ms", 12_000),
        ("1m30s", 90_000_000),
        ("0.5s", 500_000),
        ("2", 2_000_000),
        ("6h0m0s", 21_600_000_000),
        ("", None),
        ("-1", None),
        ("soon", None),
        ("1m30x", None),
        ("1700000030", 30_000_000),
        ("1700000030000", 30_000_000),
        ("2023-11-14T22:13:50Z", 30_000_000),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30_000_000),
        ("2023-11-14T22:13:10Z", 0),
        ("1700000030000000", 30_000_000),
        ("1700000030000000000", 30_000_000),
        ("1600000000000000000", 0),
        ("2592000", 2_592_000_000_000),
        ("2592001", None),
        ("9" * 400, None),
        ("9" * 400 + "s", None),
        ("720h", 2_592_000_000_000),
        ("721h", None),
        ("9999-12-31T23:59:59Z", None),
        ("Wed, 21 Oct 99999999999999999999 07:28:00 GMT", None),
    ],
)
def test_waits(text: str, microseconds: int | None) -> None:
    """Every format of a wait is parsed; anything else, and more than 30 days, is `None`."""
    assert parse_wait_us(text, now_at=NOW) == microseconds


@given(st.text(st.sampled_from("0123456789.:+-, TZGMTWedOct²٣smhdµ")))
@example("Wed, 21 Oct 0001 07:28:00 +2359")
@example("0001-01-01T00:00:00+23:59")
def test_no_text_breaks_a_wait(text: str) -> None:
    """Any text is a wait within bounds or `None`; nothing raises."""
    wait_us = parse_wait_us(text, now_at=NOW)
    assert wait_us is None or 0 <= wait_us <= MAX_WAIT_US


@pytest.mark.parametrize(
    ("text", "number"), [("59", 59), ("0", 0), ("-1", None), ("", None), (None, None), ("9" * 40, None)]
)
def test_counts(text: str | None, number: int | None) -> None:
    """-1, empty and malformed counts are unknown, not zero; zero is zero."""
    assert parse_count(text) == number


def test_a_full_set_of_headers() -> None:
    """Request id, processing time, edge and limits are parsed; without such headers they are unknown."""
    headers = {
        "x-request-id": "req-1",
        "openai-processing-ms": "187",
        "cf-ray": "8f1-SIN",
        "x-ratelimit-remaining-tokens": "-1",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
    }
    opened = read_headers(200, headers, now_at=NOW)
    assert (opened.request_id, opened.provider_us, opened.edge) == ("req-1", 187_000, "cloudflare/SIN")
    assert opened.ratelimit is not None
    assert (opened.ratelimit.remaining_requests, opened.ratelimit.reset_requests_us) == (59, 1_000_000)
    assert opened.ratelimit.remaining_tokens is None
    opened = read_headers(200, {}, now_at=NOW)
    assert (opened.request_id, opened.provider_us, opened.edge, opened.ratelimit) == (None, None, None, None)


def test_anthropics_headers() -> None:
    """Limits under Anthropic's names, with resets as times."""
    headers = {
        "request-id": "req_1",
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-tokens-remaining": "0",
        "anthropic-ratelimit-tokens-reset": "2023-11-14T22:13:21Z",
        "retry-after": "7",
    }
    opened = read_headers(429, headers, now_at=NOW)
    assert opened.ratelimit is not None
    assert (opened.request_id, opened.ratelimit.limit_requests, opened.ratelimit.remaining_tokens) == ("req_1", 50, 0)
    assert (opened.ratelimit.reset_tokens_us, opened.ratelimit.retry_after_us) == (1_000_000, 7_000_000)


@pytest.mark.parametrize(
    ("headers", "microseconds"),
    [
        ({"x-envoy-upstream-service-time": "12"}, 12_000),
        ({"server-timing": "cfRequestDuration;dur=101.5, intid;desc=x, total;dur=240"}, 240_000),
        ({"openai-processing-ms": "soon"}, None),
        ({"openai-processing-ms": "9" * 400}, None),
        ({"server-timing": "total;dur=1e9, x;dur=" + "9" * 400}, None),
        ({"retry-after-ms": "250"}, None),
    ],
)
def test_the_providers_own_time(headers: dict[str, str], microseconds: int | None) -> None:
    """The provider's processing time is parsed from each known header, in microseconds."""
    assert read_headers(200, headers, now_at=NOW).provider_us == microseconds
