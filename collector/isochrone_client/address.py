"""Resolve the collector to query: the address given, the identity file that enrolment left, or this machine."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from isochrone_client.errors import AddressError
from isochrone_wire import identity_file
from isochrone_wire.address import DEFAULT_PORT, Address, parse_address
from isochrone_wire.identity_file import Identity

DEFAULT_COLLECTOR = f"127.0.0.1:{DEFAULT_PORT}"


@dataclass(frozen=True, slots=True)
class Collector:
    """A collector's address, and the identity to show there; without one, plain text to this machine."""

    address: Address
    identity: Identity | None = None

    def __str__(self) -> str:
        return str(self.address)


def resolve_collector(
    collector: str | None, identity: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Collector:
    """The collector at `HOST:PORT`, the port of which may be left out, with the identity in the file `identity`.

    Without `identity` it is what `isochrone join` wrote, where that is of this address; without `collector` it is the
    identity's. Raises `AddressError` for what is no address or no identity, and for another machine without one:
    nothing said to it would be private or genuine.
    """
    given = _read(identity) if identity else None
    own = None if given else _own(environment)
    try:
        address, who = identity_file.select_collector(
            parse_address(collector) if collector else None, named=given, default=own
        )
    except ValueError as error:
        raise AddressError(str(error), hint=f"for example --collector {DEFAULT_COLLECTOR}") from error
    if who is None and not address.is_loopback:
        there = f"127.0.0.1:{address.port}"
        raise AddressError(
            f"{address} is not on this machine, and without TLS nothing said to it would be private or genuine",
            hint=f"join it, `isochrone join {address} --token …`; or, where it speaks plain text, forward the port, "
            f"`ssh -L {address.port}:{there} {address.host}`, and ask {there}",
        )
    return Collector(address, who)


def default_identity_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Where `isochrone join` writes, unless told."""
    base = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111  # Path.home() raises
    return Path(base) / "isochrone" / identity_file.FILE_NAME


def _own(environment: Mapping[str, str]) -> Identity | None:
    path = default_identity_path(environment)
    return _read(path) if path.exists() else None


def _read(path: Path) -> Identity:
    try:
        return identity_file.read(path)
    except OSError as error:
        raise AddressError(f"{path} cannot be read: {error.strerror}", hint="see --identity") from error
    except ValueError as error:
        raise AddressError(str(error), hint="`isochrone join` writes such a file") from error
