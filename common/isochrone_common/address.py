import os
from dataclasses import dataclass
from ipaddress import ip_address

DEFAULT_PORT = 4600
DEFAULT_HTTP_PORT = 4680
UNIX = "unix:"
# Linux allows 107 bytes for the path of a socket and macOS 103.
MAX_SOCKET_PATH_BYTES = 103
_MAX_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    """A host (a name, or an IP address without brackets) and a port; or `unix:` and a path as the host, and port 0."""

    host: str
    port: int

    def __str__(self) -> str:
        if self.is_socket:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_socket(self) -> bool:
        """True for a Unix socket."""
        return self.host.startswith(UNIX)

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the address. Plain text is allowed on loopback only."""
        if self.host == "localhost" or self.is_socket:
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


def host_of(header: str) -> str:
    """Return the host of a `Host` header in lower case; nothing if it has none."""
    try:
        return parse_address(header).host.lower()
    except ValueError:
        return ""


def parse_local_address(text: str, *, default_port: int = DEFAULT_PORT) -> Address:
    """Parse `unix:path`, or what `parse_address` accepts. Raises `ValueError` with a message for users."""
    path = text.strip().removeprefix(UNIX)
    if path == text.strip():
        return parse_address(text, default_port=default_port)
    if not path or len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise ValueError(f"{text!r} is not a Unix socket: write unix: and a path of 1 to {MAX_SOCKET_PATH_BYTES} bytes")
    return Address(UNIX + path, 0)


def _split(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        return host, port.removeprefix(":")
    if text.count(":") > 1:
        return text, ""
    host, _, port = text.partition(":")
    return host, port
