"""`vantage` and `access`: ask a running collector to invite somebody, to list who may come in, to shut somebody out."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc

from isochrone_collector.cli import operator_channel
from isochrone_collector.cli.operator_channel import TIMEOUT_S, translated
from isochrone_collector.errors import SettingsError
from isochrone_collector.settings import parse_address
from isochrone_wire import codec
from isochrone_wire.address import Address
from isochrone_wire.json_format import rfc3339, to_json_value
from isochrone_wire.operations import Access, AccessList, Invitation, Role
from isochrone_wire.v1 import operations_pb2 as messages
from isochrone_wire.v1.operations_pb2_grpc import OperationsStub

Answer = TypeVar("Answer")

_PROGRAM_OF = {Role.VANTAGE: "isochrone-agent", Role.READER: "isochrone", Role.OPERATOR: "isochrone"}
_HEADINGS = ("name", "role", "region", "state", "since", "ends", "last used")


def invite(
    channel: grpc.Channel,
    *,
    name: str,
    role: Role | None,
    region: str | None = None,
    expires_us: int,
    overlap_us: int = 0,
    rotation: bool = False,
) -> Invitation:
    """A join token. Raises `CollectorError`."""
    request = messages.InviteRequest(
        name=name,
        role=role.value if role else "",
        region=region,
        expires_us=expires_us,
        overlap_us=overlap_us,
        rotation=rotation,
    )
    return codec.decode(Invitation, _asked(OperationsStub(channel).Invite, request))


def listed(channel: grpc.Channel, roles: Sequence[Role]) -> list[Access]:
    """Credentials and open invitations of these roles, by name. Raises `CollectorError`."""
    response = _asked(OperationsStub(channel).ListAccess, messages.ListAccessRequest())
    found = codec.decode(AccessList, response).access
    return sorted((one for one in found if one.role in roles), key=lambda one: (one.name, one.created_at))


def revoke(channel: grpc.Channel, name: str, roles: Sequence[Role]) -> int:
    """Shut a name out; how many credentials and invitations ended.

    Raises `SettingsError` when the name is of somebody in another role, and `CollectorError`.
    """
    response = _asked(OperationsStub(channel).ListAccess, messages.ListAccessRequest())
    others = [one for one in codec.decode(AccessList, response).access if one.name == name and one.role not in roles]
    if others:
        group = "vantage" if others[0].role is Role.VANTAGE else "access"
        raise SettingsError(f"{name!r} is a {others[0].role} here", hint=f"isochrone-collector {group} revoke {name}")
    return int(_asked(OperationsStub(channel).Revoke, messages.RevokeRequest(name=name)).revoked)


def shown_address(collector: str | None, identity: Path | None, told: str | None) -> Address:
    """The address that whoever joins is to be told: `told`, else the one that this command uses itself.

    Raises `SettingsError`.
    """
    return parse_address(told) if told else operator_channel.address_of(collector, identity)


def join_line(role: Role, token: str, address: Address) -> str:
    """What whoever joins types."""
    return f"{_PROGRAM_OF[role]} join {address} --token {token}"


def invitation_as_json(invitation: Invitation, *, name: str, role: Role, address: Address) -> str:
    """The invitation for a program, with the line that whoever joins types as `command`."""
    document = {
        "schema": "isochrone.invitation/1",
        "name": name,
        "role": role.value,
        "address": str(address),
        **to_json_value(invitation),
        "command": join_line(role, invitation.token, address),
    }
    return json.dumps(document, indent=2)


def invitation_as_text(invitation: Invitation, *, name: str, role: Role, address: Address) -> str:
    """The invitation for a person."""
    lines = [
        f"{name} may join until {rfc3339(invitation.expires_at)}, once. Where it runs:",
        "",
        f"  {join_line(role, invitation.token, address)}",
    ]
    if address.is_loopback:
        lines += [
            "",
            "From another machine, put the collector's address there in place of the loopback one (--address).",
        ]
    return "\n".join(lines)


def access_as_json(found: Sequence[Access]) -> str:
    """Credentials and invitations for a program, their keys those of `Access`."""
    return json.dumps({"schema": "isochrone.access/1", "access": [to_json_value(one) for one in found]}, indent=2)


def access_as_text(found: Sequence[Access]) -> str:
    """Credentials and invitations as a table for a person."""
    if not found:
        return "nobody"
    rows = [_HEADINGS, *(_row(one) for one in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    return "\n".join(_line(row, widths) for row in rows)


def _row(one: Access) -> tuple[str, ...]:
    instants = (one.created_at, one.revoked_at or one.expires_at, one.last_used_at)
    return (one.name, one.role.value, one.region or "-", one.state.value, *_minutes(instants))


def _minutes(instants: Sequence[int | None]) -> Iterator[str]:
    yield from (rfc3339(at)[:16].replace("T", " ") if at else "-" for at in instants)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _asked(method: Callable[..., Answer], request: Any) -> Answer:  # noqa: ANN401  # any message of the service
    try:
        return method(request, timeout=TIMEOUT_S)
    except grpc.RpcError as error:
        raise translated(error) from error
