"""`isochrone routes export`: write the tables of a region as a file for a gateway."""

from dataclasses import replace
from pathlib import Path

import click

from isochrone_client import completion, terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.gateways import FORMATS, renderer
from isochrone_client.output_file import STDOUT, open_output
from isochrone_client.pages.freshness import is_usable
from isochrone_client.pages.routes import require_usable
from isochrone_wire.cli.command_line import Choice, output_option
from isochrone_wire.routes import RegionTables

_EXAMPLES = (
    "isochrone routes export --region us-east-2 --output json --file -",
    "isochrone routes export --region us-east-2 --output litellm --file litellm.yaml",
)


class _FormerArgument(click.Argument):
    """The format's former place, `export FORMAT`; it works and is not in the help."""

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """None."""
        return []


@click.command("export", epilog=options.example(*_EXAMPLES))
@click.argument("positional", cls=_FormerArgument, required=False, type=Choice(FORMATS))
@output_option(*FORMATS, default=None, show_default=False, help="The gateway, json or csv.  [required]")
@click.option(
    "--region",
    required=True,
    metavar="REGION",
    shell_complete=completion.regions,
    help="The region that requests are sent from.",
)
@options.route
@options.file(required=True, help="The file to write; - is standard output.")
@options.exporting
def export(
    *,
    collector: Collector,
    timeout_us: int,
    positional: str | None,
    output: str | None,
    region: str,
    route: str,
    path: Path,
) -> None:
    """Write the tables of a region as a file for a gateway.

    json is the HTTP answer, csv has a line per member; litellm, envoy and portkey are their configurations.

    The file is replaced in one step, or not at all: a table that is expired or has too little evidence is left out, and
    when none is left the file stays as it was and the command fails. The file names API keys and never contains them.

    envoy takes two files, routes in FILE and clusters next to it: for routes.json that is routes.clusters.json.
    """
    kind = output or positional
    if kind is None or (positional and positional != kind):
        raise click.UsageError(f"name one format with --output: {', '.join(FORMATS)}")
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        answer = client.get_tables(region, route)
    texts = renderer(kind)(_usable(answer))
    for part, text in texts.items():
        _write(_beside(path, part), text)


def _usable(answer: RegionTables) -> RegionTables:
    """The tables that may be used; the others are reported. Raises `InsufficientError` if there are none."""
    now = now_at()
    require_usable(answer.tables, now_at=now)
    for table in answer.tables:
        if not is_usable(table, now_at=now):
            terminal.remark(f"{table.route} is left out: its table is expired or has too little evidence")
    return replace(answer, tables=tuple(table for table in answer.tables if is_usable(table, now_at=now)))


def _beside(path: Path, part: str) -> Path:
    """`routes.json` and, for the part `clusters`, `routes.clusters.json`; what goes to stdout all goes there."""
    return path.with_name(f"{path.stem}.{part}{path.suffix}") if part and path != STDOUT else path


def _write(path: Path, text: str) -> None:
    with open_output(path, force=True) as file:
        file.write(text.encode())
    if path != STDOUT:
        terminal.remark(f"written: {path}")
