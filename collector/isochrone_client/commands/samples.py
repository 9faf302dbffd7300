from itertools import chain
from pathlib import Path

import click

from isochrone_client import terminal
from isochrone_client.client import ReadClient
from isochrone_client.commands import options
from isochrone_client.output_file import STDOUT, open_output
from isochrone_client.pages import samples as pages
from isochrone_client.pages.cells import no_samples
from isochrone_client.sample_export import FORMATS
from isochrone_client.streams import SampleStream, export_samples
from isochrone_client.terminal import Output
from isochrone_client.window import now_at
from isochrone_common.cli.command_line import CommandGroup, Entry, output_option
from isochrone_wire.answers import Metric, Selection, Window
from isochrone_wire.json_format import minute
from isochrone_wire.model import SECOND_US

_PROGRESS_EVERY_US = 2 * SECOND_US
_POINTS_FOR_PEOPLE = 32

_filter = click.option(
    "--filter",
    "matching",
    default="",
    metavar="WORDS",
    help="Only samples for which all words hold: 'ttft>500 outcome:timed_out,stalled -region:eu-*'. Durations are in "
    "milliseconds, names may have * and ?, and - negates a word.",
)

COMMANDS = {
    "export": Entry("isochrone_client.commands.samples:export", "Write every sample of a window, with every field.")
}


@click.group(
    "samples",
    cls=CommandGroup,
    entries=COMMANDS,
    invoke_without_command=True,
    subcommand_metavar="[COMMAND] [ARGS]...",
    epilog=options.example(
        "isochrone samples --region us-east-2 --limit 50", "isochrone samples --filter 'ttft>500 region:eu-*'"
    ),
)
@options.repeating
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=10_000),
    default=20,
    show_default=True,
    help="Number of samples, the newest ones.",
)
@click.option("--id", "sample_id", metavar="ID", help="Only the sample with this id, which json and csv have.")
@click.option("--follow", "-f", is_flag=True, help="Continue with new ones until Ctrl-C; json has one per line.")
@_filter
@options.selection
@options.reading
@options.verdict
@click.pass_context
@options.client
def samples(
    context: click.Context,
    *,
    client: ReadClient,
    output: Output,
    selection: Selection,
    limit: int,
    sample_id: str | None,
    follow: bool,
    matching: str,
) -> None:
    """Show single probes, failed ones too, newest last; export all of them.

    After an outage of the collector --follow continues where it stopped: no sample is lost or repeated.
    """
    if context.invoked_subcommand is not None:
        options.require_no_options(context)
        return
    if follow and output.repeated:
        raise click.UsageError("--follow prints what is new, --watch all again; give either")
    window = selection.window
    if sample_id is not None:
        found = client.get_sample(sample_id)
        window = Window(from_at=found.sample.round_at, until_at=found.sample.round_at + 1)
        terminal.write(pages.page((found,), window=window, now_at=now_at()), output)
    elif follow:
        stream = SampleStream(client, selection, report=terminal.remark, matching=matching)
        portions = stream.samples(limit=limit)
        terminal.write_all((pages.page(rows, window=window, now_at=now_at()) for rows in portions), output)
    else:
        newest = client.list_samples(selection, limit=limit, matching=matching)
        terminal.write(pages.page(newest, window=window, now_at=now_at()), output)
        pages.require_samples(newest, window=window, matching=matching)


@options.command("export", "isochrone samples export --window 1h --file samples.parquet")
@output_option(
    *FORMATS,
    default=None,
    help="parquet takes the extra isochrone[export].  [default: the ending of the file's name; csv without one]",
)
@options.file(required=True, help="The file to write; - is standard output, for csv and jsonl.")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
@options.raw
@_filter
@options.selection
@options.exporting
@options.client
def export(
    *,
    client: ReadClient,
    selection: Selection,
    output: str | None,
    path: Path,
    force: bool,
    raw: bool,
    matching: str,
) -> None:
    """Write every sample of a window, with every field.

    The oldest round comes first; names and units are those of `isochrone samples --output json`.

    The file appears when it is complete; without any sample none is written. Parquet has real timestamps; csv and jsonl
    have RFC 3339.
    """
    chosen = options.file_format(output, path, {f".{name}": name for name in FORMATS}, default="csv")
    if path == STDOUT and chosen == "parquet":
        raise click.UsageError("parquet does not go to standard output; name a file with --file")
    portions = export_samples(client, selection, report=terminal.remark, matching=matching)
    first = next(portions, ())
    pages.require_samples(first, window=selection.window, matching=matching)
    rows, reported_at = 0, now_at()
    with open_output(path, force=force) as file:
        writer = FORMATS[chosen](file, selection.window, raw=raw)
        for portion in chain([first], portions):
            writer.write(portion)
            rows += len(portion)
            if now_at() - reported_at >= _PROGRESS_EVERY_US:
                reported_at = now_at()
                terminal.remark(f"{rows} samples, rounds up to {minute(portion[-1].sample.round_at)} UTC")
        writer.close()
    terminal.remark(f"{rows} samples exported" + ("" if path == STDOUT else f" to {path}"))


@options.command(
    "series",
    "isochrone series --target kimi-k2.5 --window 7d",
    "isochrone series --metric e2e --limit 8 --output json",
    "isochrone series --target kimi-k2.5 --bins 40",
)
@options.metric_option("The metric of the values.")
@options.limit_option("Show the goodput: the share of planned requests whose metric, a latency, is within this limit.")
@click.option(
    "--points",
    type=click.IntRange(1, 500),
    metavar="N",
    help=f"Points of a series at most.  [default: {_POINTS_FOR_PEOPLE} in a table, 500 in json and csv]",
)
@click.option(
    "--bins",
    type=click.IntRange(2, 200),
    metavar="N",
    help="Also show the distribution of the values, in at most so many bins of a logarithmic scale.",
)
@options.selecting
def series(
    *,
    client: ReadClient,
    output: Output,
    selection: Selection,
    metric: str,
    limit_s: float | None,
    points: int | None,
    bins: int | None,
) -> None:
    """Show values and outcomes over time, per target and region.

    Each point is of a bucket of time: p10, p50 and p90 of the values in it, and the numbers of probes that succeeded,
    failed, were throttled or skipped. Long windows are answered from summaries, within 1 %.
    """
    answer = client.get_series(
        selection,
        metric=Metric(metric),
        points=points or (_POINTS_FOR_PEOPLE if output.is_for_people else 0),
        limit_us=round((limit_s or 0) * SECOND_US),
        bins=bins or 0,
    )
    terminal.write(pages.series_page(answer, now_at=now_at()), output)
    if not answer.series:
        raise no_samples(answer.window)
