"""Origins a key may be sent to: scheme, host and port, as `hosts` of a credential names them. Pure.

| Entry | Means |
|---|---|
| `api.openai.com` | `https://api.openai.com`, port 443 |
| `host:8443` | `https://host:8443` |
| `http://host`, `http://host:8000` | plain text to exactly that port, 80 without one |
| `127.0.0.1`, `[::1]`, `localhost` | this machine: any scheme, and any port unless one is said |
"""

from dataclasses import dataclass
from ipaddress import ip_address

from isochrone_agent.url import DEFAULT_PORTS, Url, is_address, parse_url


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a key may go. `None` is any scheme, or any port."""

    scheme: str | None
    host: str
    port: int | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme or 'http(s)'}://{host}:{'*' if self.port is None else self.port}"

    def allows(self, url: Url) -> bool:
        """Whether a request to `url` stays within this origin."""
        port = url.port or DEFAULT_PORTS[url.scheme]
        return url.host == self.host and self.scheme in (None, url.scheme) and self.port in (None, port)


def parse_origin(entry: str) -> Origin:
    """The origin that an entry names. Raises `ValueError` when it names none."""
    said = "://" in entry
    bracketed = f"[{entry}]" if is_address(entry) and ":" in entry else entry
    text = bracketed if said else f"https://{bracketed}"
    url = parse_url(text)
    if text.count("/") > len("//") or set("?#@") & set(text):
        raise ValueError(f"{entry!r} is no origin")
    if not said and _is_here(url.host):
        return Origin(scheme=None, host=url.host, port=url.port)
    return Origin(scheme=url.scheme, host=url.host, port=url.port or DEFAULT_PORTS[url.scheme])


def origin_of(url: Url) -> Origin:
    """The one origin of an address."""
    return Origin(scheme=url.scheme, host=url.host, port=url.port or DEFAULT_PORTS[url.scheme])


def _is_here(host: str) -> bool:
    return host == "localhost" or (is_address(host) and ip_address(host).is_loopback)
