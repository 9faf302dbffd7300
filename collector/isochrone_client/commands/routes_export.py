"""`isochrone routes export`: the tables of a region as a file for whoever routes."""

from dataclasses import replace
from pathlib import Path

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.export.output_file import STDOUT, open_output
from isochrone_client.gateways import FORMATS, renderer
from isochrone_client.pages.freshness import is_usable
from isochrone_client.pages.routes import require_usable
from isochrone_wire.routes import RegionTables

_EXAMPLES = (
    "isochrone routes export json --region us-east-2 --out -",
    "isochrone routes export litellm --region us-east-2 --out litellm.yaml",
)


@click.command("export", epilog=options.example(*_EXAMPLES))
@click.argument("kind", metavar="FORMAT", type=click.Choice(FORMATS))
@click.option("--region", required=True, metavar="REGION", help="The region that requests are sent from.")
@options.route
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Where to write it; - is standard output.",
)
@options.asking
def export(*, collector: Collector, timeout_us: int, kind: str, region: str, route: str, out: Path) -> None:
    """Write the tables of a region as a file for a gateway.

    json is what HTTP answers with, csv a line per member, litellm, envoy and portkey are their configurations.

    The file is replaced at once and whole, or not at all: a table that is expired or knows too little is left out, and
    when nothing is left the exit code is 4 and the file stays as it was. Keys are named in it, and never in it.

    envoy takes two files, routes in FILE and clusters beside it: for routes.json it is routes.clusters.json.
    """
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        answer = client.get_tables(region, route)
    texts = renderer(kind)(_usable(answer))
    for part, text in texts.items():
        _write(_beside(out, part), text)


def _usable(answer: RegionTables) -> RegionTables:
    """The tables that may be routed by; the others are told of. Raises `InsufficientError` when there are none."""
    now = now_at()
    require_usable(answer.tables, now_at=now)
    for table in answer.tables:
        if not is_usable(table, now_at=now):
            terminal.remark(f"{table.route} is left out: its table is expired or knows too little")
    return replace(answer, tables=tuple(table for table in answer.tables if is_usable(table, now_at=now)))


def _beside(out: Path, part: str) -> Path:
    """`routes.json` and, for the part `clusters`, `routes.clusters.json`; what goes to stdout all goes there."""
    return out.with_name(f"{out.stem}.{part}{out.suffix}") if part and out != STDOUT else out


def _write(path: Path, text: str) -> None:
    with open_output(path, force=True) as file:
        file.write(text.encode())
    if path != STDOUT:
        terminal.remark(f"written: {path}")
