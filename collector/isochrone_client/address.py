"""The collector to query: the one named, the current context's, that of the identity file, or this user's."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from isochrone_client import configuration
from isochrone_client.errors import AddressError
from isochrone_common import identity_file, local_socket
from isochrone_common.address import DEFAULT_HTTP_PORT, DEFAULT_PORT, Address, parse_local_address
from isochrone_common.identity_file import Identity
from isochrone_wire.text import did_you_mean

DEFAULT_COLLECTOR = f"127.0.0.1:{DEFAULT_HTTP_PORT}"
_SOCKET = "collector.http.sock"


@dataclass(frozen=True, slots=True)
class Collector:
    """The address of a collector's HTTP interface, and the identity in the file `path`; plain text without one. The
    `source` is the context, file or variable that has the address.
    """

    address: Address
    identity: Identity | None = None
    path: Path | None = None
    source: str = field(default="", compare=False)

    def __str__(self) -> str:
        return str(self.address)

    @property
    def named(self) -> str:
        """The address for messages: `127.0.0.1:4680 (from context prod)`."""
        return f"{self} (from {self.source})" if self.source else str(self)

    @property
    def agents_address(self) -> str:
        """The collector's address for agents, if it has one: the default port, if only that of HTTP is."""
        if self.identity is not None:
            return str(self.identity.address)
        if self.address.is_socket:
            return str(self.address).replace(".http.", ".")
        return str(replace(self.address, port=DEFAULT_PORT))

    def reread(self) -> "Collector":
        """The same with the identity that the file has now: any command renews it. Raises `AddressError`."""
        return self if self.path is None else replace(self, identity=_read(self.path))


def resolve_collector(
    collector: str | None, identity: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Collector:
    """The collector at `HOST:PORT` (the port is optional), at `unix:PATH` or of a context, with the identity in the
    file `identity`.

    Without `collector` it is the current context's, else the identity's, else this user's, by its Unix socket. Without
    `identity` it is the context's file, else the one that `isochrone join` wrote if it is for this address. Raises
    `ConfigurationError`, and `AddressError` for an invalid address or identity file and for another machine without an
    identity: that connection would be neither private nor authenticated.
    """
    configured = configuration.read(environment)
    context = None if identity and not collector else configured.select(collector)
    source = "ISOCHRONE_COLLECTOR" if collector and collector == environment.get("ISOCHRONE_COLLECTOR") else ""
    if context is not None:
        collector, identity, source = context.collector, identity or context.identity, f"context {context.name}"
    # Without a name it is that of a context with this address, else the one that `isochrone join` writes.
    same = (one.identity for one in configured.contexts.values() if one.collector == collector)
    path = identity or next(filter(None, same), configuration.folder(environment) / identity_file.FILE_NAME)
    named = _read(identity) if identity else None
    default = None if named or not path.exists() else _read(path)
    try:
        address, selected = local_socket.select_collector(
            parse_local_address(collector, default_port=DEFAULT_HTTP_PORT) if collector else None,
            named=named,
            default=default,
            http=True,
            environment=environment,
        )
    except ValueError as error:
        raise AddressError(str(error), hint=f"for example --collector {DEFAULT_COLLECTOR}") from error
    found = Collector(address, selected, path if selected else None, source if collector or not selected else str(path))
    if selected is None and not address.is_loopback:
        raise AddressError(
            f"{found.named} is not on this machine, and a connection without TLS is neither private nor authenticated"
            + did_you_mean(str(collector), configured.contexts).replace("mean", "mean context"),
            hint=f"join it: `isochrone join {address.host} --token …`; or forward {_SOCKET} of its data folder with "
            f"`ssh -L ./{_SOCKET}:FOLDER/{_SOCKET} {address.host}` and use unix:{_SOCKET}",
        )
    return found


def is_known(environment: Mapping[str, str] = os.environ) -> bool:
    """True if a context, an identity or a variable names a collector, or this user's own listens. Raises as above."""
    identity = environment.get("ISOCHRONE_IDENTITY")
    found = resolve_collector(environment.get("ISOCHRONE_COLLECTOR"), Path(identity) if identity else None, environment)
    return bool(found.source) or found.address.is_socket


def _read(path: Path) -> Identity:
    try:
        return identity_file.read(path)
    except OSError as error:
        raise AddressError(f"cannot read {path}: {error.strerror}", hint="see --identity") from error
    except ValueError as error:
        raise AddressError(str(error), hint="`isochrone join` writes a valid file") from error
