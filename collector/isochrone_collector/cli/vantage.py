"""`isochrone-collector vantage`: credentials of agents."""

from typing import Any

import click

from isochrone_collector.cli import invitations
from isochrone_collector.cli.operator_client import OperatorClient, operator_options
from isochrone_common.cli.command_line import example, table_or_json
from isochrone_wire.operations import Role

_ROLES = (Role.VANTAGE,)
_EXAMPLE = example("isochrone-collector vantage add sg-1 --region ap-southeast-1 --address collector.example:4600")


@click.group(epilog=_EXAMPLE)
def vantage() -> None:
    """Let agents in, one name each, and shut them out."""


@vantage.command(epilog=_EXAMPLE)
@click.argument("name")
@click.option("--region", required=True, metavar="NAME", help="Region of the vantage, like ap-southeast-1.")
@invitations.lifetime
@invitations.expires
@invitations.address
@table_or_json
@operator_options
def add(name: str, **more: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Make a join token for a new vantage.

    It prints the line to run on the agent's machine. The token is valid once.
    """
    invitations.print_invitation(name=name, role=Role.VANTAGE, **more)


@vantage.command("list", epilog=example("isochrone-collector vantage list"))
@table_or_json
@operator_options
def list_(*, client: OperatorClient, output: str) -> None:
    """List the vantages that have access or are invited.

    Ended credentials are listed too.
    """
    invitations.print_access(client, output=output, roles=_ROLES)


@vantage.command(epilog=example("isochrone-collector vantage rotate sg-1 --overlap 1h"))
@click.argument("name")
@invitations.overlap
@invitations.lifetime
@invitations.expires
@invitations.address
@table_or_json
@operator_options
def rotate(name: str, **more: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Make a join token for a new credential of a vantage.

    The old credential stays valid for the overlap.
    """
    invitations.print_invitation(name=name, role=Role.VANTAGE, rotation=True, **more)


@vantage.command(epilog=example("isochrone-collector vantage revoke sg-1"))
@click.argument("name")
@operator_options
def revoke(name: str, *, client: OperatorClient) -> None:
    """Shut a vantage out, within seconds.

    All its credentials and open invitations end; its samples stay.
    """
    invitations.revoke(client, name=name, roles=_ROLES)
