"""A reverse proxy that authenticates the users of the live page, for example by OIDC, and states them in a header.

Any caller can send the header. It counts only in requests that prove to be the proxy's: they have its secret, come from
one of its addresses, or both if both are set.
"""

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path

from isochrone_collector.errors import SettingsError, Unauthenticated

SECRET_HEADER = "X-Isochrone-Proxy-Secret"
"""The header of the secret."""

SECRET_VARIABLE = "ISOCHRONE_PROXY_SECRET"
MAX_USER_CHARS = 200

_HEADER_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
# They have another meaning in every request.
_RESERVED = frozenset({"authorization", "cookie", "host", SECRET_HEADER.lower()})
_SECRET = re.compile(r"[\x21-\x7e]{16,500}")
_SECRET_HINT = "create one with `openssl rand -hex 32 > FILE`, and set --proxy-secret-file FILE"

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedProxy:
    """The header that names the user, and the proofs of the proxy: its secret, its addresses, or both."""

    user_header: str
    secret: str | None = field(default=None, repr=False)
    addresses: tuple[Network, ...] = ()

    def user_of(self, headers: Callable[[str], Sequence[str]], address: str) -> str | None:
        """Return the user of a request from an address if it is the proxy's. Raises `Unauthenticated`."""
        if not self._is_trusted(headers(SECRET_HEADER), address):
            return None
        values = headers(self.user_header)
        if not any(values):
            return None
        if len(values) > 1:
            raise Unauthenticated(f"the proxy sent more than one header {self.user_header}")
        try:
            user = values[0].encode("latin-1").decode().strip()
        except UnicodeDecodeError:
            user = ""
        if not user.isprintable() or not 0 < len(user) <= MAX_USER_CHARS:
            raise Unauthenticated(f"the proxy's header {self.user_header} is not the name of a user")
        return user

    def _is_trusted(self, secrets: Sequence[str], address: str) -> bool:
        if self.addresses and not _is_within(address, self.addresses):
            return False
        if self.secret is None:
            return bool(self.addresses)
        return len(secrets) == 1 and hmac.compare_digest(secrets[0].encode("latin-1"), self.secret.encode("ascii"))


def check(
    user_header: str | None, secret_file: Path | None, addresses: Sequence[str], environment: Mapping[str, str]
) -> TrustedProxy | None:
    """Return the proxy of the settings, `None` without a header. Raises `SettingsError` without the secret."""
    if not user_header:
        if secret_file or addresses:
            given = "--proxy-secret-file" if secret_file else "--proxy-address"
            raise SettingsError(f"{given} without --proxy-user-header", hint="--proxy-user-header X-Forwarded-User")
        return None
    if not _HEADER_NAME.fullmatch(user_header) or user_header.lower() in _RESERVED:
        raise SettingsError(
            f"--proxy-user-header {user_header!r} is not the name of a header for users", hint="X-Forwarded-User"
        )
    secret = _secret(secret_file, environment)
    networks = tuple(map(_network, addresses))
    if secret is None and not networks:
        raise SettingsError(
            "--proxy-user-header needs a proof that requests come from the proxy",
            hint=f"{_SECRET_HINT}; or set --proxy-address",
        )
    if secret is None and any(network.is_loopback for network in networks):
        raise SettingsError(
            "--proxy-address names this machine, from which every user can send the header", hint=_SECRET_HINT
        )
    return TrustedProxy(user_header=user_header, secret=secret, addresses=networks)


def _secret(file: Path | None, environment: Mapping[str, str]) -> str | None:
    try:
        text = file.read_text(encoding="utf-8").strip() if file else environment.get(SECRET_VARIABLE, "")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsError(f"{file} cannot be read: {reason}", hint="see --proxy-secret-file") from None
    if not text and file is None:
        return None
    if not _SECRET.fullmatch(text):
        raise SettingsError("the proxy's secret is not 16 to 500 characters of ASCII without spaces", hint=_SECRET_HINT)
    return text


def _network(text: str) -> Network:
    try:
        network = ip_network(text)
    except ValueError as error:
        raise SettingsError(f"--proxy-address: {error}", hint="--proxy-address 192.0.2.7, or 192.0.2.0/28") from error
    if not network.prefixlen:
        raise SettingsError(f"--proxy-address {text} is every address", hint="name that of the proxy")
    return network


def _is_within(address: str, networks: Sequence[Network]) -> bool:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return any(found in network for network in networks)
