"""`isochrone-collector access`: credentials of readers and operators."""

from typing import Any

import click

from isochrone_collector.cli import invitations
from isochrone_collector.cli.operator_client import OperatorClient, operator_options
from isochrone_common.cli.command_line import Choice, example, table_or_json
from isochrone_wire.operations import Role

_ROLES = (Role.READER, Role.OPERATOR)
_EXAMPLE = example("isochrone-collector access add ida --role reader --address collector.example:4600")


@click.group(epilog=_EXAMPLE)
def access() -> None:
    """Let readers and operators in, and shut them out."""


@access.command(epilog=_EXAMPLE)
@click.argument("name")
@click.option(
    "--role",
    type=Choice([role.value for role in _ROLES]),
    required=True,
    help="A reader may query; an operator may also apply plans and let others in.",
)
@invitations.lifetime
@invitations.expires
@invitations.address
@table_or_json
@operator_options
def add(name: str, *, role: str, **more: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Make a join token for a person or a program.

    It prints the line to run on their machine. The token is valid once.
    """
    invitations.print_invitation(name=name, role=Role(role), **more)


@access.command("list", epilog=example("isochrone-collector access list"))
@table_or_json
@operator_options
def list_(*, client: OperatorClient, output: str) -> None:
    """List the readers and operators that have access or are invited.

    Ended credentials are listed too.
    """
    invitations.print_access(client, output=output, roles=_ROLES)


@access.command(epilog=example("isochrone-collector access revoke ida"))
@click.argument("name")
@operator_options
def revoke(name: str, *, client: OperatorClient) -> None:
    """Shut a reader or an operator out, within seconds.

    All credentials and open invitations of that name end.
    """
    invitations.revoke(client, name=name, roles=_ROLES)
