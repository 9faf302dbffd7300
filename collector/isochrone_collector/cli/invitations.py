"""Invitations and credentials, for `vantage` and `access`: common options, and how they are printed."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click

from isochrone_collector.cli.operator_client import OperatorClient
from isochrone_collector.clock import now_at
from isochrone_collector.settings import DEFAULT_LISTEN, parse_address
from isochrone_common.address import Address
from isochrone_wire.durations import parse_us
from isochrone_wire.json_format import minute, rfc3339, to_json_value
from isochrone_wire.operations import Access, Invitation, Role
from isochrone_wire.text import aligned

_PROGRAM_OF = {Role.VANTAGE: "isochrone-agent", Role.READER: "isochrone", Role.OPERATOR: "isochrone"}
_HEADINGS = ("name", "role", "region", "state", "since", "ends", "last used")


def microseconds(_context: click.Context, _parameter: click.Parameter, written: str) -> int:
    """Parse the duration of an option. Raises `click.BadParameter`."""
    try:
        return parse_us(written)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _lifetime(context: click.Context, parameter: click.Parameter, written: str | None) -> int | None:
    if written is None:
        return None
    return 0 if written == "none" else microseconds(context, parameter, written)


expires = click.option(
    "--expires",
    "expires_us",
    callback=microseconds,
    default="24h",
    show_default=True,
    metavar="DURATION",
    help="How long the token is valid.",
)
overlap = click.option(
    "--overlap",
    "overlap_us",
    callback=microseconds,
    metavar="DURATION",
    default="1h",
    show_default=True,
    help="How long the present credentials stay valid after the token has been used.",
)
lifetime = click.option(
    "--lifetime",
    "lifetime_us",
    callback=_lifetime,
    metavar="DURATION",
    help="How long the credential is valid unless it is renewed, which agents and commands do by themselves; or `none`."
    "  [default: 365d; 90d for an operator]",
)
address = click.option(
    "--address",
    metavar="HOST:PORT",
    help="The collector's address where the line will be run.  [default: the address of this command]",
)


def print_invitation(
    client: OperatorClient,
    *,
    address: str | None,
    output: str,
    name: str,
    role: Role,
    **more: Any,  # noqa: ANN401  # what `OperatorClient.invite` takes besides
) -> None:
    """Make an invitation and print it with the line that uses it. Raises `CollectorError`."""
    where = parse_address(address) if address else client.address
    # Over the Unix socket nothing tells the address; agents do not join over it.
    where = parse_address(DEFAULT_LISTEN) if where.is_socket else where
    invitation = client.invite(name=name, role=role, **more)
    show = _invitation_as_json if output == "json" else _invitation_as_text
    click.echo(show(invitation, name=name, role=role, address=where))


def print_access(client: OperatorClient, *, output: str, roles: tuple[Role, ...]) -> None:
    """Print the credentials and open invitations of these roles. Raises `CollectorError`."""
    found = client.access(roles)
    click.echo(_access_as_json(found) if output == "json" else _access_as_text(found))


def revoke(client: OperatorClient, *, name: str, roles: tuple[Role, ...]) -> None:
    """Revoke a name and print the number of credentials that ended. Raises `CollectorError`."""
    revoked = client.revoke(name, roles)
    click.echo(f"{name}: {revoked} ended; this collector refuses it now, others of the database within seconds")


def _join_line(role: Role, token: str, address: Address) -> str:
    return f"{_PROGRAM_OF[role]} join {address} --token {token}"


def _invitation_as_json(invitation: Invitation, *, name: str, role: Role, address: Address) -> str:
    """The invitation as JSON, with the line to run as `command`."""
    document = {
        "schema": "isochrone.invitation/1",
        "name": name,
        "role": role.value,
        "address": str(address),
        **to_json_value(invitation),
        "command": _join_line(role, invitation.token, address),
    }
    return json.dumps(document, indent=2)


def _invitation_as_text(invitation: Invitation, *, name: str, role: Role, address: Address) -> str:
    lines = [
        f"{name} may join once, until {rfc3339(invitation.expires_at)}. Run on its machine:",
        "",
        f"  {_join_line(role, invitation.token, address)}",
    ]
    if address.is_loopback:
        hint = "From another machine, use the collector's address there instead of the loopback one (--address)."
        lines += ["", hint]
    return "\n".join(lines)


def _access_as_json(found: Sequence[Access]) -> str:
    """Credentials and invitations as JSON, their keys those of `Access`."""
    return json.dumps({"schema": "isochrone.access/1", "access": [to_json_value(one) for one in found]}, indent=2)


def _access_as_text(found: Sequence[Access]) -> str:
    return aligned([_HEADINGS, *(_row(one, now_at()) for one in found)]) if found else "none"


def _row(one: Access, at: int) -> tuple[str, ...]:
    instants = (one.created_at, one.revoked_at or one.expires_at, one.last_used_at)
    state = "expiring" if one.is_expiring(at) else one.state.value
    return (one.name, one.role.value, one.region or "-", state, *_minutes(instants))


def _minutes(instants: Sequence[int | None]) -> Iterator[str]:
    yield from (minute(at) if at else "-" for at in instants)
