"""`isochrone-collector restored`: run once after the database was restored from a backup."""

import click

from isochrone_collector.cli import invitations
from isochrone_collector.cli.confirmation import confirm, yes_option
from isochrone_collector.cli.operator_client import OperatorClient, operator_options
from isochrone_common.cli.command_line import example
from isochrone_wire.operations import Role

_WARNING = "Revoke every join token, and the credentials of all other readers and operators"
_REVIEW = """
The vantages below have access. Revoke those that you had revoked since the backup:
isochrone-collector vantage revoke NAME. Invite those that joined since then again.
"""


@click.command(epilog=example("isochrone-collector restored"))
@click.option("--vantages", is_flag=True, help="Revoke the credentials of vantages too: every agent must join again.")
@yes_option
@operator_options
def restored(*, vantages: bool, yes: bool, client: OperatorClient) -> None:
    """Void what a restored database has revived.

    A backup knows neither the tokens that were used nor the credentials that were revoked after it. So every join token
    ends, and so do the credentials of readers and operators, except your own. Agents keep theirs, unless --vantages is
    given, and send again what the database has lost.
    """
    confirm(_WARNING + (", and of all vantages" if vantages else "") + "?", yes=yes)
    revoked = client.record_restore(vantages=vantages)
    click.echo(f"revoked: {revoked.invitations} join tokens, {revoked.credentials} credentials")
    if not vantages:
        click.echo(_REVIEW)
        invitations.print_access(client, output="table", roles=(Role.VANTAGE,))
