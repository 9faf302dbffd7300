"""Renewal of an identity over the authenticated channel, by its holder.

In the last third of the lifetime of a credential the holder requests its successor. The collector returns the same one
until that is used, and ends the earlier credential only then: a crash or a lost reply at any point leaves the holder
with a valid credential. A holder that has pinned the collector's certificate also pins the one that the collector will
present next.
"""

import os
import stat
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from isochrone_common import identity_file
from isochrone_common.credentials import fingerprint_of, parse_credential
from isochrone_common.identity_file import Identity

if TYPE_CHECKING:
    from isochrone_wire.v1 import fleet_pb2

CHECK_EVERY_SECONDS = 3600.0
_CALL_SECONDS = 3.0


def request_of(identity: Identity, *, now_at: int) -> "fleet_pb2.RenewRequest":
    """Return the request, which asks for a successor of the credential only when that is due."""
    from isochrone_wire.v1 import fleet_pb2  # noqa: PLC0415  # every start of a command would load its module

    return fleet_pb2.RenewRequest(credential=is_due(identity, now_at=now_at))


def is_due(identity: Identity, *, now_at: int) -> bool:
    """Return whether the credential is in the last third of its lifetime."""
    return identity.trust.tls and identity.renew_at is not None and now_at >= identity.renew_at


def has_other_pins(identity: Identity, fingerprints: Sequence[bytes]) -> bool:
    """Return whether the identity has pinned other certificates than those with these fingerprints."""
    pins = identity.trust.pins
    return bool(pins and fingerprints) and [fingerprint_of(pin) for pin in pins] != list(fingerprints)


def renewed(identity: Identity, response: "fleet_pb2.RenewResponse") -> Identity:
    """Return the identity after a response. Raises `ValueError` if the response cannot be used."""
    from isochrone_wire import codec  # noqa: PLC0415  # as above
    from isochrone_wire.operations import Renewed  # noqa: PLC0415  # as above

    answer = codec.decode(Renewed, response)
    if answer.credential is not None:
        parse_credential(answer.credential)
        identity = replace(
            identity, credential=answer.credential, expires_at=answer.expires_at, renew_at=answer.renew_at
        )
    identity = replace(identity, http_port=answer.http_port)
    if identity.trust.pins and answer.certificates:
        for certificate in answer.certificates:
            fingerprint_of(certificate)
        now, coming = (*answer.certificates, None)[:2]
        identity = replace(identity, trust=replace(identity.trust, roots=now, next_certificate=coming))
    return identity


def store(path: Path, earlier: Identity, later: Identity) -> bool:
    """Replace `earlier` in the file by `later`; return false if the file has another identity by now, from `join`.

    Raises `OSError` and `ValueError`.
    """
    if identity_file.read(path).credential not in (earlier.credential, later.credential):
        return False
    identity_file.write(path, later)
    return True


def renew_if_due(path: Path, identity: Identity) -> Identity:
    """Renew the identity in the file of a command if that is due, and ask for new certificates at most once an hour.

    Return the identity to use from now on. A failure is no failure of the command: the present credential stays valid,
    and the next command tries again.
    """
    now_at = time.time_ns() // 1000
    try:
        if not _is_wanted(path, identity, now_at):
            return identity
        later = _ask(identity, now_at)
        if later is None:
            return identity
        if later == identity:
            os.utime(path)
        elif not store(path, identity, later):
            return identity
    except (OSError, ValueError):
        return identity
    return later


def _ask(identity: Identity, now_at: int) -> Identity | None:
    """Ask the collector for renewal; return `None` if it does not answer. Raises `ValueError`."""
    # Every start of a command would load these modules, for a call that is due once an hour.
    import grpc  # noqa: PLC0415

    from isochrone_common.channel import open_channel  # noqa: PLC0415
    from isochrone_wire.v1.fleet_pb2_grpc import FleetStub  # noqa: PLC0415

    with open_channel(identity.address, identity.trust, identity.credential) as channel:
        try:
            response = FleetStub(channel).Renew(request_of(identity, now_at=now_at), timeout=_CALL_SECONDS)
        except grpc.RpcError:
            return None
    return renewed(identity, response)


def _is_wanted(path: Path, identity: Identity, now_at: int) -> bool:
    """Return whether a call is due, and this user owns the file: a file that another user writes changes its owner."""
    status = path.stat()
    if status.st_uid != os.geteuid() or not status.st_mode & stat.S_IWUSR:
        return False
    is_stale = bool(identity.trust.pins) and time.time() - status.st_mtime > CHECK_EVERY_SECONDS
    return is_stale or is_due(identity, now_at=now_at)
