from collections.abc import Callable
from typing import Any

import click

from isochrone_collector.cli import operator_client
from isochrone_collector.clock import now_at
from isochrone_collector.errors import SettingsError
from isochrone_collector.settings import DEFAULT_LISTEN, parse_address
from isochrone_common.cli.command_line import Choice, example, print_json, table_or_json
from isochrone_wire.json_format import minute, rfc3339, to_json_value
from isochrone_wire.operations import Access, AuditTrail, Invitation, Revoked, Role
from isochrone_wire.text import aligned

AUDIT_SCHEMA = "isochrone.audit/1"
_MAX_ENTRIES = 10_000
_PROGRAM_OF = {Role.VANTAGE: "isochrone-agent", Role.READER: "isochrone", Role.OPERATOR: "isochrone"}
_HEADINGS = ("name", "role", "region", "state", "since", "ends", "last used")
_AUDIT_HEADINGS = ("at", "principal", "address", "action", "target")
_ADD_READER = example("isochrone-collector access add ida --role reader --address collector.example:4600")
_ADD_VANTAGE = example("isochrone-collector vantage add sg-1 --region ap-southeast-1 --address collector.example:4600")
_WARNING = "Revoke every join token, and the credentials of all other readers and operators"
_REVIEW = """
The vantages below have access. Revoke those that you had revoked since the backup:
isochrone-collector vantage revoke NAME. Invite those that joined since then again.
"""

Command = Callable[..., None]


def _lifetime(context: click.Context, parameter: click.Parameter, written: str | None) -> int | None:
    if written is None:
        return None
    return 0 if written == "none" else operator_client.microseconds(context, parameter, written)


def _invitation_options(command: Command) -> Command:
    """The options of every command that makes a join token."""
    for option in (
        operator_client.operator_options,
        table_or_json,
        click.option(
            "--address",
            metavar="HOST:PORT",
            help="The collector's address where the line will be run.  [default: the address of this command]",
        ),
        operator_client.duration_option("--expires", "expires_us", "24h", "How long the token is valid."),
        click.option(
            "--lifetime",
            "lifetime_us",
            callback=_lifetime,
            metavar="DURATION",
            help="How long the credential is valid unless it is renewed, which agents and commands do by themselves; "
            "or `none`.  [default: 365d; 90d for an operator]",
        ),
    ):
        command = option(command)
    return command


@click.group(epilog=_ADD_VANTAGE)
def vantage() -> None:
    """Let agents in, one name each, and shut them out."""


