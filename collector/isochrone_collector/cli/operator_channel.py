"""How an operator's command reaches a collector: with an identity, or as a local process in plain text."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc

from isochrone_collector.errors import CollectorError, CollectorUnreachable, SettingsError
from isochrone_collector.server.operator_identity import FILE_NAME
from isochrone_collector.settings import data_dir_of, parse_address
from isochrone_wire import channel, identity_file
from isochrone_wire.address import Address
from isochrone_wire.identity_file import Identity

TIMEOUT_S = 30.0

_UNREACHABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
_HINT_OF = {
    grpc.StatusCode.UNAUTHENTICATED: "say who you are with --identity, or ISOCHRONE_IDENTITY; "
    "`serve` writes an operator's into its data folder",
    grpc.StatusCode.PERMISSION_DENIED: "this takes an operator's identity; say it with --identity",
}


def operator_channel(collector: str | None, identity: Path | None) -> grpc.Channel:
    """A channel to the collector that an operator means; close it, or use `with`.

    `collector` is an address and `identity` the file that joining wrote. Without `identity` the operator.json of the
    data folder is taken when it is there and for this address; else plain text is spoken, on loopback only. Raises
    `SettingsError`.
    """
    address, who = _whither(collector, identity, os.environ)
    try:
        if who is None:
            return channel.open_channel(address, channel.PLAIN)
        return channel.open_channel(address, who.trust, who.credential)
    except ValueError as error:
        hint = "say who you are with --identity FILE, which `isochrone join` wrote"
        raise SettingsError(str(error), hint=hint) from error


def address_of(collector: str | None, identity: Path | None) -> Address:
    """The address that `operator_channel` would reach. Raises `SettingsError`."""
    return _whither(collector, identity, os.environ)[0]


def translated(error: grpc.RpcError, collector: str | None = None) -> CollectorError:
    """A failed call as an error for the operator: `CollectorUnreachable`, or `CollectorError` with what was said."""
    # Every error of a call is also the call, which knows its status; the stubs cannot say so.
    call: Any = error
    details = call.details() or call.code().name.lower()
    where = f" at {collector}" if collector else ""
    if _UNTRUSTED in details:
        hint = "its certificate has changed; join again, or take the operator.json it wrote"
        return CollectorUnreachable(f"the collector{where} is not the one this identity knows: {details}", hint=hint)
    if call.code() in _UNREACHABLE:
        hint = "is `isochrone-collector serve` running?"
        return CollectorUnreachable(f"no collector answers{where}: {details}", hint=hint)
    return CollectorError(f"the collector refused: {details}", hint=_HINT_OF.get(call.code(), ""))


def _whither(
    collector: str | None, identity: Path | None, environment: Mapping[str, str]
) -> tuple[Address, Identity | None]:
    said = parse_address(collector) if collector else None
    given = _read(identity) if identity else None
    return identity_file.select_collector(said, named=given, default=_own(environment))


def _own(environment: Mapping[str, str]) -> Identity | None:
    """The operator.json of this machine's collector, if its owner asks."""
    path = data_dir_of(environment) / FILE_NAME
    try:
        return identity_file.read(path)
    except (OSError, ValueError):
        return None


def _read(path: Path) -> Identity:
    try:
        return identity_file.read(path)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}", hint="see --identity") from error
    except ValueError as error:
        raise SettingsError(str(error), hint="`isochrone join` writes such a file") from error
