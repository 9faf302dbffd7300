"""`isochrone-collector vantage`: which agents may come in."""

from typing import Any

import click

from isochrone_collector.cli import inviting
from isochrone_collector.cli.options import reaching
from isochrone_wire.operations import Role

_ROLES = (Role.VANTAGE,)


@click.group()
def vantage() -> None:
    """Let agents in, one name each, and shut them out.

    \b
    Example:
      isochrone-collector vantage add sg-1 --region ap-southeast-1 --address collector.example:4600
    """


@vantage.command()
@click.argument("name")
@click.option("--region", required=True, metavar="NAME", help="Region it stands in, like ap-southeast-1.")
@inviting.expires
@inviting.address
@inviting.output
@reaching
def add(name: str, **told: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Make a join token for a new vantage.

    It prints the line to run where the agent is. The token is good once.

    \b
    Example:
      isochrone-collector vantage add sg-1 --region ap-southeast-1 --address collector.example:4600
    """
    inviting.hand_over(name=name, role=Role.VANTAGE, **told)


@vantage.command("list")
@inviting.output
@reaching
def list_(**told: Any) -> None:  # noqa: ANN401  # options of many kinds
    """List the vantages that were let in or are invited.

    Those whose credential has ended are listed too.

    \b
    Example:
      isochrone-collector vantage list
    """
    inviting.show_list(roles=_ROLES, **told)


@vantage.command()
@click.argument("name")
@inviting.overlap
@inviting.expires
@inviting.address
@inviting.output
@reaching
def rotate(name: str, **told: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Make a join token for a new credential of a vantage.

    The old credential goes on for the overlap.

    \b
    Example:
      isochrone-collector vantage rotate sg-1 --overlap 1h
    """
    inviting.hand_over(name=name, role=Role.VANTAGE, rotation=True, **told)


@vantage.command()
@click.argument("name")
@reaching
def revoke(name: str, **told: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Shut a vantage out, effective in seconds.

    Every credential and open invitation of it ends; what it delivered stays.

    \b
    Example:
      isochrone-collector vantage revoke sg-1
    """
    inviting.shut_out(name=name, roles=_ROLES, **told)
