"""`isochrone samples`: single probes; `--follow` prints new ones, `export` writes all to a file."""

import click
from click.core import ParameterSource

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.pages import samples as sample_pages
from isochrone_client.sample_stream import SampleStream
from isochrone_client.terminal import Output
from isochrone_client.window import parse_window
from isochrone_common.cli.command_line import CommandGroup, Entry
from isochrone_wire.answers import Selection, Window

COMMANDS = {
    "export": Entry(
        "isochrone_client.commands.samples_export:export", "Write every sample of a window, with every field."
    ),
}


@click.group(
    "samples",
    cls=CommandGroup,
    entries=COMMANDS,
    invoke_without_command=True,
    subcommand_metavar="[COMMAND] [ARGS]...",
    epilog=options.example("isochrone samples --region us-east-2 --limit 50"),
)
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=10_000),
    default=20,
    show_default=True,
    help="Number of samples, the newest ones.",
)
@click.option("--id", "sample_id", metavar="ID", help="Only the sample with this id, which json and csv have.")
@click.option("--follow", "-f", is_flag=True, help="Continue with new ones until Ctrl-C; json has one per line.")
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
    sample_id: str | None,
    follow: bool,
) -> None:
    """Show single probes, failed ones too, newest last; export all of them.

    After an outage of the collector --follow continues where it stopped: no sample is lost or repeated.
    """
    if context.invoked_subcommand is not None:
        _require_no_options(context)
        return
    selection = Selection(window=parse_window(window, now_at=now_at()), regions=regions, targets=targets)
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        if sample_id is not None:
            _show_one(client, sample_id, output=output)
        elif follow:
            _follow(client, selection, limit=limit, output=output)
        else:
            _show(client, selection, limit=limit, output=output)


def _require_no_options(context: click.Context) -> None:
    """Refuse options before the subcommand, where they have no effect."""
    given = [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        raise click.UsageError(f"write the options after {context.invoked_subcommand!r}", ctx=context)


def _show(client: ObservatoryClient, selection: Selection, *, limit: int, output: Output) -> None:
    newest = client.list_samples(selection, limit=limit)
    terminal.write(sample_pages.page(newest, window=selection.window, now_at=now_at()), output)
    sample_pages.require_samples(newest, window=selection.window)


def _show_one(client: ObservatoryClient, sample_id: str, *, output: Output) -> None:
    found = client.get_sample(sample_id)
    window = Window(from_at=found.sample.round_at, until_at=found.sample.round_at + 1)
    terminal.write(sample_pages.page((found,), window=window, now_at=now_at()), output)


def _follow(client: ObservatoryClient, selection: Selection, *, limit: int, output: Output) -> None:
    """Print the newest samples and then new ones, until Ctrl-C."""
    write = terminal.begin
    try:
        for portion in SampleStream(client, selection, report=terminal.remark).samples(limit=limit):
            write(sample_pages.page(portion, window=selection.window, now_at=now_at()), output)
            write = terminal.go_on
    except KeyboardInterrupt:
        return
