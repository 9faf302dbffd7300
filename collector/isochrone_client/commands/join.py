"""`isochrone join`: trade a join token for access to a collector."""

from pathlib import Path

import click

from isochrone_client import configuration
from isochrone_client.address import default_identity_path
from isochrone_client.configuration import Context, Defaults
from isochrone_common.cli import join_command
from isochrone_common.cli.command_line import example
from isochrone_common.cli.join_command import JoinRequest
from isochrone_wire.operations import Role

_DEFAULT = "default"
_EXAMPLES = (
    "isochrone join collector.example:4600 --token isochrone-join-…",
    "isochrone join eu.example:4600 --token isochrone-join-… --context eu",
)


@click.command("join", epilog=example(*_EXAMPLES))
@join_command.options
@click.option(
    "--context",
    default=_DEFAULT,
    show_default=True,
    metavar="NAME",
    help="The context to add or replace, which becomes the current one; see `isochrone context`.",
)
@click.option(
    "--identity",
    envvar="ISOCHRONE_IDENTITY",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The identity file to write.  [default: identity.json in ~/.config/isochrone, NAME.identity.json for others]",
)
def join(*, request: JoinRequest, context: str, identity: Path | None) -> None:
    """Trade a join token for access to a collector.

    The collector's certificate is compared with the fingerprint in the token before anything is sent. The identity is
    written to a file that only you can read, and a context for it becomes the current one, so that every other command
    asks this collector. Joining again with the same context replaces both.
    """
    configured = configuration.read()
    path = (identity or _identity_path(configuration.check_name(context))).absolute()
    replaced = " (replaced)" if path.exists() else ""
    joined = join_command.join(request, path, roles={Role.READER, Role.OPERATOR}, elsewhere="--identity FILE")
    earlier = configured.contexts.get(context)
    added = Context(
        name=context,
        collector=str(joined.http_address),
        identity=path,
        defaults=earlier.defaults if earlier else Defaults(),
    )
    configuration.write(configured.including(added, current=True))
    click.echo(f"joined {joined.address} as {joined.name}, {joined.role.value}")
    click.echo(f"identity: {path}{replaced}")
    click.echo(f"current context: {context}")


def _identity_path(context: str) -> Path:
    return default_identity_path() if context == _DEFAULT else configuration.folder() / f"{context}.identity.json"
