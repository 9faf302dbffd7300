"""URLs, and the destinations that this agent may send requests to, whatever a plan contains. Pure.

The laws:

1. With `prefixes`, a request goes only to a URL that begins with one of them: the same scheme, host and port, and a
   path below theirs. Dot segments, which a server may resolve to another path, are refused, however they are encoded.
2. The address that is dialled is checked, not the name: a name may resolve to another address each time (DNS
   rebinding), and to a number in any notation.
3. An IPv4 address inside an IPv6 address (mapped, translated, NAT64, 6to4, Teredo) is checked as that IPv4 address.
   Other IPv6 addresses are public only within 2000::/3, which is all that IANA has allocated as global unicast.
4. Link-local, multicast and unspecified addresses and those of the clouds' metadata services are always refused; other
   addresses that are not public are refused unless they are in `networks`.
"""

import re
import string
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import quote, unquote, urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}
# The errors of a base URL whose scheme does not fit its port.
SPEAKS_HTTP = "this port speaks plain HTTP: try http://"
SPEAKS_TLS = "this port speaks TLS: try https://"
SPEAKS_HTTP2 = "this port speaks HTTP/2 only; the agent speaks HTTP/1.1"
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_MAX_HOST_CHARS = 253


@dataclass(frozen=True, slots=True, kw_only=True)
class Url:
    """A parsed URL. `host` is ASCII, an IPv6 address without brackets; `target` is the path and query."""

    scheme: str
    host: str
    port: int | None
    target: str

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port in (None, DEFAULT_PORTS[self.scheme]) else f"{host}:{self.port}"


def parse_url(text: str) -> Url:
    """Parse and normalise a URL. Raises `ValueError` if it cannot be used for a request."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"the base URL is not valid: {error}") from error
    if parts.scheme not in DEFAULT_PORTS:
        raise ValueError("the base URL does not begin with http:// or https://")
    if port == 0 or not parts.hostname:
        raise ValueError("the base URL is not valid: " + ("it has port 0" if port == 0 else "it has no host"))
    # The URL may be encoded already, so only characters that HTTP does not allow are quoted.
    path, query = (quote(part, safe=string.punctuation) for part in (parts.path, parts.query))
    return Url(
        scheme=parts.scheme,
        host=ascii_host(parts.hostname),
        port=port,
        target=(path or "/") + (f"?{query}" if query else ""),
    )


def ascii_host(name: str) -> str:
    """Convert a name for DNS and TLS, as `xn--mnchen-3ya.example` (IDNA 2003). Raises `ValueError`."""
    if is_address(name):
        return name.lower()
    try:
        ascii_name = name.lower() if name.isascii() else name.encode("idna").decode().lower()
    except UnicodeError as error:
        raise ValueError(f"{name!r} is not a host name") from error
    labels = ascii_name.removesuffix(".").split(".")
    if len(ascii_name) > _MAX_HOST_CHARS or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(f"{name!r} is not a host name")
    return ascii_name


def is_address(host: str) -> bool:
    """Return whether a host is an IP address, which needs no DNS lookup."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


Network = IPv4Network | IPv6Network

LOOPBACK: tuple[Network, ...] = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
REFUSED = "refused by the agent's policy: "
"""The beginning of the error of a sample that was not sent for this reason."""

_NAT64 = ip_network("64:ff9b::/96")
_TRANSLATED = ip_network("::ffff:0:0:0/96")
_COMPATIBLE = ip_network("::/96")
_GLOBAL_UNICAST = ip_network("2000::/3")
_THIS_NETWORK = ip_network("0.0.0.0/8")
# The addresses of metadata services that are not link-local: of AWS and Google by IPv6, Alibaba, Oracle and Azure.
_METADATA = frozenset(
    map(ip_address, ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlPrefix:
    """An origin and the beginning of a path, without a slash at its end."""

    scheme: str
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"

    def covers(self, url: Url) -> bool:
        """Return true if a request to `url` stays below this prefix."""
        origin = url.scheme, url.host, url.port or DEFAULT_PORTS[url.scheme]
        path = url.target.partition("?")[0]
        return origin == (self.scheme, self.host, self.port) and f"{path}/".startswith(f"{self.path}/")


def parse_prefix(text: str) -> UrlPrefix:
    """Parse a URL prefix such as `https://api.openai.com/v1`. Raises `ValueError`."""
    if set("?#@") & set(text):
        # Before the @ there may be a password.
        raise ValueError(f"{text.rpartition('@')[2]!r} contains, or follows, one of ? # @")
    url = parse_url(text)
    if _has_dot_segment(url.target):
        raise ValueError(f"{text!r} contains a dot segment")
    port = url.port or DEFAULT_PORTS[url.scheme]
    return UrlPrefix(scheme=url.scheme, host=url.host, port=port, path=url.target.rstrip("/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Destinations:
    """The allowed destinations, any without `prefixes`; addresses of `redirected` hosts are not checked."""

    prefixes: tuple[UrlPrefix, ...] = ()
    networks: tuple[Network, ...] = ()
    redirected: frozenset[tuple[str, int]] = frozenset()

    def refusal(self, url: Url) -> str | None:
        """Return why no request may be sent to `url`; `None` if it may."""
        if _has_dot_segment(url.target):
            return f"the path {url.target!r} contains a dot segment"
        if self.prefixes and not any(prefix.covers(url) for prefix in self.prefixes):
            return f"{url.scheme}://{url.authority}{url.target} is not below an allowed URL"
        return None

    def address_refusal(self, host: str, port: int, address: str) -> str | None:
        """Return why `address`, to which `host` resolved, may not be connected to; `None` if it may."""
        if (host, port) in self.redirected:
            return None
        ip = _embedded(ip_address(address.partition("%")[0]))
        where = address if host == address else f"{host} is {address}, which"
        if kind := _never_allowed(ip):
            return f"{where} is {kind} address"
        # `is_global` alone is true for fec0::/10, and in older versions of Python for 64:ff9b:1::/48.
        is_public = ip.is_global and (isinstance(ip, IPv4Address) or ip in _GLOBAL_UNICAST)
        if is_public or any(ip in network for network in self.networks):
            return None
        return f"{where} is not a public address, nor in an allowed network"


def _embedded(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that an IPv6 address leads to, else the address itself."""
    if isinstance(ip, IPv4Address):
        return ip
    if ip in _NAT64 or ip in _TRANSLATED or (ip in _COMPATIBLE and int(ip) > 1):
        return IPv4Address(int(ip) & 0xFFFF_FFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else ip)


def _never_allowed(ip: IPv4Address | IPv6Address) -> str | None:
    kinds = (
        ("a link-local", ip.is_link_local),
        ("a metadata service's", ip in _METADATA),
        ("a multicast", ip.is_multicast),
        ("an unspecified", ip.is_unspecified or ip in _THIS_NETWORK),
        ("a broadcast", ip == IPv4Address("255.255.255.255")),
    )
    return next((kind for kind, is_of in kinds if is_of), None)


def _has_dot_segment(target: str) -> bool:
    path = target.partition("?")[0]
    while (decoded := unquote(path)) != path:
        path = decoded
    # Some servers ignore parameters after a semicolon, and take a backslash for a slash.
    segments = path.replace("\\", "/").split("/")
    return any(segment.partition(";")[0] in (".", "..") for segment in segments)
