"""Which URLs and addresses a request may go to."""

from ipaddress import ip_network

import pytest

from isochrone_agent.probe.destinations import LOOPBACK, Destinations, Url, parse_prefix, parse_url

ALL_NETWORKS = ip_network("0.0.0.0/0"), ip_network("::/0")
ALLOWED = Destinations(prefixes=(parse_prefix("https://a.example/v1/"), parse_prefix("http://[::1]:8000")))


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://a.example/v1/chat", True),
        ("https://A.example:443/v1", True),
        ("https://a.example/v1?x=1", True),
        ("http://[::1]:8000/anything", True),
        ("http://a.example/v1/chat", False),
        ("https://a.example:8443/v1/chat", False),
        ("https://b.example/v1/chat", False),
        ("https://a.example.evil.example/v1/chat", False),
        ("https://a.example@b.example/v1/chat", False),
        ("https://a.example/v1x", False),
        ("https://a.example/V1/chat", False),
        ("https://a.example/v1%2fchat", False),
        ("https://a.example/v1/../admin", False),
        ("https://a.example/v1/%2e%2E/admin", False),
        ("https://a.example/v1/%252e%252e/admin", False),
        ("https://a.example/v1/..%2fadmin", False),
        ("https://a.example/v1/..\\admin", False),
        ("https://a.example/v1/..;x/admin", False),
        ("http://[::1]:8001/anything", False),
    ],
)
def test_a_request_stays_below_an_allowed_url(url: str, *, allowed: bool) -> None:
    """Scheme, host, port and the beginning of the path must be those of an allowed URL, in any encoding."""
    assert (ALLOWED.refusal(parse_url(url)) is None) is allowed


def test_without_urls_every_host_is_allowed_but_no_dot_segment() -> None:
    """Without a list of URLs, only dot segments are refused."""
    assert Destinations().refusal(parse_url("https://b.example/x")) is None
    assert Destinations().refusal(parse_url("https://b.example/../x")) == "the path '/../x' contains a dot segment"


@pytest.mark.parametrize(
    "text", ["https://a.example/v1?x", "https://a.example/#", "https://u@a.example", "ftp://a", ""]
)
def test_a_prefix_is_a_plain_url(text: str) -> None:
    """A prefix has no query, fragment or user."""
    with pytest.raises(ValueError, match=r"one of \?|does not begin"):
        parse_prefix(text)


def test_the_error_of_a_prefix_shows_no_password() -> None:
    """A policy's errors are logged, so they quote only what follows the user and password."""
    with pytest.raises(ValueError, match=r"^'a.example' contains") as raised:
        parse_prefix("https://user:secret@a.example")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("169.254.169.254", "a link-local"),
        ("fe80::1%eth0", "a link-local"),
        ("::ffff:169.254.169.254", "a link-local"),
        ("64:ff9b::a9fe:a9fe", "a link-local"),
        ("2002:a9fe:a9fe::1", "a link-local"),
        ("::a9fe:a9fe", "a link-local"),
        ("::ffff:0:169.254.169.254", "a link-local"),
        ("fd00:ec2::254", "a metadata service's"),
        ("100.100.100.200", "a metadata service's"),
        ("168.63.129.16", "a metadata service's"),
        ("224.0.0.1", "a multicast"),
        ("ff02::1", "a multicast"),
        ("0.0.0.0", "an unspecified"),
        ("0.1.2.3", "an unspecified"),
        ("::", "an unspecified"),
        ("255.255.255.255", "a broadcast"),
    ],
)
def test_some_addresses_are_refused_whatever_the_networks(address: str, kind: str) -> None:
    """Link-local, metadata and multicast addresses are refused even if a network of the policy contains them."""
    every = Destinations(networks=ALL_NETWORKS)
    assert every.address_refusal("h", 443, address) == f"h is {address}, which is {kind} address"


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.0.1",
            "100.64.0.1",
            "192.0.2.1",
            "240.0.0.1",
            "::1",
            "fc00::1",
        ),
        *("::ffff:10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::7f00:1", "64:ff9b:1::1"),
        *("::ffff:0:10.0.0.1", "2001:0:53aa:64c:0:fbff:80ff:fffe"),
        *("fec0::1", "feff::1", "100::1", "5f00::1", "4000::1"),
    ],
)
def test_an_address_that_is_not_public_needs_a_network(address: str) -> None:
    """Private addresses are refused, also inside IPv6 addresses, unless a network contains them."""
    assert Destinations().address_refusal(address, 80, address) == (
        f"{address} is not a public address, nor in an allowed network"
    )
    assert Destinations(networks=ALL_NETWORKS).address_refusal(address, 80, address) is None


def test_public_addresses_are_allowed() -> None:
    """Public addresses are allowed, a network's own, and for its host and port that of `--connect-to`."""
    for address in ("8.8.8.8", "2606:4700::1", "::ffff:8.8.8.8", "::ffff:0:8.8.8.8", "64:ff9b::808:808"):
        assert Destinations().address_refusal("h", 443, address) is None
    assert Destinations(networks=LOOPBACK).address_refusal("h", 443, "127.9.9.9") is None
    assert Destinations(networks=LOOPBACK).address_refusal("h", 443, "10.0.0.1")
    of = Destinations(redirected=frozenset({("api.example", 443)}))
    assert of.address_refusal("api.example", 443, "127.0.0.1") is None
    assert of.address_refusal("api.example", 80, "127.0.0.1")


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
