"""`isochrone routes watch`: each table as it changes."""

import click

from isochrone_client import completion, terminal
from isochrone_client.address import Collector
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.pages import route_changes
from isochrone_client.render.page import Page
from isochrone_client.table_stream import TableStream
from isochrone_client.terminal import Output
from isochrone_wire.routes import ChangeKind, RouteTable

_EXAMPLES = (
    "isochrone routes watch",
    "isochrone routes watch --route chat --moves",
    "isochrone routes watch --output json --after 48",
)


@click.command("watch", epilog=options.example(*_EXAMPLES))
@click.option("--region", default="", metavar="REGION", shell_complete=completion.regions, help="Only this region.")
@options.route
@click.option(
    "--after",
    type=click.IntRange(min=0),
    default=0,
    metavar="GENERATION",
    help="Begin behind this generation, the last one seen.  [default: with all that are in force]",
)
@click.option("--moves", is_flag=True, help="Leave out what only refreshed a table.")
@options.reading
def watch(
    *, collector: Collector, timeout_us: int, output: Output, region: str, route: str, after: int, moves: bool
) -> None:
    """Show each table as it changes, until interrupted.

    A line per generation: when it was built, who carries how much, and what changed; json gives each table whole, one
    per line. When the collector was away it goes on behind the last generation: none is lost, and none comes twice; on
    another database it begins anew, and says so. Ctrl-C is the ordinary end.
    """
    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        watching = TableStream(client, client_region=region, route=route, after=after, report=terminal.remark)
        try:
            _tell(watching, output, moves=moves)
        except KeyboardInterrupt:
            return


def _tell(watching: TableStream, output: Output, *, moves: bool) -> None:
    say = terminal.begin
    for table in watching.tables():
        if moves and table.change is ChangeKind.EVIDENCE:
            continue
        say(_page(table), output)
        say = terminal.go_on


def _page(table: RouteTable) -> Page[RouteTable]:
    return route_changes.page((table,), now_at=now_at())
