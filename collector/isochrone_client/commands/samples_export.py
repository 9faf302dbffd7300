"""`isochrone samples export`: every sample of a selection into a file."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.export.output_file import STDOUT, open_output
from isochrone_client.export.writers import FORMATS
from isochrone_client.formats import minute
from isochrone_client.pages import samples as sample_pages
from isochrone_client.sample_stream import export_samples
from isochrone_client.window import parse_window
from isochrone_wire.answers import Selection, StoredSample, Window
from isochrone_wire.model import SECOND_US

_TELL_EVERY_US = 2 * SECOND_US
Portions = Iterator[tuple[StoredSample, ...]]


@click.command("export", epilog=options.example("isochrone samples export --window 1h --out samples.parquet"))
@click.option(
    "--format",
    "kind",
    type=click.Choice(list(FORMATS)),
    help="parquet takes the extra isochrone[export].  [default: what the file's name ends in, else csv]",
)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write it; - is standard output, for csv and jsonl.",
)
@click.option("--force", is_flag=True, help="Overwrite the file if it is there.")
@options.regions
@options.targets
@options.window
@options.asking
def export(
    *,
    collector: Collector,
    timeout_us: int,
    window: str,
    regions: tuple[str, ...],
    targets: tuple[str, ...],
    kind: str | None,
    out: Path,
    force: bool,
) -> None:
    """Write every sample of a window, with every field.

    The oldest round comes first; names and units are those of --output json.

    The file appears when it is whole. Parquet has real timestamps; csv and jsonl have them as RFC 3339.
    """
    ending = out.suffix.removeprefix(".")
    chosen = kind or (ending if ending in FORMATS else "csv")
    if out == STDOUT and chosen == "parquet":
        raise click.UsageError("parquet does not go to standard output; name a file with --out")
    selection = Selection(window=parse_window(window, now_at=now_at()), regions=regions, targets=targets)
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        portions = export_samples(client, selection, report=terminal.remark)
        first = next(portions, ())
        sample_pages.require_samples(first, window=selection.window)
        rows = _write(chain([first], portions), selection.window, kind=chosen, out=out, force=force)
    terminal.remark(f"{rows} samples exported" + ("" if out == STDOUT else f" to {out}"))


def _write(portions: Portions, window: Window, *, kind: str, out: Path, force: bool) -> int:
    """Write all portions; how many samples that were."""
    rows, told_at = 0, now_at()
    with open_output(out, force=force) as file:
        writer = FORMATS[kind](file, window)
        for portion in portions:
            writer.write(portion)
            rows += len(portion)
            if now_at() - told_at >= _TELL_EVERY_US:
                told_at = now_at()
                terminal.remark(f"{rows} samples, rounds up to {minute(portion[-1].sample.round_at)} UTC")
        writer.close()
    return rows