@vantage.command("add", epilog=_ADD_VANTAGE)
@click.argument("name")
@click.option("--region", required=True, metavar="NAME", help="Region of the vantage, like ap-southeast-1.")
@_invitation_options
def add_vantage(name: str, **more: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Make a join token for a new vantage.

    It prints the line to run on the agent's machine. The token is valid once.
    """
    _print_invitation(name=name, role=Role.VANTAGE, **more)


@vantage.command(epilog=example("isochrone-collector vantage rotate sg-1 --overlap 1h"))
@click.argument("name")
@operator_client.duration_option(
    "--overlap", "overlap_us", "1h", "How long the present credentials stay valid after the token has been used."
)
@_invitation_options
def rotate(name: str, **more: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Make a join token for a new credential of a vantage.

    The old credential stays valid for the overlap.
    """
    _print_invitation(name=name, role=Role.VANTAGE, rotation=True, **more)


@click.group(epilog=_ADD_READER)
def access() -> None:
    """Let readers and operators in, and shut them out."""


@access.command(epilog=_ADD_READER)
@click.argument("name")
@click.option(
    "--role",
    type=Choice([Role.READER.value, Role.OPERATOR.value]),
    required=True,
    help="A reader may query; an operator may also apply plans and let others in.",
)
@_invitation_options
def add(name: str, *, role: str, **more: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Make a join token for a person or a program.

    It prints the line to run on their machine. The token is valid once.
    """
    _print_invitation(name=name, role=Role(role), **more)


def _listing(group: str, names: str, *roles: Role) -> click.Command:
    text = f"List the {names} that have access or are invited.\n\nEnded credentials are listed too."

    @click.command("list", epilog=example(f"isochrone-collector {group} list"), help=text)
    @table_or_json
    @operator_client.operator_options
    def command(*, client: operator_client.OperatorClient, output: str) -> None:
        _print_access(client, *roles, output=output)

    return command


def _revoking(group: str, one: str, who: str, ends: str, *roles: Role) -> click.Command:
    text = f"Shut {who} out, within seconds.\n\n{ends}"

    @click.command("revoke", epilog=example(f"isochrone-collector {group} revoke {one}"), help=text)
    @click.argument("name")
    @operator_client.operator_options
    def command(name: str, *, client: operator_client.OperatorClient) -> None:
        _revoke(client, name, *roles)

    return command


vantage.add_command(_listing("vantage", "vantages", Role.VANTAGE))
access.add_command(_listing("access", "readers and operators", Role.READER, Role.OPERATOR))
_ENDS = "All its credentials and open invitations end; its samples stay."
vantage.add_command(_revoking("vantage", "sg-1", "a vantage", _ENDS, Role.VANTAGE))
_ENDS = "All credentials and open invitations of that name end."
access.add_command(_revoking("access", "ida", "a reader or an operator", _ENDS, Role.READER, Role.OPERATOR))


@click.command(epilog=example("isochrone-collector restored"))
@click.option("--vantages", is_flag=True, help="Revoke the credentials of vantages too: every agent must join again.")
@operator_client.yes_option
@operator_client.operator_options
def restored(*, vantages: bool, yes: bool, client: operator_client.OperatorClient) -> None:
    """Void what a restored database has revived.

    A backup knows neither the tokens that were used nor the credentials that were revoked after it. So every join token
    ends, and so do the credentials of readers and operators, except your own. Agents keep theirs, unless --vantages is
    given, and send again what the database has lost.
    """
    operator_client.confirm(_WARNING + (", and of all vantages" if vantages else "") + "?", yes=yes)
    revoked = client.call("RecordRestore", Revoked, vantages=vantages)
    click.echo(f"revoked: {revoked.invitations} join tokens, {revoked.credentials} credentials")
    if not vantages:
        click.echo(_REVIEW)
        _print_access(client, Role.VANTAGE, output="table")


@click.command(epilog=example("isochrone-collector audit --since 30d --action access.revoke"))
@operator_client.duration_option("--since", "since_us", "7d", "Window.")
@click.option("--principal", default="", metavar="NAME", help="Only changes by this credential.")
@click.option("--action", default="", metavar="ACTION", help="Only this action, such as plan.apply or access.join.")
@click.option(
    "--limit", type=click.IntRange(1, _MAX_ENTRIES), default=100, show_default=True, help="Most changes to list."
)
@table_or_json
@operator_client.operator_options
def audit(
    *, since_us: int, principal: str, action: str, limit: int, output: str, client: operator_client.OperatorClient
) -> None:
    """List the changes that operators and joining machines made, newest first.

    The collector records each change in its transaction, with the name of the credential and the address that the call
    came from. The database refuses to change or remove what is recorded.
    """
    since_at = now_at() - since_us
    trail = client.call("ListAudit", AuditTrail, since_at=since_at, limit=limit, principal=principal, action=action)
    found = trail.entries
    if output == "json":
        print_json({"schema": AUDIT_SCHEMA, "entries": to_json_value(found)})
        return
    rows = [(rfc3339(one.at), one.principal, one.address or "-", one.action, one.target) for one in found]
    click.echo(aligned([_AUDIT_HEADINGS, *rows]) if rows else "none")
    if len(found) == limit:
        click.echo(f"note: only the newest {limit}; see --limit", err=True)


def _print_invitation(
    client: operator_client.OperatorClient,
    *,
    address: str | None,
    output: str,
    name: str,
    role: Role,
    **more: Any,  # noqa: ANN401  # what `OperatorClient.invite` takes besides
) -> None:
    """Make an invitation and print it with the line that uses it. Raises `CollectorError`."""
    where = parse_address(address) if address else client.address
    # Over the Unix socket nothing shows the address; agents do not join over it.
    where = parse_address(DEFAULT_LISTEN) if where.is_socket else where
    invitation = client.call("Invite", Invitation, name=name, role=role.value, **more)
    line = f"{_PROGRAM_OF[role]} join {where} --token {invitation.token}"
    if output == "json":
        head = {"schema": "isochrone.invitation/1", "name": name, "role": role.value, "address": str(where)}
        print_json({**head, **to_json_value(invitation), "command": line})
        return
    click.echo(f"{name} may join once, until {rfc3339(invitation.expires_at)}. Run on its machine:\n\n  {line}")
    if where.is_loopback:
        hint = "From another machine, use the collector's address there instead of the loopback one (--address)."
        click.echo(f"\n{hint}")


def _print_access(client: operator_client.OperatorClient, *roles: Role, output: str) -> None:
    """Print the credentials and open invitations of these roles. Raises `CollectorError`."""
    found = client.access(roles)
    if output == "json":
        print_json({"schema": "isochrone.access/1", "access": [to_json_value(one) for one in found]})
    else:
        click.echo(aligned([_HEADINGS, *(_row(one, now_at()) for one in found)]) if found else "none")


def _row(one: Access, at: int) -> tuple[str, ...]:
    instants = (one.created_at, one.revoked_at or one.expires_at, one.last_used_at)
    state = "expiring" if one.is_expiring(at) else one.state.value
    return (one.name, one.role.value, one.region or "-", state, *(minute(at) if at else "-" for at in instants))


def _revoke(client: operator_client.OperatorClient, name: str, *roles: Role) -> None:
    """Revoke all credentials and invitations of a name, and print their number. Raises `CollectorError`, and
    `SettingsError` for a name that has another role.
    """
    others = [one for one in client.access(tuple(Role)) if one.name == name and one.role not in roles]
    if others:
        group = "vantage" if others[0].role is Role.VANTAGE else "access"
        hint = f"isochrone-collector {group} revoke {name}"
        raise SettingsError(f"{name!r} has the role {others[0].role} here", hint=hint)
    revoked = client.call("Revoke", Revoked, name=name)
    ended = revoked.invitations + revoked.credentials
    click.echo(f"{name}: {ended} ended; this collector refuses it now, others of the database within seconds")
