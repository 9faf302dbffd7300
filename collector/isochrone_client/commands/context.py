from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from isochrone_client import completion, configuration, terminal
from isochrone_client.commands import options
from isochrone_client.configuration import Configuration, Context, Defaults
from isochrone_client.errors import AddressError, ConfigurationError
from isochrone_client.formats import UNKNOWN
from isochrone_client.render import OUTPUTS
from isochrone_client.render.page import Column, Field, Page
from isochrone_client.terminal import Output
from isochrone_common import identity_file
from isochrone_common.address import DEFAULT_HTTP_PORT, parse_local_address
from isochrone_common.cli import join_command
from isochrone_common.cli.command_line import CommandGroup, Seconds, example, output_option
from isochrone_common.cli.join_command import JoinRequest
from isochrone_wire.operations import Role

SCHEMA = "isochrone.contexts/1"
_FIELDS = ("name", "current", "collector", "identity", "output", "timeout", "baseline")


def contexts_page(contexts: Iterable[Context], found: Configuration) -> Page[dict[str, Any]]:
    """The page of contexts of a configuration; timeouts are in seconds, and a default that is not set is `None`."""
    rows = tuple(
        {
            "name": one.name,
            "current": one.name == found.current,
            "collector": one.collector,
            "identity": str(one.identity) if one.identity else None,
            **asdict(one.defaults.over(found.defaults)),
        }
        for one in contexts
    )

    def defaults(row: dict[str, Any]) -> str:
        set_ones = (f"{name}={row[name]}" for name in ("output", "timeout", "baseline") if row[name] is not None)
        return " ".join(set_ones) or UNKNOWN

    return Page(
        schema=SCHEMA,
        title="contexts",
        fields=tuple(Field(header=name, path=(name,)) for name in _FIELDS),
        columns=(
            Column("", lambda row: "*" if row["current"] else ""),
            Column("name", lambda row: str(row["name"]), wide=True),
            Column("collector", lambda row: str(row["collector"]), wide=True),
            Column("identity", lambda row: row["identity"] or UNKNOWN, wide=True, priority=2),
            Column("defaults", defaults, prose=True, priority=1),
        ),
        rows=rows,
        record=lambda row: row,
        notes=(*(("*: the current context",) if any(row["current"] for row in rows) else ()), f"{UNKNOWN}: not set"),
    )


_ADD = "isochrone context add prod collector.example --identity prod.json --baseline us-east-2"
_output = output_option(*OUTPUTS)
_DEFAULT = "default"


@click.group(
    "context",
    cls=CommandGroup,
    epilog=example(_ADD, "isochrone context use prod", "isochrone targets --collector prod"),
)
def context() -> None:
    """Name collectors, and choose the one to ask by default.

    A context has a collector's address, an identity file and defaults of options. They are in the file config.toml in
    $XDG_CONFIG_HOME/isochrone, by default ~/.config/isochrone. --collector takes a context's name, too.

    \b
    The first of these that is set counts:
      1. options of the command line
      2. environment variables: ISOCHRONE_COLLECTOR, ISOCHRONE_IDENTITY
      3. the context, then [defaults] of the file: output, timeout (seconds), baseline
      4. the defaults that --help shows
    """


@context.command("list", epilog=example("isochrone context list"))
@_output
def list_(*, output: str) -> None:
    """List the contexts."""
    found = configuration.read()
    terminal.write(contexts_page(found.contexts.values(), found), Output(format=output))
    if not found.contexts:
        click.echo("note: no context yet\nhint: isochrone context add NAME HOST:PORT, or isochrone join", err=True)


@context.command("use", epilog=example("isochrone context use prod"))
@click.argument("name", shell_complete=completion.contexts)
def use(*, name: str) -> None:
    """Make a context the current one, which commands ask by default."""
    found = configuration.read()
    chosen = found.named(name)
    configuration.write(found.including(chosen, current=True))
    click.echo(f"current context: {name}, {chosen.collector}")


@context.command("add", epilog=example(_ADD))
@click.argument("name")
@click.argument("collector", metavar="HOST:PORT")
@click.option(
    "--identity",
    type=click.Path(path_type=Path, dir_okay=False, exists=True, resolve_path=True),
    help="Identity file, as `isochrone join` wrote it.",
)
@click.option("--baseline", metavar="REGION", help="Default of --baseline.")
@click.option("--timeout", type=Seconds(0.1, 3600), metavar="SECONDS", help="Default of --timeout.")
@click.option("--use", is_flag=True, help="Make it the current context, as the first one is anyway.")
@click.option("--replace", is_flag=True, help="Replace the context of that name.")
def add(
    *,
    name: str,
    collector: str,
    identity: Path | None,
    baseline: str | None,
    timeout: float | None,
    use: bool,
    replace: bool,
) -> None:
    """Add a context. `isochrone join` adds one, too."""
    found = configuration.read()
    if name in found.contexts and not replace:
        raise ConfigurationError(
            f"the context {name!r} exists: {found.contexts[name].collector}", hint="pass --replace, or another name"
        )
    defaults = Defaults(baseline=baseline, timeout=timeout)
    try:
        address = str(parse_local_address(collector, default_port=DEFAULT_HTTP_PORT))
    except ValueError as error:
        raise AddressError(str(error), hint="for example: isochrone context add prod collector.example") from error
    added = Context(name=configuration.check_name(name), collector=address, identity=identity, defaults=defaults)
    updated = found.including(added, current=use)
    path = configuration.write(updated)
    click.echo(f"context {name}: {added.collector}" + (" (current)" if updated.current == name else ""))
    click.echo(f"configuration: {path}")


@context.command("remove", epilog=example("isochrone context remove prod"))
@click.argument("name", shell_complete=completion.contexts)
def remove(*, name: str) -> None:
    """Remove a context. Its identity file stays."""
    found = configuration.read()
    removed, updated = found.named(name), found.without(name)
    configuration.write(updated)
    click.echo(f"removed context {name}")
    if removed.identity is not None:
        click.echo(f"its identity file stays: {removed.identity}")
    if updated.current is None and updated.contexts:
        click.echo("no context is current now; choose one with `isochrone context use NAME`")


@context.command("show", epilog=example("isochrone context show", "isochrone context show prod --output json"))
@click.argument("name", required=False, shell_complete=completion.contexts)
@_output
def show(*, name: str | None, output: str) -> None:
    """Show one context, by default the current one, with its defaults."""
    found = configuration.read()
    if name is None and found.current is None:
        raise ConfigurationError("no context is current", hint="choose one with `isochrone context use NAME`")
    terminal.write(contexts_page([found.named(name or str(found.current))], found), Output(format=output))


@options.command(
    "join",
    "isochrone join collector.example:4600 --token isochrone-join-…",
    "isochrone join eu.example:4600 --token isochrone-join-… --context eu",
)
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
    help="The identity file to write.  [default: identity.json in ~/.config/isochrone, NAME.identity.json for others]",
)
def join(*, request: JoinRequest, context: str, identity: Path | None) -> None:
    """Trade a join token for access to a collector.

    The collector's certificate is compared with the fingerprint in the token before anything is sent. The identity is
    written to a file that only you can read, and a context for it becomes the current one, so that every other command
    asks this collector. Joining again with the same context replaces both.
    """
    configured = configuration.read()
    name = identity_file.FILE_NAME if configuration.check_name(context) == _DEFAULT else f"{context}.identity.json"
    path = (identity or configuration.folder() / name).absolute()
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
