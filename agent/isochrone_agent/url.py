"""Parser for HTTP URLs: ASCII host names, and paths encoded for HTTP."""

import re
import string
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import quote, urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}
# The errors of a base URL whose scheme does not fit its port.
SPEAKS_HTTP = "this port speaks plain HTTP: try http://"
SPEAKS_TLS = "this port speaks TLS: try https://"
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
    """Convert a host name for DNS and TLS: `münchen.example` to `xn--mnchen-3ya.example` (IDNA 2003, as in Python's
    standard library). An IP address is not changed. Raises `ValueError` if the name is not valid.
    """
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
