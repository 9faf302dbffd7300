"""The callers that may send requests: those with the token, or without one those of this machine.

Without a token, a page in a browser of this machine could spend money here. It is either of another origin, which the
browser states, or under a name of its own that it makes resolve to this address (DNS rebinding), which is in `Host`.
"""

import hmac
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from isochrone_common.address import Address, host_of

_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Access:
    """The token of callers, empty if they need none, and the hosts they may name, empty for any."""

    token: str = field(repr=False)
    hosts: Collection[str]

    def refusal(self, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """The status and the reason of a refusal, by the headers of a request; `None` for a caller that may send."""
        given = headers.get("host")
        if self.hosts and given is not None and host_of(given) not in self.hosts:
            return 403, f"{given[:80]!r} is not a host of this gateway: use {', '.join(sorted(self.hosts))}"
        if not self.token:
            return (403, "requests of web pages need a gateway with a token") if "origin" in headers else None
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        keys = (bearer, headers.get("x-api-key", ""), headers.get("api-key", ""))
        if any(hmac.compare_digest(key.encode(), self.token.encode()) for key in keys):
            return None
        return 401, "the API key is not the token of this gateway"


def access_at(listen: Address, token: str) -> Access:
    """The access of a gateway that listens on this address. Raises `ValueError` if others reach it without a token."""
    if not listen.is_loopback and not token:
        raise ValueError(f"{listen} can be reached from other machines, and the gateway spends money with your keys")
    return Access(token, frozenset({*_LOCAL_HOSTS, listen.host}) if listen.is_loopback else ())
