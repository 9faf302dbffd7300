"""`isochrone routes watch`: each table as it changes."""

from collections.abc import Iterable, Iterator

import click

from isochrone_client import completion, terminal
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.pages import routes as route_pages
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
    help="Begin after this generation, the last one seen.  [default: with all in force]",
)
@click.option("--moves", is_flag=True, help="After the tables in force, leave out tables that were only refreshed.")
@options.reading
@options.client
def watch(*, client: ObservatoryClient, output: Output, region: str, route: str, after: int, moves: bool) -> None:
    """Show each table as it changes, until interrupted.

    Each generation has a line with its time, the weights and the change; json has each complete table on one line.
    After an outage of the collector it continues with the next generation: none is lost or repeated. On another
    database it starts over and reports that. Ctrl-C ends it with exit code 0.
    """
    watching = TableStream(client, client_region=region, route=route, after=after, report=terminal.remark)
    tables = watching.tables()
    try:
        _print(_moves(tables, after=after) if moves else tables, output)
    except KeyboardInterrupt:
        return


def _moves(tables: Iterable[RouteTable], *, after: int) -> Iterator[RouteTable]:
    """Leave out tables that were only refreshed, except those in force at the start and on another database."""
    seen: set[tuple[str, str]] | None = None if after else set()
    last = after
    for table in tables:
        if table.generation < last:  # another database, of which the tables in force come first
            seen = set()
        last, place = table.generation, (table.client_region, table.route)
        is_first = seen is not None and place not in seen
        if is_first or table.change is not ChangeKind.EVIDENCE:
            yield table
        if seen is not None:
            seen.add(place)


def _print(tables: Iterable[RouteTable], output: Output) -> None:
    write = terminal.begin
    for table in tables:
        write(_page(table), output)
        write = terminal.go_on


def _page(table: RouteTable) -> Page[RouteTable]:
    return route_pages.changes_page((table,), now_at=now_at())
