"""`isochrone samples export`: write every sample of a selection to a file."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.output_file import STDOUT, open_output
from isochrone_client.pages import samples as sample_pages
from isochrone_client.sample_export.writers import FORMATS
from isochrone_client.sample_stream import export_samples
from isochrone_client.window import parse_window
from isochrone_common.cli.command_line import output_option
from isochrone_wire.answers import Selection, Window
from isochrone_wire.fleet import StoredSample
from isochrone_wire.json_format import minute
from isochrone_wire.model import SECOND_US

_PROGRESS_EVERY_US = 2 * SECOND_US
Portions = Iterator[tuple[StoredSample, ...]]


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
def export(
    *,
    collector: Collector,
    timeout_us: int,
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
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
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
