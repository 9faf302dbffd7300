"""`isochrone samples`: single probes; `--follow` prints new ones, `export` writes all to a file."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import click

from isochrone_client import terminal
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.output_file import STDOUT, open_output
from isochrone_client.pages import samples as sample_pages
from isochrone_client.sample_export.writers import FORMATS
from isochrone_client.sample_stream import SampleStream, export_samples
from isochrone_client.terminal import Output
from isochrone_client.window import parse_window
from isochrone_common.cli.command_line import CommandGroup, Entry, output_option
from isochrone_wire.answers import Selection, Window
from isochrone_wire.fleet import StoredSample
from isochrone_wire.json_format import minute
from isochrone_wire.model import SECOND_US

_PROGRESS_EVERY_US = 2 * SECOND_US
Portions = Iterator[tuple[StoredSample, ...]]

COMMANDS = {
    "export": Entry("isochrone_client.commands.samples:export", "Write every sample of a window, with every field."),
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
@options.client
def samples(
    context: click.Context,
    *,
    client: ObservatoryClient,
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
        options.require_no_options(context)
        return
    selection = Selection(window=parse_window(window, now_at=now_at()), regions=regions, targets=targets)
    if sample_id is not None:
        _show_one(client, sample_id, output=output)
    elif follow:
        _follow(client, selection, limit=limit, output=output)
    else:
        _show(client, selection, limit=limit, output=output)


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


@click.command("export", epilog=options.example("isochrone samples export --window 1h --file samples.parquet"))
@output_option(
    *FORMATS,
    default=None,
    help="parquet takes the extra isochrone[export].  [default: the ending of the file's name; csv without one]",
)
@options.file(required=True, help="The file to write; - is standard output, for csv and jsonl.")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
@options.regions
@options.targets
@options.window
@options.exporting
@options.client
def export(
    *,
    client: ObservatoryClient,
    window: str,
    regions: tuple[str, ...],
    targets: tuple[str, ...],
    output: str | None,
    path: Path,
    force: bool,
) -> None:
    """Write every sample of a window, with every field.

    The oldest round comes first; names and units are those of `isochrone samples --output json`.

    The file appears when it is complete; without any sample none is written. Parquet has real timestamps; csv and jsonl
    have RFC 3339.
    """
    chosen = options.file_format(output, path, {f".{name}": name for name in FORMATS}, default="csv")
    if path == STDOUT and chosen == "parquet":
        raise click.UsageError("parquet does not go to standard output; name a file with --file")
    selection = Selection(window=parse_window(window, now_at=now_at()), regions=regions, targets=targets)
    portions = export_samples(client, selection, report=terminal.remark)
    first = next(portions, ())
    sample_pages.require_samples(first, window=selection.window)
    rows = _write(chain([first], portions), selection.window, kind=chosen, path=path, force=force)
    terminal.remark(f"{rows} samples exported" + ("" if path == STDOUT else f" to {path}"))


def _write(portions: Portions, window: Window, *, kind: str, path: Path, force: bool) -> int:
    """Write all portions; return the number of samples."""
    rows, reported_at = 0, now_at()
    with open_output(path, force=force) as file:
        writer = FORMATS[kind](file, window)
        for portion in portions:
            writer.write(portion)
            rows += len(portion)
            if now_at() - reported_at >= _PROGRESS_EVERY_US:
                reported_at = now_at()
                terminal.remark(f"{rows} samples, rounds up to {minute(portion[-1].sample.round_at)} UTC")
        writer.close()
    return rows
