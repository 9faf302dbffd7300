"""Network addresses of the form `host:port`."""

from dataclasses import dataclass
from ipaddress import ip_address

DEFAULT_PORT = 4600
_MAX_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    """A host (a name, or an IP address without brackets) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True if the host is a loopback address. Plain text is allowed on loopback only."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str, *, default_port: int = DEFAULT_PORT) -> Address:
    """Parse `host`, `host:port`, `[v6]` or `[v6]:port`. Raises `ValueError` with a message for users."""
    if "://" in text:
        raise ValueError(f"{text!r} is a URL: write host:port, for example 127.0.0.1:{default_port}")
    host, port = _split(text.strip())
    if not host:
        raise ValueError(f"{text!r} has no host: write host:port, for example 127.0.0.1:{default_port}")
    if not port:
        return Address(host, default_port)
    if not port.isdecimal() or int(port) > _MAX_PORT:
        raise ValueError(f"{text!r} has no valid port: write host:port, for example {host}:{default_port}")
    return Address(host, int(port))


def _split(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        return host, port.removeprefix(":")
    if text.count(":") > 1:
        return text, ""
    host, _, port = text.partition(":")
    return host, port
