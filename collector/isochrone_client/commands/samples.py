"""`isochrone samples`: single probes, on request those still to come, and all of them into a file."""

import click
from click.core import ParameterSource

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.commands.samples_export import export
from isochrone_client.pages import samples as sample_pages
from isochrone_client.sample_stream import SampleStream
from isochrone_client.terminal import Output
from isochrone_client.window import parse_window
from isochrone_wire.answers import Selection


@click.group(
    "samples",
    invoke_without_command=True,
    subcommand_metavar="[COMMAND] [ARGS]...",
    epilog=options.example("isochrone samples --region us-east-2 --limit 50"),
)
@click.option(
    "--limit", type=click.IntRange(min=1, max=10_000), default=20, show_default=True, help="How many of the newest."
)
@click.option("--follow", "-f", is_flag=True, help="Go on with new ones until interrupted; json gives one per line.")
@options.regions
@options.targets
@options.window
@options.reading
@options.verdict
@click.pass_context
def samples(
    context: click.Context,
    *,
    collector: Collector,
    timeout_us: int,
    output: Output,
    window: str,
    regions: tuple[str, ...],
    targets: tuple[str, ...],
    limit: int,
    follow: bool,
) -> None:
    """Show single probes, failed ones too, newest last; export all of them.

    --follow goes on where it was when the collector was away for a while: no sample is lost or shown twice.
    """
    if context.invoked_subcommand is not None:
        _require_no_options(context)
        return
    selection = Selection(window=parse_window(window, now_at=now_at()), regions=regions, targets=targets)
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        if follow:
            _follow(client, selection, limit=limit, output=output)
        else:
            _show(client, selection, limit=limit, output=output)


samples.add_command(export)


def _require_no_options(context: click.Context) -> None:
    """What stands before the subcommand would be of no effect."""
    told = [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if told:
        raise click.UsageError(f"write the options behind {context.invoked_subcommand!r}", ctx=context)


def _show(client: ObservatoryClient, selection: Selection, *, limit: int, output: Output) -> None:
    newest = client.list_samples(selection, limit=limit)
    terminal.write(sample_pages.page(newest, window=selection.window, now_at=now_at()), output)
    sample_pages.require_samples(newest, window=selection.window)


def _follow(client: ObservatoryClient, selection: Selection, *, limit: int, output: Output) -> None:
    """Write what is there and then what comes; an interrupt is the ordinary end."""
    say = terminal.begin
    try:
        for portion in SampleStream(client, selection, report=terminal.remark).samples(limit=limit):
            say(sample_pages.page(portion, window=selection.window, now_at=now_at()), output)
            say = terminal.go_on
    except KeyboardInterrupt:
        return
