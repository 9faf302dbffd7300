from contextlib import suppress
from pathlib import Path

import click

from isochrone_agent.cli import options
from isochrone_agent.plan.plan_watcher import pinned_key
from isochrone_agent.settings import default_data_dir
from isochrone_common import identity_file
from isochrone_common.cli import join_command
from isochrone_common.cli.command_line import example
from isochrone_common.cli.join_command import JoinRequest
from isochrone_common.identity_file import Identity
from isochrone_wire.operations import Role


@click.command("join", epilog=example("isochrone-agent join collector.example:4600 --token isochrone-join-…"))
@join_command.options
@click.option(
    "--plan-key",
    metavar="KEY",
    help="The public key of `isochrone-collector plan key`: refuse plans that are not signed with it."
    "  [default: the key of the earlier identity]",
)
@options.data_dir
def command(*, request: JoinRequest, plan_key: str | None, data_dir: str | None) -> None:
    """Trade a one-time token for this machine's identity as a vantage of the collector at ADDRESS.

    The collector's certificate is compared with the fingerprint in the token before anything is sent. The identity is
    stored in the data folder, readable by its owner only; `run` finds it there. Joining again replaces it, and a
    running agent takes over the new one.
    """
    folder = Path(data_dir) if data_dir else default_data_dir(None)
    path = folder / identity_file.FILE_NAME
    earlier: Identity | None = None
    with suppress(OSError, ValueError):
        earlier = identity_file.read(path)
    if plan_key:
        pinned_key(plan_key)  # raises an error if plans cannot be verified with it
    joined = join_command.join(
        request,
        path,
        roles={Role.VANTAGE},
        elsewhere="--data-dir FOLDER",
        own_folder=True,
        plan_key=plan_key or (earlier.plan_key if earlier else None),
    )
    click.echo(f"joined {joined.address} as vantage {joined.name} in {joined.region}")
    click.echo(f"identity: {path}" + (" (replaced)" if earlier else ""))
    if earlier is not None and earlier.name != joined.name:
        click.echo(f"note: this was vantage {earlier.name}; waiting samples will be delivered as {joined.name}")
    option = "" if folder == default_data_dir(None) else f" --data-dir {folder}"
    click.echo(f"next: isochrone-agent run{option}")
