"""What `vantage` and `access` have in common: options, and how an invitation is printed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from isochrone_collector.cli import access_client
from isochrone_collector.cli.operator_channel import operator_channel
from isochrone_collector.durations import parse_us
from isochrone_wire.operations import Role

Function = TypeVar("Function", bound=Callable[..., Any])


def _microseconds(_context: click.Context, _parameter: click.Parameter, written: str) -> int:
    try:
        return parse_us(written)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


expires = click.option(
    "--expires",
    "expires_us",
    callback=_microseconds,
    default="24h",
    show_default=True,
    metavar="DURATION",
    help="How long the token is good.",
)
overlap = click.option(
    "--overlap",
    "overlap_us",
    callback=_microseconds,
    metavar="DURATION",
    default="1h",
    show_default=True,
    help="How long the credentials there are stay good once the token has been used.",
)
address = click.option(
    "--address",
    metavar="HOST:PORT",
    help="The collector as whoever joins reaches it, for the line that is printed.  [default: as this command does]",
)
output = click.option(
    "--output", "-o", type=click.Choice(["table", "json"]), default="table", show_default=True, help="How to print."
)


def hand_over(
    *,
    collector: str | None,
    identity: Path | None,
    address: str | None,
    output: str,
    name: str,
    role: Role,
    **more: Any,  # noqa: ANN401  # what `admitting.invite` takes beside
) -> None:
    """Make an invitation and print it. Raises `CollectorError`."""
    where = access_client.shown_address(collector, identity, address)
    with operator_channel(collector, identity) as channel:
        invitation = access_client.invite(channel, name=name, role=role, **more)
    show = access_client.invitation_as_json if output == "json" else access_client.invitation_as_text
    click.echo(show(invitation, name=name, role=role, address=where))


def show_list(*, collector: str | None, identity: Path | None, output: str, roles: tuple[Role, ...]) -> None:
    """Print who may come in, in these roles. Raises `CollectorError`."""
    with operator_channel(collector, identity) as channel:
        found = access_client.listed(channel, roles)
    click.echo(access_client.access_as_json(found) if output == "json" else access_client.access_as_text(found))


def shut_out(*, collector: str | None, identity: Path | None, name: str, roles: tuple[Role, ...]) -> None:
    """Revoke a name and say so. Raises `CollectorError`."""
    with operator_channel(collector, identity) as channel:
        revoked = access_client.revoke(channel, name, roles)
    click.echo(f"{name}: {revoked} ended; it is shut out here now, and by other collectors of the database in seconds")
