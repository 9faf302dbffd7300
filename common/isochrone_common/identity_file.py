"""The identity of a client: the collector's address, how to verify it, and the credential obtained by joining.

The file `identity.json` is readable by its owner only and replaced atomically, so that a reader sees the old file or
the new one.

In the last third of the lifetime of a credential the holder requests its successor. The collector returns the same one
until that is used, and ends the earlier credential only then: a crash or a lost reply at any point leaves the holder
with a valid credential. A holder that has pinned the collector's certificate also pins the one that the collector will
present next.
"""

import json
import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isochrone_common.address import DEFAULT_HTTP_PORT, Address, parse_address
from isochrone_common.credentials import fingerprint_of, parse_credential
from isochrone_common.files import replace_file
from isochrone_common.trust import PLAIN, ClientCertificate, Trust

if TYPE_CHECKING:
    from isochrone_wire.operations import Role
    from isochrone_wire.v1 import fleet_pb2

FILE_NAME = "identity.json"
CHECK_EVERY_SECONDS = 3600.0
_CALL_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The identity of a client at one collector. `region` is set for a vantage only; the instants of expiry and renewal
    for a credential with a lifetime only. `plan_key` is the public key by which plans must be signed, if any.
    `http_port` is the port of the collector's HTTP interface; 0 if it stated none.
    """

    address: Address
    name: str
    role: "Role"
    trust: Trust = PLAIN
    region: str | None = None
    credential: str = field(repr=False)
    expires_at: int | None = None
    renew_at: int | None = None
    plan_key: str | None = None
    http_port: int = 0

    @property
    def http_address(self) -> Address:
        """The address of the collector's HTTP interface."""
        return Address(self.address.host, self.http_port or DEFAULT_HTTP_PORT)


# The parts of the file that are fields of `Identity`, and of `Trust`.
_PLAIN_FIELDS = ("name", "region", "credential", "expires_at", "renew_at", "plan_key")
_TRUST_FIELDS = {
    "tls": "tls",
    "certificate": "roots",
    "server_name": "server_name",
    "next_certificate": "next_certificate",
}


def to_text(identity: Identity) -> str:
    """Return the identity as the text of `identity.json`."""
    trust, client = identity.trust, identity.trust.client
    document: dict[str, Any] = {
        "address": str(identity.address),
        "role": identity.role.value,
        **{name: getattr(identity, name) for name in _PLAIN_FIELDS},
        **{name: getattr(trust, field) for name, field in _TRUST_FIELDS.items()},
        "http_port": identity.http_port or None,
        "client_certificate": str(client.certificate) if client else None,
        "client_key": str(client.key) if client else None,
    }
    return json.dumps({key: value for key, value in document.items() if value is not None}, indent=2) + "\n"


def parse(text: str) -> Identity:
    """Parse an identity. Raises `ValueError` with a message that does not contain the credential."""
    from isochrone_wire.operations import Role  # noqa: PLC0415  # every start of a command would load its module

    try:
        document = json.loads(text)
        trust = {field: document[name] for name, field in _TRUST_FIELDS.items() if name in document}
        identity = Identity(
            address=parse_address(document["address"]),
            name=str(document["name"]),
            role=Role(document["role"]),
            region=document.get("region"),
            trust=Trust(**trust, client=_client(document)),
            credential=str(document["credential"]),
            expires_at=_whole(document, "expires_at"),
            renew_at=_whole(document, "renew_at"),
            plan_key=document.get("plan_key"),
            http_port=_whole(document, "http_port") or 0,
        )
    except KeyError as error:
        raise ValueError(f"{error.args[0]!r} is missing") from None
    except (json.JSONDecodeError, TypeError, AttributeError):
        raise ValueError("not an identity file") from None
    parse_credential(identity.credential)
    return identity


def read(path: Path) -> Identity:
    """Read an identity file. Raises `OSError`, and `ValueError` with a message that contains the path."""
    try:
        return parse(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} cannot be used: {error}") from error


def write(path: Path, identity: Identity) -> None:
    """Write the identity file atomically, readable by its owner only; create the folder. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(path, to_text(identity).encode())


def _whole(document: dict[str, Any], name: str) -> int | None:
    return None if document.get(name) is None else int(document[name])


def _client(document: dict[str, Any]) -> ClientCertificate | None:
    paths = document.get("client_certificate"), document.get("client_key")
    if paths == (None, None):
        return None
    if None in paths:
        raise ValueError("client_certificate and client_key must be given together")
    return ClientCertificate(certificate=Path(str(paths[0])), key=Path(str(paths[1])))


def is_due(identity: Identity, *, now_at: int) -> bool:
    """Return whether the credential is in the last third of its lifetime."""
    return identity.trust.tls and identity.renew_at is not None and now_at >= identity.renew_at


def has_other_pins(identity: Identity, fingerprints: Sequence[bytes]) -> bool:
    """Return whether the identity has pinned other certificates than those with these fingerprints."""
    pins = identity.trust.pins
    return bool(pins and fingerprints) and [fingerprint_of(pin) for pin in pins] != list(fingerprints)


def renewed(identity: Identity, response: "fleet_pb2.Renewed") -> Identity:
    """Return the identity after a response. Raises `ValueError` if the response cannot be used."""
    from isochrone_wire import codec  # noqa: PLC0415  # as above
    from isochrone_wire.operations import Renewed  # noqa: PLC0415  # as above

    reply = codec.decode(Renewed, response)
    if reply.credential is not None:
        parse_credential(reply.credential)
        identity = replace(identity, credential=reply.credential, expires_at=reply.expires_at, renew_at=reply.renew_at)
    identity = replace(identity, http_port=reply.http_port)
    if identity.trust.pins and reply.certificates:
        for certificate in reply.certificates:
            fingerprint_of(certificate)
        now, coming = (*reply.certificates, None)[:2]
        identity = replace(identity, trust=replace(identity.trust, roots=now, next_certificate=coming))
    return identity


def store(path: Path, earlier: Identity, later: Identity) -> bool:
    """Replace `earlier` by `later`; return false if the file has another identity. Raises `OSError`, `ValueError`."""
    if read(path).credential not in (earlier.credential, later.credential):
        return False
    write(path, later)
    return True


def renew_if_due(path: Path, identity: Identity) -> Identity:
    """Renew the identity if due, and ask for certificates once an hour. On a failure the present one stays."""
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
    from isochrone_wire.v1 import fleet_pb2, fleet_pb2_grpc  # noqa: PLC0415

    with open_channel(identity.address, identity.trust, identity.credential) as channel:
        try:
            request = fleet_pb2.RenewRequest(credential=is_due(identity, now_at=now_at))
            response = fleet_pb2_grpc.FleetStub(channel).Renew(request, timeout=_CALL_SECONDS)
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
