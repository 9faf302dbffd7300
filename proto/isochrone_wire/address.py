"""Where a collector listens: `host:port`, and whether that is this machine itself."""

from dataclasses import dataclass
from ipaddress import ip_address

DEFAULT_PORT = 4600
_MAX_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    """A host (name or literal, IPv6 without brackets) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether what is sent there stays on this machine; plain text may travel nowhere else."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str, *, default_port: int = DEFAULT_PORT) -> Address:
    """`host`, `host:port`, `[v6]` or `[v6]:port`. Raises `ValueError` with a sentence for people."""
    host, port = _split(text.strip())
    if not host:
        raise ValueError(f"{text!r} names no host; write host:port, like 127.0.0.1:{default_port}")
    if not port:
        return Address(host, default_port)
    if not port.isdecimal() or int(port) > _MAX_PORT:
        raise ValueError(f"{text!r} has no usable port; write host:port, like {host}:{default_port}")
    return Address(host, int(port))


def _split(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        return host, port.removeprefix(":")
    if text.count(":") > 1:
        return text, ""
    host, _, port = text.partition(":")
    return host, port
