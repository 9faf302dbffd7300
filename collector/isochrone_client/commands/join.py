"""`isochrone join`: trade a join token for access to a collector."""

from pathlib import Path

import click

from isochrone_client.address import default_identity_path
from isochrone_wire.cli import join_command
from isochrone_wire.cli.command_line import example
from isochrone_wire.cli.join_command import JoinRequest
from isochrone_wire.operations import Role


@click.command("join", epilog=example("isochrone join collector.example:4600 --token isochrone-join-…"))
@join_command.options
@click.option(
    "--identity",
    envvar="ISOCHRONE_IDENTITY",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The identity file to write.  [default: ~/.config/isochrone/identity.json]",
)
def join(*, request: JoinRequest, identity: Path | None) -> None:
    """Trade a join token for access to a collector.

    The collector's certificate is compared with the fingerprint in the token before anything is sent. The identity is
    written to a file that only you can read, and every other command finds it there. Joining again replaces it.
    """
    path = identity or default_identity_path()
    replaced = " (replaced)" if path.exists() else ""
    joined = join_command.join(request, path, roles={Role.READER, Role.OPERATOR}, elsewhere="--identity FILE")
    click.echo(f"joined {joined.address} as {joined.name}, {joined.role.value}")
    click.echo(f"identity: {path}{replaced}")
