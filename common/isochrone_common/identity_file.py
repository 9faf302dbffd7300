"""The identity file: the collector's address, how to verify it, and the credential obtained by joining.

The file `identity.json` is readable by its owner only and replaced atomically, so that a reader sees the old file or
the new one.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isochrone_common.address import DEFAULT_HTTP_PORT, Address, parse_address
from isochrone_common.credentials import parse_credential
from isochrone_common.files import replace_file
from isochrone_common.trust import PLAIN, ClientCertificate, Trust

if TYPE_CHECKING:
    from isochrone_wire.operations import Role

FILE_NAME = "identity.json"


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


def to_text(identity: Identity) -> str:
    """Return the identity as the text of `identity.json`."""
    trust, client = identity.trust, identity.trust.client
    document: dict[str, Any] = {
        "address": str(identity.address),
        "name": identity.name,
        "role": identity.role.value,
        "region": identity.region,
        "tls": trust.tls,
        "certificate": trust.roots,
        "server_name": trust.server_name,
        "next_certificate": trust.next_certificate,
        "credential": identity.credential,
        "expires_at": identity.expires_at,
        "renew_at": identity.renew_at,
        "plan_key": identity.plan_key,
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
        client = _client(document)
        identity = Identity(
            address=parse_address(document["address"]),
            name=str(document["name"]),
            role=Role(document["role"]),
            region=document.get("region"),
            trust=Trust(
                tls=document.get("tls", True),
                roots=document.get("certificate"),
                server_name=document.get("server_name"),
                next_certificate=document.get("next_certificate"),
                client=client,
            ),
            credential=str(document["credential"]),
            expires_at=_instant(document, "expires_at"),
            renew_at=_instant(document, "renew_at"),
            plan_key=document.get("plan_key"),
            http_port=_instant(document, "http_port") or 0,
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


def _instant(document: dict[str, Any], name: str) -> int | None:
    """Return microseconds since the Unix epoch, if there are any."""
    return None if document.get(name) is None else int(document[name])


def _client(document: dict[str, Any]) -> ClientCertificate | None:
    paths = document.get("client_certificate"), document.get("client_key")
    if paths == (None, None):
        return None
    if None in paths:
        raise ValueError("client_certificate and client_key must be given together")
    return ClientCertificate(certificate=Path(str(paths[0])), key=Path(str(paths[1])))
