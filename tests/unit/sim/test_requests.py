"""Requests from bytes, wherever they are cut, and their rate limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_sim.requests import (
    MAX_BODY_BYTES,
    MINUTE_US,
    Bucket,
    Malformed,
    RateLimits,
    Request,
    RequestReader,
    format_duration,
)

BODY = b'{"model":"m"}'
POST = b"POST /v1/chat/completions?a=b HTTP/1.1\r\nHost: x\r\nX-Y: z\r\nContent-Length: 13\r\n\r\n" + BODY
GET = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"


def read_all(reader: RequestReader) -> list[Request]:
    found = []
    while request := reader.next_request():
        found.append(request)
    return found


@pytest.mark.parametrize("cut", range(len(POST)))
def test_where_bytes_are_cut_does_not_matter(cut: int) -> None:
    """A request in two reads is the request in one."""
    reader = RequestReader()
    early: list[Request] = []
    for part in (POST[:cut], POST[cut:]):
        assert early == []
        if part:
            reader.receive(part)
        early = read_all(reader)
    (request,) = early
    assert (request.method, request.path, request.query, request.body) == (
        "POST",
        "/v1/chat/completions",
        {"a": "b"},
        BODY,
    )
    assert (request.headers["x-y"], request.keeps_alive) == ("z", True)


def test_requests_may_come_together() -> None:
    """What arrives in one read is taken apart in order, and nothing is lost between."""
    reader = RequestReader()
    reader.receive(POST + GET + CHUNKED)
    requests = read_all(reader)
    assert [request.method for request in requests] == ["POST", "GET", "POST"]
    assert [request.keeps_alive for request in requests] == [True, False, True]
    assert requests[2].body == b"abc"


@pytest.mark.parametrize("data", [b"BOGUS\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"])
def test_what_is_no_request_is_malformed(data: bytes) -> None:
    """Nonsense, a request without a host, and a TLS handshake are told apart from requests."""
    reader = RequestReader()
    reader.receive(data)
    with pytest.raises(Malformed):
        reader.next_request()


def test_a_body_has_a_limit() -> None:
    """Larger bodies are refused; `Expect: 100-continue` is noticed until the body comes."""
    reader = RequestReader()
    reader.receive(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1))
    reader.receive(b"x" * (MAX_BODY_BYTES + 1))
    with pytest.raises(Malformed) as caught:
        reader.next_request()
    assert caught.value.status == 413
    reader = RequestReader()
    reader.receive(b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    assert (reader.next_request(), reader.wants_continue) == (None, True)
    reader.receive(b"abc")
    request = reader.next_request()
    assert request is not None
    assert (request.body, reader.wants_continue) == (b"abc", False)


AT = 1_779_235_200_000_000


def test_a_bucket_empties_and_says_how_long_to_wait() -> None:
    """The limit may be used at once; then there is nothing, until the wait is over."""
    bucket = Bucket(60)
    assert [bucket.take(1, at=AT).remaining for _ in range(60)][-1] == 0
    refused = bucket.take(1, at=AT)
    assert (refused.wait_us, refused.remaining, refused.reset_us) == (1_000_000, 0, MINUTE_US)
    assert bucket.take(1, at=AT + refused.wait_us).wait_us == 0


@given(st.integers(1, 10_000), st.lists(st.tuples(st.integers(0, 1000), st.integers(-1000, MINUTE_US)), max_size=30))
def test_levels_are_possible(limit: int, takes: list[tuple[int, int]]) -> None:
    """Whatever is taken, and however the clock steps, what is left lies between nothing and the limit."""
    bucket, at = Bucket(limit), AT
    for amount, passed_us in takes:
        at += passed_us
        level = bucket.take(amount, at=at)
        assert 0 <= level.remaining <= limit
        assert 0 <= level.reset_us <= MINUTE_US


def test_a_throttled_request_takes_no_tokens() -> None:
    """What one bucket or model refuses is not charged to another."""
    rate_limits = RateLimits()
    taken = [rate_limits.take("m", tokens=100, at=AT, limits=(1, 1000)) for _ in range(3)]
    assert [rate_limit.requests.wait_us > 0 for rate_limit in taken] == [False, True, True]
    assert [rate_limit.tokens.remaining for rate_limit in taken] == [900, 900, 900]
    rate_limits = RateLimits()
    rate_limits.take("a", tokens=1, at=AT, limits=(1, 10))
    assert rate_limits.take("b", tokens=1, at=AT, limits=(1, 10)).requests.wait_us == 0


@pytest.mark.parametrize(
    ("us", "text"),
    [(0, "0ms"), (1, "1ms"), (12_000, "12ms"), (1_500_000, "1.5s"), (60_000_000, "1m0s"), (90_000_000, "1m30s")],
)
def test_durations_as_openai_writes_them(us: int, text: str) -> None:
    """Milliseconds, seconds, minutes and seconds."""
    assert format_duration(us) == text
