"""Web addresses, taken apart and made fit for the wire: host names in ASCII, paths that HTTP can carry."""

import re
import string
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import quote, urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_MAX_HOST_CHARS = 253


@dataclass(frozen=True, slots=True, kw_only=True)
class Url:
    """Where a request goes. `host` is ASCII, an IPv6 address without its brackets; `target` is path and query."""

    scheme: str
    host: str
    port: int | None
    target: str

    @property
    def authority(self) -> str:
        """What the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port in (None, DEFAULT_PORTS[self.scheme]) else f"{host}:{self.port}"


def parse_url(text: str) -> Url:
    """The parts of an address. Raises `ValueError` with a sentence when nothing can be reached there."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"the base URL is no web address: {error}") from error
    if parts.scheme not in DEFAULT_PORTS:
        raise ValueError("the base URL does not begin with http:// or https://")
    if port == 0 or not parts.hostname:
        raise ValueError("the base URL is no web address: " + ("it has port 0" if port == 0 else "it names no host"))
    # Whoever wrote the address may have encoded it already: only what HTTP cannot carry is touched.
    path, query = (quote(part, safe=string.punctuation) for part in (parts.path, parts.query))
    return Url(
        scheme=parts.scheme,
        host=ascii_host(parts.hostname),
        port=port,
        target=(path or "/") + (f"?{query}" if query else ""),
    )


def ascii_host(name: str) -> str:
    """A host's name as DNS and TLS know it: `münchen.example` is `xn--mnchen-3ya.example` (IDNA 2003, as everywhere in
    Python); an address stays one. Raises `ValueError` when it cannot be either.
    """
    if is_address(name):
        return name.lower()
    try:
        ascii_name = name.lower() if name.isascii() else name.encode("idna").decode().lower()
    except UnicodeError as error:
        raise ValueError(f"{name!r} is no host name") from error
    labels = ascii_name.removesuffix(".").split(".")
    if len(ascii_name) > _MAX_HOST_CHARS or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(f"{name!r} is no host name")
    return ascii_name


def is_address(host: str) -> bool:
    """Whether a host is written as an IP address, so that nothing has to be looked up."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
