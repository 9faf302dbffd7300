"""Requests out of bytes: wherever they are cut, one after the other, and never more than we hold."""

import pytest

from isochrone_sim.requests import MAX_BODY_BYTES, Malformed, Request, RequestReader

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
    """Larger bodies are refused as too large."""
    reader = RequestReader()
    reader.receive(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1))
    reader.receive(b"x" * (MAX_BODY_BYTES + 1))
    with pytest.raises(Malformed) as caught:
        reader.next_request()
    assert caught.value.status == 413


def test_a_client_may_ask_before_it_sends() -> None:
    """`Expect: 100-continue` is noticed until the body comes."""
    reader = RequestReader()
    reader.receive(b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    assert (reader.next_request(), reader.wants_continue) == (None, True)
    reader.receive(b"abc")
    request = reader.next_request()
    assert request is not None
    assert (request.body, reader.wants_continue) == (b"abc", False)
