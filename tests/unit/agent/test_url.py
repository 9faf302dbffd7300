"""The URL parser: valid URLs are normalised, others are errors."""

import pytest

from isochrone_agent.url import Url, parse_url


@pytest.mark.parametrize(
    ("text", "parts", "authority"),
    [
        ("https://API.example/v1", ("https", "api.example", None, "/v1"), "api.example"),
        ("https://api.example:443/v1", ("https", "api.example", 443, "/v1"), "api.example"),
        ("http://api.example:443", ("http", "api.example", 443, "/"), "api.example:443"),
        ("http://m\u00fcnchen.example/x", ("http", "xn--mnchen-3ya.example", None, "/x"), "xn--mnchen-3ya.example"),
        ("http://[::1]:8080/v1", ("http", "::1", 8080, "/v1"), "[::1]:8080"),
        ("http://a.b/m/a b:go?x=\u00fc&y=%20", ("http", "a.b", None, "/m/a%20b:go?x=%C3%BC&y=%20"), "a.b"),
        ("http://my_host.local./v1", ("http", "my_host.local.", None, "/v1"), "my_host.local."),
    ],
)
def test_valid_urls(text: str, parts: tuple[str, str, int | None, str], authority: str) -> None:
    """Host names become ASCII, paths are encoded for HTTP, and the Host header omits the default port."""
    scheme, host, port, target = parts
    url = parse_url(text)
    assert url == Url(scheme=scheme, host=host, port=port, target=target)
    assert url.authority == authority


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("http://foo..bar/v1", "is not a host name"),
        ("http://a b/v1", "is not a host name"),
        (f"http://{'a' * 64}/v1", "is not a host name"),
        (f"http://{'a.' * 150}b/v1", "is not a host name"),
        ("http://\u00fc..bar/v1", "is not a host name"),
        ("http:///v1", "has no host"),
        ("http://127.0.0.1:99999/v1", "Port out of range"),
        ("http://127.0.0.1:0/v1", "port 0"),
        ("http://127.0.0.1:http/v1", "Port could not be cast"),
        ("http://[::1/v1", "Invalid IPv6"),
        ("ftp://a.b/v1", "does not begin with http"),
        ("a.b/v1", "does not begin with http"),
    ],
)
def test_invalid_urls(text: str, words: str) -> None:
    """The error states what is wrong with the URL."""
    with pytest.raises(ValueError, match=words):
        parse_url(text)
