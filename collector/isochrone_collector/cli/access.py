"""`isochrone-collector access`: which readers and operators may come in."""

from typing import Any

import click

from isochrone_collector.cli import inviting
from isochrone_collector.cli.options import reaching
from isochrone_wire.operations import Role

_ROLES = (Role.READER, Role.OPERATOR)


@click.group()
def access() -> None:
    """Let readers and operators in, and shut them out.

    \b
    Example:
      isochrone-collector access add ida --role reader --address collector.example:4600
    """


@access.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([role.value for role in _ROLES]),
    required=True,
    help="A reader may ask; an operator may also apply plans and let others in.",
)
@inviting.expires
@inviting.address
@inviting.output
@reaching
def add(name: str, role: str, **told: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Make a join token for a person or a program.

    It prints the line to run where they are. The token is good once.

    \b
    Example:
      isochrone-collector access add ida --role reader --address collector.example:4600
    """
    inviting.hand_over(name=name, role=Role(role), **told)


@access.command("list")
@inviting.output
@reaching
def list_(**told: Any) -> None:  # noqa: ANN401  # options of many kinds
    """List the readers and operators let in or invited.

    Those whose credential has ended are listed too.

    \b
    Example:
      isochrone-collector access list
    """
    inviting.show_list(roles=_ROLES, **told)


@access.command()
@click.argument("name")
@reaching
def revoke(name: str, **told: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Shut a reader or an operator out, effective in seconds.

    Every credential and open invitation of theirs ends.

    \b
    Example:
      isochrone-collector access revoke ida
    """
    inviting.shut_out(name=name, roles=_ROLES, **told)
